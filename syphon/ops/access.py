"""Who may ask the status server, and what.

Health is for anybody. The rest is for who shows the token; without one, for who is on this machine. A page of another
site that a browser on this machine has open is neither: it is told apart by Host and Origin, and a change has to carry
a header that such a page cannot send unasked.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from http import HTTPStatus

from multidict import CIMultiDictProxy

from syphon.config import StatusSettings

OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})
CHANGE_HEADER = "X-Syphon"
"""Any value. A page of another site would have to ask the server first whether it may send it, and may not."""
HEALTH_ALONE = (
    "This address can be reached by others, and no token is set: only /healthz and /readyz answer here. "
    "Set status.token, or listen on 127.0.0.1."
)


class Refused(Exception):
    """A request that is not answered."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Guard:
    """Judges requests by their headers."""

    def __init__(self, settings: StatusSettings) -> None:
        self._token = settings.token.get_secret_value().strip() if settings.token is not None else ""
        self._host = settings.listen.host.lower()
        self._is_local = is_loopback(self._host)

    def judge(self, method: str, path: str, headers: CIMultiDictProxy[str]) -> None:
        """Raises `Refused`."""
        if path in OPEN_TO_ALL and method in ("GET", "HEAD"):
            return
        host = headers.get("Host", "").lower()
        if self._is_local and not self._is_ours(_name_of(host)):
            raise Refused(HTTPStatus.FORBIDDEN, "This is not the host you are looking for.")
        if not self._token and not self._is_local:
            raise Refused(HTTPStatus.FORBIDDEN, HEALTH_ALONE)
        if self._token and not self._shows_token(headers.get("Authorization", "")):
            raise Refused(HTTPStatus.UNAUTHORIZED, "Show the token: Authorization: Bearer …")
        if method not in ("GET", "HEAD"):
            self._judge_change(host, headers)

    def _judge_change(self, host: str, headers: CIMultiDictProxy[str]) -> None:
        origin = headers.get("Origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refused(HTTPStatus.FORBIDDEN, "A page of another site may not do this.")
        if CHANGE_HEADER not in headers:
            raise Refused(HTTPStatus.FORBIDDEN, f"A change needs the header {CHANGE_HEADER}, with any value.")

    def _is_ours(self, name: str) -> bool:
        return name == self._host or is_loopback(name)

    def _shows_token(self, said: str) -> bool:
        """As a bearer, or as the password of any user: that is what a browser can ask a person for."""
        scheme, _, value = said.partition(" ")
        if scheme.lower() == "basic":
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(value.strip().encode(), self._token.encode())


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
