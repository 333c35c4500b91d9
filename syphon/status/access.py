"""Access to the status server: which requests it answers.

Health is open to everybody. Every other path needs the token or, where no token is set, a client on this machine. A
page of another site that is open in a browser on this machine is not such a client: the server recognises it by Host
and Origin, and what changes or costs something must carry a header that such a page cannot send without permission.
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
COSTS_OPERATIONS = frozenset({"/dead-letters"})
"""Paths whose answer costs operations of Service Bus. A page of another site cannot read it, but could ask for it."""
CHANGE_HEADER = "X-Syphon"
"""Any value is good. A page of another site would first have to ask the server for permission, and does not get it."""
HEALTH_ONLY = (
    "Other machines can reach this address, and no token is set: only /healthz and /readyz answer here. "
    "Set status.token, or listen on 127.0.0.1."
)


class AccessDenied(Exception):
    """The server does not answer this request."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class AccessRules:
    """Decides by a request's headers whether the server answers it."""

    def __init__(self, settings: StatusSettings) -> None:
        self._secret = settings.token
        self._host = settings.listen.host.lower()
        self._is_local = is_loopback(self._host)

    @property
    def _token(self) -> str:
        """The token as it is now: its file may change."""
        return "" if self._secret is None else self._secret.get_secret_value().strip()

    @property
    def has_token(self) -> bool:
        """Whether a token is set, so that every client that got this far has shown it."""
        return bool(self._token)

    def check(self, method: str, path: str, headers: CIMultiDictProxy[str]) -> None:
        """Raises `AccessDenied` for a request that the server must not answer."""
        if path in OPEN_TO_ALL and method in ("GET", "HEAD"):
            return
        host = headers.get("Host", "").lower()
        if self._is_local and not self._is_ours(_name_of(host)):
            raise AccessDenied(HTTPStatus.FORBIDDEN, "The Host header does not name this server.")
        if not self._token and not self._is_local:
            raise AccessDenied(HTTPStatus.FORBIDDEN, HEALTH_ONLY)
        if self._token and not self._has_token(headers.get("Authorization", "")):
            raise AccessDenied(HTTPStatus.UNAUTHORIZED, "Send the token: Authorization: Bearer …")
        if method not in ("GET", "HEAD") or path in COSTS_OPERATIONS:
            self._check_change(host, headers)

    def _check_change(self, host: str, headers: CIMultiDictProxy[str]) -> None:
        origin = headers.get("Origin")
        if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise AccessDenied(HTTPStatus.FORBIDDEN, "A page of another site may not do this.")
        if CHANGE_HEADER not in headers:
            raise AccessDenied(HTTPStatus.FORBIDDEN, f"This needs the header {CHANGE_HEADER}, with any value.")

    def _is_ours(self, name: str) -> bool:
        return name == self._host or is_loopback(name)

    def _has_token(self, authorization: str) -> bool:
        """Accepts the token as a bearer token, or as the password of any user: a browser can ask a person for that."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "basic":
            try:
                value = base64.b64decode(value, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(value.strip().encode(), self._token.encode())


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
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
