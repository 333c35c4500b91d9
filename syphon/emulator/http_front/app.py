"""The HTTP application of a namespace: administration API, Azure Resource Manager, and the emulator's own routes."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from ..broker import ConnectionDropped, EntityNotFound, Journal, Refusal, VirtualHosts
from ..clock import MovableClock
from .admin import AdministrationApi
from .arm import ResourceManagerApi
from .control import Control, add_control_routes
from .page import page
from .requests import AdministrationPath, entity_of, is_control, is_health, is_page, is_resource_manager, namespace_of
from .xml_elements import element, serialize, text

log = logging.getLogger(__name__)

_CLOSING = web.AppKey("closing", asyncio.Event)
_WRITES = frozenset({"PUT", "POST", "PATCH", "DELETE"})


def build_app(hosts: VirtualHosts, clock: MovableClock, page_changes: bool = False) -> web.Application:
    """Builds the application that answers on the HTTP port of a namespace, and of those that are made like it. With
    `page_changes` its page may change something."""
    app = web.Application(middlewares=[_answer_refusals, _observe(hosts)])
    app[_CLOSING] = asyncio.Event()
    app.on_shutdown.append(_release)

    async def answer(request: web.Request) -> web.StreamResponse:
        if is_health(request):
            return web.json_response({"status": "healthy"})
        if is_page(request):
            return page(request)
        if is_control(request.path):
            raise EntityNotFound(f"{request.method} {request.path} is not one of the emulator's controls.")
        front = ResourceManagerApi if is_resource_manager(request.path) else AdministrationApi
        return await front(namespace_of(request, hosts)).answer(request)

    add_control_routes(app, lambda request: Control(namespace_of(request, hosts), hosts, clock, page_changes))
    # One route for all paths: entity names contain slashes, written as / or as %2F, and no pattern can match them.
    app.router.add_route("*", "/{path:.*}", answer)
    return app


@web.middleware
async def _answer_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers a refused request in the format of its API."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return refused(request.path, refusal)
    except web.HTTPException as problem:
        # aiohttp itself refuses some requests, for example a body that is too large.
        return refused(request.path, Refusal(problem.text or problem.reason, status=problem.status))


def _observe(hosts: VirtualHosts) -> Middleware:
    """Finds the namespace of each request, applies faults, counts it, and answers a change after it is on disk."""

    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_health(request) or is_page(request):
            return await handler(request)
        namespace = namespace_of(request, hosts)
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
        # The connection stays open until the event, or until the server closes.
        ends = [asyncio.ensure_future(event.wait()) for event in (until, request.app[_CLOSING])]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
    if request.transport is not None:
        request.transport.abort()
    # aiohttp needs a response, but the connection is closed and the client gets none.
    return web.Response()


async def _release(app: web.Application) -> None:
    app[_CLOSING].set()


_CODES = {401: "AuthenticationFailed", 403: "AuthorizationFailed", 404: "ResourceNotFound"}
"""Error codes of Resource Manager that differ from the name of the HTTP status."""


_SUB_CODES = {404: 40400, 409: 40900}
"""The sub-codes that the service writes before a refusal about a queue or topic; subscriptions and rules have none."""
_SUB_CODE = re.compile(r"SubCode=\d+\. ")


def refused(path: str, refusal: Refusal) -> web.Response:
    """The answer to a refused request: Service Bus writes XML, Resource Manager and the control routes JSON."""
    if is_control(path):
        return web.json_response({"error": refusal.description}, status=refusal.status)
    if is_resource_manager(path):
        code = _CODES.get(refusal.status) or HTTPStatus(refusal.status).phrase.title().replace(" ", "")
        return web.json_response({"error": {"code": code, "message": refusal.description}}, status=refusal.status)
    detail = refusal.description
    if AdministrationPath.of(path).topic is not None:
        detail = _SUB_CODE.sub("", detail, count=1)
    elif refusal.status in _SUB_CODES and not detail.startswith("SubCode="):
        detail = f"SubCode={_SUB_CODES[refusal.status]}. {detail}"
    # The service adds a tracking id for its support. Ours says in a log that the emulator wrote it.
    trail = (
        f"TrackingId:{uuid.uuid4()}_emulator, SystemTracker:{path.lstrip('/')}, "
        f"Timestamp:{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}"
    )
    body = element("Error", text("Code", str(refusal.status)), text("Detail", f"{detail} {trail}"))
    return web.Response(body=serialize(body), status=refusal.status, content_type="application/xml", charset="utf-8")


def _shorten_bad_request(record: logging.LogRecord) -> bool:
    """Logs a request that is not HTTP as information and without its bytes.

    aiohttp logs it as an error and quotes it, its Authorization header included, which may hold a key.
    """
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, HttpProcessingError):
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.msg, record.args = "a request was refused because it is not HTTP: %s", (type(problem).__name__,)
        record.exc_info = record.exc_text = None
        return log.isEnabledFor(logging.INFO)
    return True


log.addFilter(_shorten_bad_request)


class HttpServer:
    """The HTTP front of one namespace, as a factory of protocols for its listeners."""

    def __init__(self, hosts: VirtualHosts, clock: MovableClock, page_changes: bool) -> None:
        app = build_app(hosts, clock, page_changes)
        self._runner = web.AppRunner(app, access_log=None, logger=log, shutdown_timeout=0.5)

    async def start(self) -> Callable[[], asyncio.Protocol]:
        await self._runner.setup()
        server = self._runner.server
        assert server is not None  # setup() has made it
        return server

    async def stop(self) -> None:
        await self._runner.cleanup()
