"""An HTTP proxy on the way to a namespace, in the forms that the SDKs and requests want it in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote, urlsplit


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """A proxy that opens tunnels (CONNECT). As text it is its host and port, without the credentials."""

    host: str
    port: int
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def of_sdk(cls, settings: Mapping[str, Any]) -> Self:
        """The proxy of a client of the SDK. Asyncio clients have a URL where sync ones have a host name."""
        name = str(settings["proxy_hostname"])
        host = urlsplit(name).hostname or name if "://" in name else name
        return cls(host, int(settings["proxy_port"]), settings.get("username"), settings.get("password"))

    def __str__(self) -> str:
        return f"{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def for_sdk(self) -> dict[str, Any]:
        """As the SDK's sync client wants it."""
        settings: dict[str, Any] = {"proxy_hostname": self.host, "proxy_port": self.port}
        return settings | ({"username": self.username, "password": self.password} if self.username else {})

    def for_requests(self) -> dict[str, str]:
        """As requests wants it, for https."""
        user = "" if not self.username else f"{quote(self.username, '')}:{quote(self.password or '', '')}@"
        return {"https": f"http://{user}{self}"}
