"""Faults on demand: what fails, where, and how often. They are seeded, so that a run can be repeated."""

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
    """The operations that a fault can affect."""

    CONNECT = "connect"
    ATTACH = "attach"
    SEND = "send"
    RECEIVE = "receive"
    SETTLE = "settle"
    MANAGE = "manage"
    DISCHARGE = "discharge"
    """The end of a transaction. It belongs to the entity that the operations of the transaction belong to."""


class Action(StrEnum):
    """What a fault does."""

    REFUSE = "refuse"
    """The operation is refused with `amqp:not-allowed`; a connection is refused by cutting it."""
    DROP = "drop"
    """The connection is cut without an AMQP close."""
    HANG = "hang"
    """No answer ever comes. A connection that hangs sends nothing more."""
    DETACH = "detach"
    """The link is detached with the given condition (`amqp:link:detach-forced` unless a condition is given)."""
    DELAY = "delay"
    """The operation takes `seconds` longer."""
    ERROR = "error"
    """The operation is answered with the given condition."""
    LOSE_LOCK = "lose-lock"
    """The lock is lost just before the operation. A received message loses it as soon as it is sent."""
    LOSE_REPLY = "lose-reply"
    """The operation succeeds, but its answer never comes."""
    LOSE_REPLY_AND_DROP = "lose-reply-and-drop"
    """The operation succeeds, and the connection is cut instead of an answer."""


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
"""The operations that each action can affect. A fault without an operation affects only these."""


MessageIds = Callable[[], Collection[object]]
"""Reads the ids of the messages in an operation. Called only if a fault names a message id."""


class BadFault(ValueError):
    """The fault cannot happen as it is described. The text begins with the name of the field."""


@dataclass(slots=True)
class Fault:
    """One failure. Without `times`, `share` or `period` it happens every time, until it is cleared.

    `entity` is a path or a pattern (`orders*`) that ignores case. Connections belong to no entity: only `*` matches
    them. With a `message_id` the fault affects only a send with that message, alone or in a batch.
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
            raise BadFault(f"message_id: {self.message_id!r} can be used only where the operation is send")

    def refusal(self) -> Refusal:
        """The refusal that this fault causes."""
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
    """The ways in which a whole namespace can be unavailable."""

    REFUSE = "refuse"
    """Connections are cut, and the port refuses new ones."""
    DROP = "drop"
    """Connections are cut, and new ones as soon as they are made."""
    HANG = "hang"
    """Connections stay open, and the namespace sends nothing on them."""
    BUSY = "busy"
    """Every operation is answered with server-busy."""


class ConnectionDropped(Exception):
    """A fault asks to cut the connection: now, or after it was silent `until` an event."""

    def __init__(self, until: asyncio.Event | None = None) -> None:
        super().__init__("the connection is to be dropped")
        self.until = until


class Throttle:
    """Limits the credits per second of the whole namespace. Operations beyond the limit are refused as server-busy."""

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
        """Whether an operation was refused within the last ten seconds. In that time message counts read 0."""
        return self._clock.now() - self._last_refusal < 10_000


MANAGEMENT_CREDITS = 10


class FaultInjector:
    """The faults, the outage and the throttle of one namespace."""

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
        """Arms a fault and returns the number that clears it."""
        fault.id = next(self._ids)
        fault.struck = 0
        if fault.period is not None:
            fault.until = self._clock.now() + round(fault.period * 1000)
        self._faults.append(fault)
        return fault.id

    def clear(self, fault_id: int | None = None) -> None:
        """Clears one fault or all of them."""
        self._faults = [fault for fault in self._faults if fault_id is not None and fault.id != fault_id]

    def armed(self) -> list[Fault]:
        now = self._clock.now()
        self._faults = [fault for fault in self._faults if fault.until is None or fault.until > now]
        return list(self._faults)

    def strike(self, operation: Operation, entity: str, message_ids: MessageIds = tuple) -> Fault | None:
        """Returns the fault that affects this operation, if there is one, and counts it."""
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
        """Makes the whole namespace unavailable in this way. A running outage ends first."""
        self._change_outage(outage)

    def end_outage(self) -> None:
        """Makes the namespace available again, on the same ports and with everything it had."""
        self._change_outage(None)

    def _change_outage(self, outage: Outage | None) -> None:
        self.outage = outage
        self._outage_over.set()
        self._outage_over = asyncio.Event()
        self.on_outage(outage)

    def set_throttle(self, credits_per_second: int | None) -> None:
        self.throttle = None if credits_per_second is None else Throttle(credits_per_second, self._clock)

    def charge(self, credits: int) -> None:
        """Charges an operation. Refuses it when no credits are left or the outage is `busy`."""
        if self.outage is Outage.BUSY or (self.throttle is not None and not self.throttle.spend(credits)):
            raise ServerBusy(
                "The request was terminated because the namespace is being throttled. Error code: 50009. "
                "Please wait 10 seconds and try again."
            )

    def hides_counts(self) -> bool:
        return self.throttle is not None and self.throttle.refused_recently()

    async def http(self, path: str) -> Fault | None:
        """Applies faults to an HTTP request: delays it, refuses it, or raises `ConnectionDropped`.

        A returned fault affects the answer: pass it to `after_http`.
        """
        if self.outage in (Outage.REFUSE, Outage.DROP):
            raise ConnectionDropped
        if self.outage is Outage.HANG:
            raise ConnectionDropped(until=self._outage_over)
        self.charge(MANAGEMENT_CREDITS)
        fault = self.strike(Operation.MANAGE, path)
        if fault is None or fault.action is Action.LOSE_LOCK:
            return None  # no HTTP request uses a lock
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
        """Raises `ConnectionDropped` if the fault loses the answer of a request that has been carried out."""
        if fault is not None and fault.action is Action.LOSE_REPLY:
            raise ConnectionDropped(until=asyncio.Event())
        if fault is not None and fault.action is Action.LOSE_REPLY_AND_DROP:
            raise ConnectionDropped

    async def _delay(self, seconds: float) -> None:
        over = asyncio.Event()
        self._clock.call_at(self._clock.now() + round(seconds * 1000), over.set)
        await over.wait()
