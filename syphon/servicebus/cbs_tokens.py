"""Tokens for the entities that a wire has links to: sent before the first link, renewed before they expire."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from syphon.amqp import Timestamp
from syphon.model import DestinationMissing, NotAuthorized, SyphonError, Waits

from .management_node import ManagementReply, RequestLink
from .sdk_sockets import MISSING, REFUSED
from .wire_session import Wire

SAS_TYPE = "servicebus.windows.net:sastoken"
JWT_SCOPE = "https://servicebus.azure.net//.default"
RENEW_AT = 0.1
"""A token is renewed when this share of its life is left."""


class TokenUnavailable(Waits):
    """The identity service gave no token."""

    retry_after = 10.0


@dataclass(slots=True)
class _Token:
    """The state of one entity's token."""

    expires_at: float = 0.0
    renew_at: float = 0.0
    requested: bool = False
    ready: bool = False
    error: SyphonError | None = None


class Tokens:
    """The tokens of one wire."""

    def __init__(
        self, wire: Wire, host: str, credential: Callable[[], Any], seconds: Callable[[], float] = time.time
    ) -> None:
        """`credential` gives the credential as it is now: a key may be rotated while the wire is open."""
        self._wire = wire
        self._host = host
        self._current = credential
        self._credential = credential()
        self._seconds = seconds
        self._cbs = RequestLink(wire, "$cbs")
        self._opened_at = seconds()
        self._tokens: dict[str, _Token] = {}
        self._fetching: dict[str, Future[Any]] = {}
        self._is_sas = str(getattr(self._credential, "token_type", "")).find("sastoken") >= 0
        # A token from the identity service costs a network round trip, and the pump must not wait for it.
        self._fetcher = None if self._is_sas else ThreadPoolExecutor(1, "tokens")

    def allow(self, path: str) -> bool:
        """Whether the service has the entity's token; requests one if not. Raises if the token was refused."""
        token = self._tokens.get(path)
        if token is None:
            token = self._tokens[path] = _Token()
        if token.error is not None:
            error, token.error, token.requested = token.error, None, False
            raise error
        if not token.ready and not token.requested:
            self._ask(path, token)
        return token.ready

    def work(self) -> None:
        """Sends tokens that have been fetched, and renews tokens that are about to expire."""
        now = self._seconds()
        self._check_link(now)
        if self._fetching:
            for path, future in list(self._fetching.items()):
                if future.done():
                    del self._fetching[path]
                    self._take(path, future)
        for path, token in self._tokens.items():
            if now >= token.renew_at and token.ready and not token.requested:
                self._ask(path, token)

    def _check_link(self, now: float) -> None:
        """Reopens the link if it was lost, and repeats the requests that had no answer."""
        if self._cbs.error is None or self._wire.failure is not None:
            self._cbs.work()
        elif now - self._opened_at >= TokenUnavailable.retry_after:
            self._cbs.close()
            self._cbs, self._opened_at = RequestLink(self._wire, "$cbs"), now
            for path, token in self._tokens.items():
                if token.requested and path not in self._fetching:
                    self._ask(path, token)

    def close(self) -> None:
        if self._fetcher is not None:
            self._fetcher.shutdown(wait=False, cancel_futures=True)

    def _audience(self, path: str) -> str:
        return f"sb://{self._host}/{path}"

    def _ask(self, path: str, token: _Token) -> None:
        token.requested = True
        self._credential = self._current()
        if self._fetcher is not None:
            self._fetching[path] = self._fetcher.submit(self._credential.get_token, JWT_SCOPE)
            return
        try:
            access = self._credential.get_token(self._audience(path))
        except Exception as error:  # every error of the credential is reported in the same way
            self._not_given(path, error)
        else:
            self._put(path, access)

    def _take(self, path: str, fetched: Future[Any]) -> None:
        error = fetched.exception()
        if error is not None:
            self._not_given(path, error)
        else:
            self._put(path, fetched.result())

    def _not_given(self, path: str, error: BaseException) -> None:
        # The error's text may contain the request, and with it a secret. Its type says enough.
        self._fail(self._tokens[path], f"{self._host}: no token for '{path}' ({type(error).__name__}).")

    def _put(self, path: str, access: Any) -> None:
        token = self._tokens[path]
        text = access.token.decode() if isinstance(access.token, bytes) else access.token
        token.expires_at = float(access.expires_on)
        token.renew_at = token.expires_at - RENEW_AT * max(0.0, token.expires_at - self._seconds())
        self._cbs.ask(
            {
                "operation": "put-token",
                "type": SAS_TYPE if self._is_sas else "jwt",
                "name": self._audience(path),
                "expiration": Timestamp(int(token.expires_at * 1000)),
            },
            text,
            lambda reply: self._answered(path, token, reply),
        )

    def _answered(self, path: str, token: _Token, reply: ManagementReply) -> None:
        token.requested = False
        if 200 <= reply.status < 300:
            token.ready = True
            return
        if reply.status in REFUSED and self._current() is not self._credential:
            self._ask(path, token)  # the key was rotated since
            return
        text = f"{self._host}: the token for '{path}' was refused ({reply.status} {reply.description})."
        if reply.status in REFUSED:
            token.ready, token.error = False, NotAuthorized(f"{text} Check the key or role assignment.")
        elif reply.status == MISSING:
            # With the condition first, as where a link is refused: reports and runbooks know the reason by it.
            missing = f"amqp:not-found: there is no '{path}' ({reply.status} {str(reply.description).rstrip('.')})."
            token.ready, token.error = False, DestinationMissing(missing, "amqp:not-found")
        else:
            self._fail(token, text)

    def _fail(self, token: _Token, text: str) -> None:
        """Records a failure. If the service has a token already, that is still valid: it is renewed a little later."""
        if token.ready:
            token.requested, token.renew_at = False, self._seconds() + TokenUnavailable.retry_after
        else:
            token.error = TokenUnavailable(text)
