"""The status server: health, status, metrics, the page, and what an operator does, over HTTP.

It has a thread of its own and answers from the observer's last status, so that requests cannot slow the worker. A
connection serves one request and ends after a few seconds, whatever its peer does (`bounded_connections`).

Health is open to everybody. Every other path needs the token or, where no token is set, a client on this machine. A
page of another site that is open in a browser on this machine is not such a client: the server recognises it by Host
and Origin, and what changes or costs something must carry a header that such a page cannot send without permission.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import re
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from http import HTTPStatus
from importlib import resources

from aiohttp import web
from multidict import CIMultiDictProxy
from pydantic import BaseModel, ValidationError

from syphon.bounded_connections import Connections
from syphon.config import StatusSettings
from syphon.model import SyphonError
from syphon.time_budget import LIST_WITHIN

from .observer import Observer, not_connected
from .operator_api import (
    NotStarted,
    OperatorApis,
    PauseRequest,
    RateRequest,
    ReplayRequest,
    ReplayRuns,
    RetryRequest,
    UnknownTarget,
)

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
        """The current token: its file may change."""
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


LARGEST_REQUEST = 4096
"""The bound in bytes of a body, of the request line, and of each header."""

NO_REPLAY = (
    "A replay changes messages, so it needs a token: set status.token. Without one, use syphon dead-letters replay."
)

SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PortTaken(SyphonError):
    """The status server cannot listen on its address."""


class StatusServer:
    """Serves until its `with` block ends."""

    def __init__(
        self,
        settings: StatusSettings,
        observer: Observer,
        apis: OperatorApis,
        metrics: Callable[[], bytes],
    ) -> None:
        self._settings = settings
        self._access = AccessRules(settings)
        self._observer = observer
        self._apis = apis
        self._metrics = metrics
        self._page, self._page_policy = _page()
        self._loop = asyncio.new_event_loop()
        self._connections = Connections(self._loop)
        self._listener: asyncio.Server | None = None
        self.port = settings.listen.port
        """The port it listens on, also where the settings leave the choice to the system."""

    # --- its thread ----------------------------------------------------------------------------------------------

    def __enter__(self) -> StatusServer:
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="status", daemon=True)
        self._thread.start()
        try:
            self.port = ready.result()
        except OSError as error:
            why = error.strerror or str(error)
            raise PortTaken(
                f"The status server cannot listen on {self._settings.listen}: {why}. Is another worker running there? "
                "Set status.listen to another address."
            ) from None
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self, ready: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            shutdown_timeout=0.2,
            logger=_silent(),
            keepalive_timeout=0,
            max_line_size=LARGEST_REQUEST,
            max_field_size=LARGEST_REQUEST,
            handler_cancellation=True,
        )
        try:
            try:
                ready.set_result(self._loop.run_until_complete(self._start(runner)))
            except Exception as error:  # __enter__ waits for it, and raises it
                ready.set_exception(error)
            else:
                self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end(runner))
            self._loop.close()

    async def _end(self, runner: web.AppRunner) -> None:
        if self._listener is not None:
            self._listener.close()
        await _turns()  # a connection that was just accepted gets its handler, and can be closed
        await runner.cleanup()
        self._connections.close()
        await _turns()

    async def _start(self, runner: web.AppRunner) -> int:
        await runner.setup()
        server = runner.server
        assert server is not None
        host, port = self._settings.listen
        self._listener = await self._connections.listen(server, host, port)
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    # --- its answers ---------------------------------------------------------------------------------------------

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_REQUEST, middlewares=[self._answer])
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/status", self._status)
        app.router.add_get("/metrics", self._on_metrics)
        app.router.add_get("/", self._on_page)
        app.router.add_post("/pause", self._pause)
        app.router.add_post("/resume", self._pause)
        app.router.add_post("/retry", self._retry)
        app.router.add_post("/rate", self._rate)
        app.router.add_get("/dead-letters", self._dead_letters)
        app.router.add_post("/dead-letters/replay", self._replay)
        return app

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Checks access first. Every answer closes its connection, and tells a browser to do as little as possible."""
        self._connections.requested(request.transport)
        try:
            self._access.check(request.method, request.path, request.headers)
            answer = await handler(request)
        except AccessDenied as denied:
            answer = _text(str(denied), denied.status)
            if denied.status is HTTPStatus.UNAUTHORIZED:
                answer.headers["WWW-Authenticate"] = 'Basic realm="syphon", charset="UTF-8"'
        except web.HTTPException as error:  # no such path, no such method, too large
            answer = _text(error.reason, HTTPStatus(error.status))
            if isinstance(error, web.HTTPMethodNotAllowed):
                answer.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
        for name, value in SECURITY_HEADERS.items():
            answer.headers.setdefault(name, value)
        answer.force_close()
        return answer

    async def _healthz(self, _: web.Request) -> web.Response:
        trouble = self._observer.trouble()
        return _text(trouble or "ok", HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK)

    async def _readyz(self, _: web.Request) -> web.Response:
        status = self._observer.current()
        if status.not_ready:
            return _text("\n".join(status.not_ready), HTTPStatus.SERVICE_UNAVAILABLE)
        return _text("\n".join(["ok", *not_connected(status.pairs)]), HTTPStatus.OK)

    async def _status(self, _: web.Request) -> web.Response:
        return web.Response(text=self._observer.current().model_dump_json(), content_type="application/json")

    async def _on_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _on_page(self, _: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": self._page_policy}
        return web.Response(text=self._page, content_type="text/html", headers=headers)

    async def _pause(self, request: web.Request) -> web.Response:
        try:
            command = PauseRequest.model_validate_json(await request.read() or b"{}")
        except ValidationError:
            return _text("The body must be empty, or JSON with pair, queue or destination.", HTTPStatus.BAD_REQUEST)
        act = self._apis.pauses.pause if request.path == "/pause" else self._apis.pauses.resume
        return _answered(lambda: act(command))

    async def _retry(self, request: web.Request) -> web.Response:
        try:
            command = RetryRequest.model_validate_json(await request.read() or b"{}")
        except ValidationError:
            return _text("The body must be empty, or JSON with pair or destination.", HTTPStatus.BAD_REQUEST)
        return _answered(lambda: self._apis.worker.retry(command))

    async def _rate(self, request: web.Request) -> web.Response:
        try:
            command = RateRequest.model_validate_json(await request.read())
        except ValidationError:
            return _text("The body must be JSON with rate, a number above 0 or null.", HTTPStatus.BAD_REQUEST)
        return _answered(lambda: self._apis.worker.limit_rate(command))

    async def _dead_letters(self, _: web.Request) -> web.Response:
        reading = asyncio.shield(asyncio.wrap_future(self._apis.dead_letters.read()))  # others may wait for it, too
        try:
            found = await asyncio.wait_for(reading, LIST_WITHIN)
        except TimeoutError:
            return _text("A secondary does not answer: retry later.", HTTPStatus.SERVICE_UNAVAILABLE)
        found = found.model_copy(update={"may_replay": self._access.has_token})
        return web.Response(text=found.model_dump_json(), content_type="application/json")

    async def _replay(self, request: web.Request) -> web.Response:
        if not self._access.has_token:
            return _text(NO_REPLAY, HTTPStatus.FORBIDDEN)
        try:
            command = ReplayRequest.model_validate_json(await request.read())
        except ValidationError:
            return _text("The body must be JSON with pair, reason and destination.", HTTPStatus.BAD_REQUEST)
        try:
            progress = self._apis.dead_letters.replay(command)
        except UnknownTarget as unknown:
            return _text(str(unknown), HTTPStatus.NOT_FOUND)
        except ReplayRuns as runs:
            return _text(str(runs), HTTPStatus.CONFLICT)
        return web.Response(
            text=progress.model_dump_json(), content_type="application/json", status=HTTPStatus.ACCEPTED
        )


async def _turns() -> None:
    """Let the event loop run the callbacks that are ready, and those that they schedule."""
    for _ in range(4):
        await asyncio.sleep(0)


def _text(text: str, status: HTTPStatus) -> web.Response:
    return web.Response(text=text + "\n", status=status)


def _answered(act: Callable[[], BaseModel]) -> web.Response:
    """What a request to the worker has led to, or why nothing was done."""
    try:
        return web.Response(text=act().model_dump_json(), content_type="application/json")
    except UnknownTarget as unknown:
        return _text(str(unknown), HTTPStatus.NOT_FOUND)
    except NotStarted as starting:
        return _text(str(starting), HTTPStatus.SERVICE_UNAVAILABLE)


def _silent() -> logging.Logger:
    """A logger that logs nothing: aiohttp would log a trace for each malformed request, and so fill the log."""
    logger = logging.getLogger("syphon.status.http")
    logger.setLevel(logging.CRITICAL)
    return logger


def _page() -> tuple[str, str]:
    """The page, and the policy that allows only its own script and style, by their hashes."""
    page = resources.files(__package__).joinpath("page.html").read_text()
    allowed = {}
    for tag in ("script", "style"):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        allowed[tag] = base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{allowed['script']}'; style-src 'sha256-{allowed['style']}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy
