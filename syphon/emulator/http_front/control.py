"""The emulator's own routes under /$emulator/: counters, faults, outages. They also work during an outage."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..broker import (
    FRAGMENTS,
    Action,
    BadArgument,
    BadFault,
    BrokerNamespace,
    EntityNotFound,
    Fault,
    Operation,
    Outage,
    Refusal,
    Unauthorized,
)

Handler = Callable[[web.Request], Awaitable[web.Response]]
B = TypeVar("B", bound=BaseModel)
PREFIX = "/$emulator"


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FaultBody(_Body):
    """A fault as a client posts it. `Fault` itself checks the values."""

    action: Action
    operation: Operation | None = None
    entity: str = "*"
    condition: str | None = None
    description: str = "A fault was set on this emulator."
    seconds: float = 0.0
    times: int | None = None
    share: float = 1.0
    period: float | None = None
    message_id: str | None = None


class OutageBody(_Body):
    kind: Outage = Outage.REFUSE


class ThrottleBody(_Body):
    credits_per_second: int = Field(ge=0)


class QuotaBody(_Body):
    entity: str
    bytes: int | None = Field(None, ge=0)


class FragmentsBody(_Body):
    entity: str
    down: list[int]


def add_control_routes(app: web.Application, namespace: BrokerNamespace) -> None:
    """Adds the control routes to the application."""
    control = Control(namespace)
    routes: list[tuple[str, str, Handler]] = [
        ("GET", "/health", control.health),
        ("GET", "/counters", control.counters),
        ("DELETE", "/counters", control.reset_counters),
        ("GET", "/faults", control.list_faults),
        ("POST", "/faults", control.add_fault),
        ("DELETE", "/faults", control.clear_faults),
        ("DELETE", "/faults/{id:[0-9]{1,18}}", control.clear_fault),
        ("PUT", "/outage", control.begin_outage),
        ("DELETE", "/outage", control.end_outage),
        ("PUT", "/throttle", control.throttle),
        ("DELETE", "/throttle", control.end_throttle),
        ("PUT", "/quota", control.set_quota),
        ("PUT", "/fragments", control.set_fragments),
    ]
    for method, path, handler in routes:
        app.router.add_route(method, PREFIX + path, _guarded(handler))


def _guarded(handler: Handler) -> Handler:
    """Answers refusals as JSON, and refuses web pages: a browser sends an Origin header, scripts and tests do not."""

    async def guarded(request: web.Request) -> web.Response:
        try:
            if "Origin" in request.headers:
                raise Unauthorized("The control routes are not for web pages.", status=403)
            return await handler(request)
        except Refusal as refusal:
            return web.json_response({"error": refusal.description}, status=refusal.status)

    return guarded


async def _read(request: web.Request, model: type[B]) -> B:
    try:
        return model.model_validate_json(await request.read() or b"{}")
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'the body'}: {problem['msg']}" for problem in error.errors()
        )
        raise BadArgument(problems) from None


class Control:
    """The handlers of the control routes of one namespace."""

    def __init__(self, namespace: BrokerNamespace) -> None:
        self._namespace = namespace
        self._faults = namespace.faults

    async def health(self, request: web.Request) -> web.Response:  # noqa: ARG002  all handlers have one signature
        outage = self._faults.outage
        return web.json_response({"namespace": self._namespace.name, "outage": outage.value if outage else None})

    async def counters(self, request: web.Request) -> web.Response:  # noqa: ARG002
        counters = self._namespace.counters
        return web.json_response({"totals": counters.totals(), "entities": counters.by_entity()})

    async def reset_counters(self, request: web.Request) -> web.Response:  # noqa: ARG002
        self._namespace.counters.reset()
        return web.json_response({})

    async def list_faults(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"faults": [_shown(fault) for fault in self._faults.armed()]})

    async def add_fault(self, request: web.Request) -> web.Response:
        body = await _read(request, FaultBody)
        try:
            fault = Fault(**body.model_dump())
        except BadFault as error:
            raise BadArgument(str(error)) from None
        self._faults.add(fault)
        return web.json_response(_shown(fault), status=201)

    async def clear_faults(self, request: web.Request) -> web.Response:  # noqa: ARG002
        self._faults.clear()
        return web.json_response({})

    async def clear_fault(self, request: web.Request) -> web.Response:
        number = int(request.match_info["id"])
        if number not in {fault.id for fault in self._faults.armed()}:
            raise EntityNotFound(f"There is no fault {number}.")
        self._faults.clear(number)
        return web.json_response({})

    async def begin_outage(self, request: web.Request) -> web.Response:
        body = await _read(request, OutageBody)
        self._faults.begin_outage(body.kind)
        return web.json_response({"outage": body.kind.value})

    async def end_outage(self, request: web.Request) -> web.Response:  # noqa: ARG002
        self._faults.end_outage()
        return web.json_response({"outage": None})

    async def throttle(self, request: web.Request) -> web.Response:
        body = await _read(request, ThrottleBody)
        self._faults.set_throttle(body.credits_per_second)
        return web.json_response({"credits_per_second": body.credits_per_second})

    async def end_throttle(self, request: web.Request) -> web.Response:  # noqa: ARG002
        self._faults.set_throttle(None)
        return web.json_response({"credits_per_second": None})

    async def set_quota(self, request: web.Request) -> web.Response:
        body = await _read(request, QuotaBody)
        self._namespace.entity(body.entity).quota_bytes = body.bytes
        return web.json_response({"entity": body.entity, "bytes": body.bytes})

    async def set_fragments(self, request: web.Request) -> web.Response:
        body = await _read(request, FragmentsBody)
        if not all(0 <= fragment < FRAGMENTS for fragment in body.down):
            raise BadArgument(f"down: fragments are numbered 0 to {FRAGMENTS - 1}")
        self._namespace.set_fragments_down(body.entity, set(body.down))
        return web.json_response({"entity": body.entity, "down": sorted(body.down)})


def _shown(fault: Fault) -> dict[str, Any]:
    return dataclasses.asdict(fault)
