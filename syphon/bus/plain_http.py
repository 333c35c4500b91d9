"""The last step to the wire for the SDKs' HTTP clients, where two things they cannot say are put right.

- TimeSpan.MaxValue ends in …4775807 ticks, and Python's durations end at microseconds. The administration client sends
  …47758S, which is another value, or with text rounds up to one that Azure refuses.
- The local emulator speaks plain HTTP. The administration client always says https, and the one for Resource Manager
  keeps its token back from anything else. So they go on believing it, and the scheme is changed here.
"""

from __future__ import annotations

from typing import Any

from azure.core.pipeline.transport import RequestsTransport

from .administration import FOREVER_TEXT

_NEARLY_FOREVER = b">P10675199DT2H48M5.47758S<"
_FOREVER = f">{FOREVER_TEXT}<".encode()


class Wire(RequestsTransport):  # type: ignore[misc]  # azure.core loads its transports too late for mypy
    """How requests are sent: in time, over TLS unless `plain`, and with the durations that were meant."""

    def __init__(self, *, timeout: float, plain: bool = False, ca_file: str | None = None) -> None:
        # No proxy, which the environment may ask for, has a way to this machine's own emulator.
        more: dict[str, Any] = {"use_env_settings": False} if plain else {}
        if ca_file is not None:
            more["connection_verify"] = ca_file
        super().__init__(connection_timeout=timeout, read_timeout=timeout, **more)
        self._plain = plain

    def send(self, request: Any, **kwargs: Any) -> Any:
        if isinstance(request.body, bytes) and _NEARLY_FOREVER in request.body:
            request.set_bytes_body(request.body.replace(_NEARLY_FOREVER, _FOREVER))
            request.headers["Content-Length"] = str(len(request.body))
        if self._plain and request.url.startswith("https://"):
            request.url = request.url.replace("https://", "http://", 1)
            # As a proxy that ends TLS would: links in the answers then keep the scheme the client knows.
            request.headers["X-Forwarded-Proto"] = "https"
        return super().send(request, **kwargs)
