"""One namespace's HTTP port: its administration API, Azure Resource Manager's, and the emulator's own controls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ..broker.faults import ConnectionDropped
from ..broker.refusals import EntityNotFound, Refusal
from .admin import Administration
from .arm import ResourceManager
from .control import add_control_routes
from .directory import Journal, Watched
from .errors import refused
from .paths import entity_of, is_control, is_resource_manager

if TYPE_CHECKING:
    from ..broker.namespace import Namespace

_CLOSING = web.AppKey("closing", asyncio.Event)
_WRITES = frozenset({"PUT", "POST", "PATCH", "DELETE"})


def build_app(namespace: Namespace) -> web.Application:
    """The application that answers on a namespace's HTTP port."""
    app = web.Application(middlewares=[_word_refusals, _watching(namespace)])
    app[_CLOSING] = asyncio.Event()
    app.on_shutdown.append(_let_go)
    administration = Administration(namespace)
    resource_manager = ResourceManager(namespace)

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


def _watching(namespace: Watched) -> Middleware:
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
                if is_write and namespace.journal.trouble is not None:
                    raise _not_kept(namespace.journal.trouble)
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


async def _let_go(app: web.Application) -> None:
    app[_CLOSING].set()
