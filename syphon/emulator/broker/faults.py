"""Faults on demand: what should go wrong, where, how often. Seeded, so that a bad day can be had again."""

from __future__ import annotations

import asyncio
import fnmatch
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from ..clock import Clock, Millis
from .refusals import NotAllowed, Refusal, ServerBusy


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
    """The operation is refused with `amqp:not-allowed`; a connection is refused by closing it."""
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
    """The lock is lost just before the operation."""
    LOSE_REPLY = "lose-reply"
    """It is carried out, but the answer never comes."""
    LOSE_REPLY_AND_DROP = "lose-reply-and-drop"
    """It is carried out, and the connection is cut instead of an answer."""


@dataclass(slots=True)
class Fault:
    """One thing that goes wrong. Without `times`, `share` or `period` it does so always, until it is cleared."""

    action: Action
    operation: Operation | None = None
    entity: str = "*"
    condition: str | None = None
    description: str = "A fault was set on this emulator."
    seconds: float = 0.0
    times: int | None = None
    share: float = 1.0
    period: float | None = None
    id: int = 0
    struck: int = field(default=0)
    until: Millis | None = None

    def refusal(self) -> Refusal:
        """The refusal this fault answers with."""
        if self.action is Action.ERROR:
            return Refusal(self.description, self.condition or "amqp:internal-error", 500)
        if self.action is Action.DETACH:
            return Refusal(self.description, self.condition or "amqp:link:detach-forced", 503)
        return NotAllowed(self.description, self.condition)

    def fits(self, operation: Operation, entity: str) -> bool:
        return (self.operation is None or self.operation is operation) and fnmatch.fnmatchcase(
            entity.lower(), self.entity.lower()
        )


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
    """A fault asks for the connection to be cut, or (`silently`) to stay without an answer."""

    def __init__(self, silently: bool = False) -> None:
        super().__init__("the connection is to be dropped")
        self.silently = silently


class Throttle:
    """So many credits a second for the whole namespace; what goes beyond is refused as server-busy."""

    def __init__(self, credits_per_second: int, clock: Clock) -> None:
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

    def is_biting(self) -> bool:
        """Whether something was refused within the last ten seconds: meanwhile message counts read 0."""
        return self._clock.now() - self._last_refusal < 10_000


MANAGEMENT_CREDITS = 10


class Faults:
    """The faults of one namespace."""

    def __init__(self, clock: Clock, seed: int = 0) -> None:
        self._clock = clock
        self._random = random.Random(seed)  # noqa: S311  faults must be repeatable, not unguessable
        self._ids = itertools.count(1)
        self._faults: list[Fault] = []
        self.outage: Outage | None = None
        self.throttle: Throttle | None = None
        self.on_outage: Callable[[Outage | None], None] = lambda outage: None  # noqa: ARG005

    def add(self, fault: Fault) -> int:
        """Arms a fault and gives it a number to clear it by."""
        fault.id = next(self._ids)
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

    def strike(self, operation: Operation, entity: str) -> Fault | None:
        """The fault that hits this operation, if any; it has then struck once more."""
        if not self._faults:
            return None
        for fault in self.armed():
            if fault.fits(operation, entity) and (fault.share >= 1.0 or self._random.random() < fault.share):
                fault.struck += 1
                if fault.times is not None and fault.struck >= fault.times:
                    self._faults.remove(fault)
                return fault
        return None

    def begin_outage(self, outage: Outage) -> None:
        self.outage = outage
        self.on_outage(outage)

    def end_outage(self) -> None:
        self.outage = None
        self.on_outage(None)

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
        return self.throttle is not None and self.throttle.is_biting()

    async def http(self, path: str, is_write: bool) -> None:  # noqa: ARG002  a fault does not ask what it breaks
        """The same for a request over HTTP: waits, raises a refusal, or asks for the connection to be dropped."""
        if self.outage in (Outage.REFUSE, Outage.DROP):
            raise ConnectionDropped
        if self.outage is Outage.HANG:
            raise ConnectionDropped(silently=True)
        self.charge(MANAGEMENT_CREDITS)
        fault = self.strike(Operation.MANAGE, path)
        if fault is None:
            return
        if fault.action is Action.DELAY:
            await asyncio.sleep(fault.seconds)
        elif fault.action is Action.HANG:
            raise ConnectionDropped(silently=True)
        elif fault.action in (Action.DROP, Action.LOSE_REPLY, Action.LOSE_REPLY_AND_DROP):
            raise ConnectionDropped
        else:
            raise fault.refusal()
