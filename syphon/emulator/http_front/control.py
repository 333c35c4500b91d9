"""The emulator's own routes under /$emulator/: counters, faults, outages, the clock, entities and messages.

They also work during an outage. They need no token, and any local user can reach them: so reading messages needs a
key, and so does every change that a page makes.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from syphon.yaml_settings import Between, Duration

from ..broker import (
    FRAGMENTS,
    Action,
    BadArgument,
    BadFault,
    BrokerNamespace,
    Claim,
    EntityNotFound,
    Fault,
    Operation,
    Outage,
    Refusal,
    Unauthorized,
    VirtualHosts,
)
from ..clock import MovableClock
from . import page
from .requests import basic_credentials

Handler = Callable[["Control", web.Request], Awaitable[web.Response]]
B = TypeVar("B", bound=BaseModel)
PREFIX = "/$emulator"
MOST_MESSAGES = 100
"""The most messages of one answer."""


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


class ClockBody(_Body):
    advance: Annotated[Duration, Between("1ms", "3650d")]


def add_control_routes(app: web.Application, control: Callable[[web.Request], Control]) -> None:
    """Adds the control routes to the application; `control` has those of the namespace that a request is for."""
    routes: list[tuple[str, str, Handler]] = [
        ("GET", "/health", Control.health),
        ("GET", "/counters", Control.counters),
        ("DELETE", "/counters", Control.reset_counters),
        ("GET", "/faults", Control.list_faults),
        ("POST", "/faults", Control.add_fault),
        ("DELETE", "/faults", Control.clear_faults),
        ("DELETE", "/faults/{id:[0-9]{1,18}}", Control.clear_fault),
        ("PUT", "/outage", Control.begin_outage),
        ("DELETE", "/outage", Control.end_outage),
        ("PUT", "/throttle", Control.throttle),
        ("DELETE", "/throttle", Control.end_throttle),
        ("PUT", "/quota", Control.set_quota),
        ("PUT", "/fragments", Control.set_fragments),
        ("GET", "/clock", Control.clock),
        ("POST", "/clock", Control.advance_clock),
        ("GET", "/entities", Control.entities),
        ("GET", "/messages", Control.messages),
        ("GET", "/namespaces", Control.namespaces),
        ("DELETE", "/namespaces/{name}", Control.delete_namespace),
    ]

    for method, path, handler in routes:
        app.router.add_route(method, PREFIX + path, _guarded(handler, control))


def _guarded(
    handler: Handler, control: Callable[[web.Request], Control]
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Refuses pages of others, and answers refusals as JSON."""

    async def guarded(request: web.Request) -> web.Response:
        try:
            controls = control(request)
            controls.check_page(request)
            return await handler(controls, request)
        except Refusal as refusal:
            return web.json_response({"error": refusal.description}, status=refusal.status)

    return guarded


async def _read(request: web.Request, model: type[B]) -> B:
    try:
        return model.model_validate_json(
            await request.read() or b"{}", context={"from_file": True}
        )  # durations have units
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'the body'}: {problem['msg']}" for problem in error.errors()
        )
        raise BadArgument(problems) from None


class Control:
    """The handlers of the control routes of one namespace."""

    def __init__(
        self, namespace: BrokerNamespace, hosts: VirtualHosts, clock: MovableClock, page_changes: bool
    ) -> None:
        """With `page_changes` the page of the namespace may change something."""
        self._namespace = namespace
        self._hosts = hosts
        self._clock = clock
        self._page_changes = page_changes
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
        try:
            self._faults.end_outage()
        except OSError as error:  # another program has taken the port that refused connections
            text = f"The AMQP port cannot be opened: {error.strerror}. Free it, and end the outage again."
            return web.json_response({"error": text}, status=503)
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

    async def namespaces(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.json_response({"namespaces": self._hosts.names()})

    async def delete_namespace(self, request: web.Request) -> web.Response:
        self._hosts.delete(request.match_info["name"])
        return web.json_response({})

    # --- the clock and what there is -------------------------------------------------------------------------------

    async def clock(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return self._time()

    async def advance_clock(self, request: web.Request) -> web.Response:
        body = await _read(request, ClockBody)
        self._clock.advance(body.advance / 1000)
        return self._time()

    def _time(self) -> web.Response:
        now = self._clock.now()
        return web.json_response({"now": page.iso(now), "ahead_seconds": round(now / 1000 - time.time(), 1)})

    async def entities(self, request: web.Request) -> web.Response:  # noqa: ARG002
        found = list(page.entities(self._namespace))
        return web.json_response(
            {"namespace": self._namespace.name, "page_changes": self._page_changes, "entities": found}
        )

    async def messages(self, request: web.Request) -> web.Response:
        """Peeks at the messages of a queue, a subscription or their dead letters. No counter counts it."""
        path = request.query.get("entity", "").strip("/")
        page.check_host(request)
        self.authorize(request, path, Claim.LISTEN)
        queue = self._namespace.message_queue(path)
        start, most = (self._number(request, name, default) for name, default in (("from", 0), ("most", 20)))
        found = queue.peek(start, min(most, MOST_MESSAGES) + 1)
        more = found.pop().sequence if len(found) > min(most, MOST_MESSAGES) else None
        now = self._namespace.clock.now()
        return web.json_response({"messages": [page.shown(message, now) for message in found], "following": more})

    @staticmethod
    def _number(request: web.Request, name: str, default: int) -> int:
        given = request.query.get(name, str(default))
        if not (given.isascii() and given.isdecimal() and len(given) < 20):
            raise BadArgument(f"{name} is '{given:.50}': give a whole number.")
        return int(given)

    def check_page(self, request: web.Request) -> None:
        """Refuses pages of others: a browser sends an Origin header with every change, scripts and tests do not."""
        origin = request.headers.get("Origin")
        if origin is None:
            return
        if origin not in (f"http://{request.host}", f"https://{request.host}"):
            raise Unauthorized("The control routes are not for web pages.", status=403)
        if not self._page_changes:
            raise Unauthorized("The page may change nothing: start the emulator with --page-changes.", status=403)
        page.check_host(request)
        self.authorize(request, "", Claim.MANAGE)

    def authorize(self, request: web.Request, path: str, claim: Claim) -> None:
        """Refuses a request without the name and key of a policy (Basic) or a shared access signature."""
        header = request.headers.get("Authorization", "")
        credentials = basic_credentials(header)
        if credentials is None:
            self._namespace.authorize_http(header or None, path, claim)
        else:
            self._namespace.authorize([self._namespace.access.plain(*credentials)], path, claim)


def _shown(fault: Fault) -> dict[str, Any]:
    return dataclasses.asdict(fault)
