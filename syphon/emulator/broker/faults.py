"""Faults on demand: what should go wrong, where, how often. Seeded, so that a bad day can be had again."""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum

from ..clock import EmulatorClock, Millis
from .refusals import NotAllowed, Refusal, ServerBusy, status_of


class Operation(StrEnum):
    """Where a fault can strike."""

    CONNECT = "connect"
    ATTACH = "attach"
    SEND = "send"
    RECEIVE = "receive"
    SETTLE = "settle"
    MANAGE = "manage"


class Action(StrEnum):
    """What then happens."""

    REFUSE = "refuse"
    """The operation is refused with `amqp:not-allowed`; a connection is refused by cutting it."""
    DROP = "drop"
    """The connection is cut, without a word."""
    HANG = "hang"
    """No answer, ever. A connection that hangs sends not one byte more."""
    DETACH = "detach"
    """The link is detached with the given condition (`amqp:link:detach-forced` unless told otherwise)."""
    DELAY = "delay"
    """It takes `seconds` longer."""
    ERROR = "error"
    """The operation is answered with the given condition."""
    LOSE_LOCK = "lose-lock"
    """The lock is lost just before the operation; that of a received message as soon as it is on its way."""
    LOSE_REPLY = "lose-reply"
    """It is carried out, but the answer never comes."""
    LOSE_REPLY_AND_DROP = "lose-reply-and-drop"
    """It is carried out, and the connection is cut instead of an answer."""


_EVERYWHERE = frozenset(Operation)
_ON_LINKS = _EVERYWHERE - {Operation.CONNECT}
_WITH_REPLIES = _ON_LINKS - {Operation.ATTACH}

APPLIES: dict[Action, frozenset[Operation]] = {
    Action.REFUSE: _EVERYWHERE,
    Action.DROP: _EVERYWHERE,
    Action.HANG: _EVERYWHERE,
    Action.DETACH: _ON_LINKS,
    Action.DELAY: _EVERYWHERE,
    Action.ERROR: _EVERYWHERE,
    Action.LOSE_LOCK: _WITH_REPLIES - {Operation.SEND},
    Action.LOSE_REPLY: _WITH_REPLIES,
    Action.LOSE_REPLY_AND_DROP: _WITH_REPLIES,
}
"""Which operations an action can happen to. A fault for any operation strikes only these."""


MessageIds = Callable[[], Collection[object]]
"""The ids of what an operation carries, to be read only if a fault asks for them."""


class BadFault(ValueError):
    """A fault that could not happen as it is described; the text begins with the name of the field."""


@dataclass(slots=True)
class Fault:
    """One thing that goes wrong. Without `times`, `share` or `period` it does so always, until it is cleared.

    `entity` is a path or a pattern (`orders*`), case aside. Connections belong to no entity: only `*` is about them.
    With a `message_id` it strikes only where that message is sent, alone or with others.
    """

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
    id: int = 0
    struck: int = field(default=0)
    until: Millis | None = None

    def __post_init__(self) -> None:
        if self.operation is not None and self.operation not in APPLIES[self.action]:
            able = ", ".join(operation for operation in Operation if operation in APPLIES[self.action])
            raise BadFault(f"action: {self.action} does not happen to {self.operation}, only to {able}")
        if self.condition is not None and not (self.condition and self.condition.isascii()):
            raise BadFault(f"condition: {self.condition!r} is not ASCII text such as amqp:internal-error")
        if not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise BadFault(f"seconds: {self.seconds} is not a length of time")
        if self.times is not None and self.times < 1:
            raise BadFault(f"times: {self.times} is not at least 1")
        if not 0 < self.share <= 1:
            raise BadFault(f"share: {self.share} is not above 0 and at most 1")
        if self.period is not None and not (math.isfinite(self.period) and self.period > 0):
            raise BadFault(f"period: {self.period} is not a length of time above 0")
        if self.message_id is not None and self.operation is not Operation.SEND:
            raise BadFault(f"message_id: {self.message_id!r} can be told by its id only where the operation is send")

    def refusal(self) -> Refusal:
        """The refusal this fault answers with."""
        if self.action is Action.REFUSE:
            return NotAllowed(self.description, self.condition)
        usual = "amqp:link:detach-forced" if self.action is Action.DETACH else "amqp:internal-error"
        condition = self.condition or usual
        return Refusal(self.description, condition, status_of(condition))

    def fits(self, operation: Operation, entity: str, message_ids: MessageIds) -> bool:
        if self.operation is None:
            happens = operation in APPLIES[self.action]
        else:
            happens = self.operation is operation
        if not happens or not fnmatch.fnmatchcase(entity.lower(), self.entity.lower()):
            return False
        return self.message_id is None or self.message_id in message_ids()


class Outage(StrEnum):
    """How a whole namespace can be away."""

    REFUSE = "refuse"
    """Connections are cut and new ones refused: nobody listens."""
    DROP = "drop"
    """Connections are cut, and new ones too as soon as they are made."""
    HANG = "hang"
    """Connections stay, and nothing comes out of them."""
    BUSY = "busy"
    """Everything is answered with server-busy."""


class ConnectionDropped(Exception):
    """A fault asks for the connection to be cut: now, or once it has been silent `until` something is over."""

    def __init__(self, until: asyncio.Event | None = None) -> None:
        super().__init__("the connection is to be dropped")
        self.until = until


