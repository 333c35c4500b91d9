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
    """Count each request, let arranged faults happen to it first, and answer a change when it is written down."""

    @web.middleware
    async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
        if is_control(request.path):
            return await handler(request)
        is_write = request.method in _WRITES
        entity = entity_of(request.path)
        namespace.counters.add(entity, "manage")
        try:
            await namespace.faults.http(entity, is_write)
        except ConnectionDropped as dropped:
            return await _hang_up(request, dropped.silently)
        response = await handler(request)
        if is_write:
            await _durable(namespace.journal)
        return response

    return watch


async def _durable(journal: Journal) -> None:
    written = asyncio.get_running_loop().create_future()
    journal.when_durable(lambda: None if written.done() else written.set_result(None))
    await written


async def _hang_up(request: web.Request, silently: bool) -> web.StreamResponse:
    if silently:
        # The client waits for as long as it likes, and we until the server closes.
        await request.app[_CLOSING].wait()
    if request.transport is not None:
        request.transport.abort()
    # Nobody hears this: aiohttp wants something to send, and finds the connection gone.
    return web.Response()


async def _let_go(app: web.Application) -> None:
    app[_CLOSING].set()
