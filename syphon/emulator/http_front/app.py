"""One namespace's HTTP port: its administration API, Azure Resource Manager's, and the emulator's own controls."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from ..broker import BrokerNamespace, ConnectionDropped, EntityNotFound, Journal, Refusal
from .admin import AdministrationApi
from .arm import ResourceManagerApi
from .control import add_control_routes
from .requests import entity_of, is_control, is_resource_manager
from .xml_elements import element, serialize, text

log = logging.getLogger(__name__)

_CLOSING = web.AppKey("closing", asyncio.Event)
_WRITES = frozenset({"PUT", "POST", "PATCH", "DELETE"})


def build_app(namespace: BrokerNamespace) -> web.Application:
    """The application that answers on a namespace's HTTP port."""
    app = web.Application(middlewares=[_word_refusals, _watching(namespace)])
    app[_CLOSING] = asyncio.Event()
    app.on_shutdown.append(_release)
    administration = AdministrationApi(namespace)
    resource_manager = ResourceManagerApi(namespace)

    async def answer(request: web.Request) -> web.StreamResponse:
        if is_control(request.path):
            raise EntityNotFound(f"{request.method} {request.path} is not one of the emulator's controls.")
        front = resource_manager if is_resource_manager(request.path) else administration
        return await front.answer(request)

    add_control_routes(app, namespace)
    # One route for all paths: entity names have slashes, written as such or as %2F, that no pattern could place.
    app.router.add_route("*", "/{path:.*}", answer)
    return app


@web.middleware
async def _word_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what was refused in the words of the API that was asked."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return refused(request.path, refusal)
    except web.HTTPException as problem:
        # What aiohttp refuses by itself, such as a body that is too large.
        return refused(request.path, Refusal(problem.text or problem.reason, status=problem.status))


def _watching(namespace: BrokerNamespace) -> Middleware:
    """Let arranged faults happen to each request, count it, and answer a change when it is written down."""

    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_control(request.path):
            return await handler(request)
        is_write = request.method in _WRITES
        entity = entity_of(request.path)
        try:
            fault = await namespace.faults.http(entity)
            namespace.counters.add(entity, "manage")
            try:
                if is_write and namespace.journal.write_error is not None:
                    raise _not_kept(namespace.journal.write_error)
                response = await handler(request)
                if is_write:
                    await _durable(namespace.journal)
            finally:
                namespace.faults.after_http(fault)
        except ConnectionDropped as dropped:
            return await _hang_up(request, dropped.until)
        return response

    return watch


async def _durable(journal: Journal) -> None:
    written = asyncio.get_running_loop().create_future()

    def done() -> None:
        if not written.done():
            written.set_result(None)

    def failed(why: str) -> None:
        if not written.done():
            written.set_exception(_not_kept(why))

    journal.when_durable(done, failed)
    await written


def _not_kept(why: str) -> Refusal:
    return Refusal(f"SubCode=50000. {why}", status=500)


async def _hang_up(request: web.Request, until: asyncio.Event | None) -> web.StreamResponse:
    if until is not None:
        # The client waits for as long as it likes, and we until that is over or the server closes.
        ends = [asyncio.ensure_future(event.wait()) for event in (until, request.app[_CLOSING])]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
    if request.transport is not None:
        request.transport.abort()
    # Nobody hears this: aiohttp wants something to send, and finds the connection gone.
    return web.Response()


async def _release(app: web.Application) -> None:
    app[_CLOSING].set()


_CODES = {401: "AuthenticationFailed", 403: "AuthorizationFailed", 404: "ResourceNotFound"}
"""What Resource Manager calls an error, where it does not go by the name of its status."""


def refused(path: str, refusal: Refusal) -> web.Response:
    """The answer to a request that was refused."""
    if is_resource_manager(path) or is_control(path):
        code = _CODES.get(refusal.status) or HTTPStatus(refusal.status).phrase.title().replace(" ", "")
        return web.json_response({"error": {"code": code, "message": refusal.description}}, status=refusal.status)
    # The service leaves this trail for its support. Ours says, to whoever finds it in a log, who wrote it.
    trail = (
        f"TrackingId:{uuid.uuid4()}_emulator, SystemTracker:{path.lstrip('/')}, "
        f"Timestamp:{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"
    )
    body = element("Error", text("Code", str(refusal.status)), text("Detail", f"{refusal.description} {trail}"))
    return web.Response(body=serialize(body), status=refusal.status, content_type="application/xml", charset="utf-8")


def _tone_down(record: logging.LogRecord) -> bool:
    """aiohttp calls a bad request an error and quotes it, its Authorization header included."""
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, HttpProcessingError):
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.msg, record.args = "a request was refused because it is not HTTP: %s", (type(problem).__name__,)
        record.exc_info = record.exc_text = None
        return log.isEnabledFor(logging.INFO)
    return True


log.addFilter(_tone_down)


class HttpServer:
    """The HTTP front of one namespace, as a factory of protocols for its listeners."""

    def __init__(self, namespace: BrokerNamespace) -> None:
        self._runner = web.AppRunner(build_app(namespace), access_log=None, logger=log, shutdown_timeout=0.5)

    async def start(self) -> Callable[[], asyncio.Protocol]:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # setup() has made it
        return server

    async def stop(self) -> None:
        await self._runner.cleanup()