class Throttle:
    """So many credits a second for the whole namespace; what goes beyond is refused as server-busy."""

    def __init__(self, credits_per_second: int, clock: EmulatorClock) -> None:
        self.credits_per_second = credits_per_second
        self._clock = clock
        self._second = 0
        self._spent = 0
        self._last_refusal: Millis = -1_000_000

    def spend(self, credits: int) -> bool:
        second = self._clock.now() // 1000
        if second != self._second:
            self._second, self._spent = second, 0
        if self._spent + credits > self.credits_per_second:
            self._last_refusal = self._clock.now()
            return False
        self._spent += credits
        return True

    def refused_recently(self) -> bool:
        """Whether something was refused within the last ten seconds: meanwhile message counts read 0."""
        return self._clock.now() - self._last_refusal < 10_000


MANAGEMENT_CREDITS = 10


class FaultInjector:
    """The faults of one namespace."""

    def __init__(self, clock: EmulatorClock, seed: int = 0) -> None:
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311  faults must be repeatable, not unguessable
        self._ids = itertools.count(1)
        self._faults: list[Fault] = []
        self.outage: Outage | None = None
        self._outage_over = asyncio.Event()
        self.throttle: Throttle | None = None
        self.on_outage: Callable[[Outage | None], None] = lambda outage: None  # noqa: ARG005

    def add(self, fault: Fault) -> int:
        """Arms a fault and gives it a number to clear it by."""
        fault.id = next(self._ids)
        fault.struck = 0
        if fault.period is not None:
            fault.until = self._clock.now() + round(fault.period * 1000)
        self._faults.append(fault)
        return fault.id

    def clear(self, fault_id: int | None = None) -> None:
        """Takes back one fault, or all of them."""
        self._faults = [fault for fault in self._faults if fault_id is not None and fault.id != fault_id]

    def armed(self) -> list[Fault]:
        now = self._clock.now()
        self._faults = [fault for fault in self._faults if fault.until is None or fault.until > now]
        return list(self._faults)

    def strike(self, operation: Operation, entity: str, message_ids: MessageIds = tuple) -> Fault | None:
        """The fault that hits this operation, if any; it has then struck once more."""
        if not self._faults:
            return None
        for fault in self.armed():
            happens = fault.fits(operation, entity, message_ids)
            if happens and (fault.share >= 1.0 or self._random.random() < fault.share):
                fault.struck += 1
                if fault.times is not None and fault.struck >= fault.times:
                    self._faults.remove(fault)
                return fault
        return None

    def begin_outage(self, outage: Outage) -> None:
        """The whole namespace is away from now on, in this way; another outage in its place ends it first."""
        self._change_outage(outage)

    def end_outage(self) -> None:
        """The namespace is back, on the same ports and with all it had."""
        self._change_outage(None)

    def _change_outage(self, outage: Outage | None) -> None:
        self.outage = outage
        self._outage_over.set()
        self._outage_over = asyncio.Event()
        self.on_outage(outage)

    def set_throttle(self, credits_per_second: int | None) -> None:
        self.throttle = None if credits_per_second is None else Throttle(credits_per_second, self._clock)

    def charge(self, credits: int) -> None:
        """Every operation pays; when nothing is left, or the namespace is busy by decree, it is refused."""
        if self.outage is Outage.BUSY or (self.throttle is not None and not self.throttle.spend(credits)):
            raise ServerBusy(
                "The request was terminated because the namespace is being throttled. Error code: 50009. "
                "Please wait 10 seconds and try again."
            )

    def hides_counts(self) -> bool:
        return self.throttle is not None and self.throttle.refused_recently()

    async def http(self, path: str) -> Fault | None:
        """The same for a request over HTTP: waits, raises a refusal, or asks for the connection to be dropped.

        A fault that is returned concerns the answer: see `after_http`.
        """
        if self.outage in (Outage.REFUSE, Outage.DROP):
            raise ConnectionDropped
        if self.outage is Outage.HANG:
            raise ConnectionDropped(until=self._outage_over)
        self.charge(MANAGEMENT_CREDITS)
        fault = self.strike(Operation.MANAGE, path)
        if fault is None or fault.action is Action.LOSE_LOCK:
            return None  # no request over HTTP has to do with a lock
        if fault.action is Action.DELAY:
            await self._delay(fault.seconds)
        elif fault.action is Action.HANG:
            raise ConnectionDropped(until=asyncio.Event())
        elif fault.action is Action.DROP:
            raise ConnectionDropped
        elif fault.action not in (Action.LOSE_REPLY, Action.LOSE_REPLY_AND_DROP):
            raise fault.refusal()
        return fault

    def after_http(self, fault: Fault | None) -> None:
        """What was asked is done; now its answer may be lost."""
        if fault is not None and fault.action is Action.LOSE_REPLY:
            raise ConnectionDropped(until=asyncio.Event())
        if fault is not None and fault.action is Action.LOSE_REPLY_AND_DROP:
            raise ConnectionDropped

    async def _delay(self, seconds: float) -> None:
        over = asyncio.Event()
        self._clock.call_at(self._clock.now() + round(seconds * 1000), over.set)
        await over.wait()
