"""Raw links on a wire: a receiver whose messages stay bytes, and a sender with many deliveries in flight.

A link reports events as values that its owner collects. It never waits, and makes no decisions.
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar

from syphon.amqp import (
    Described,
    Header,
    Map,
    Properties,
    Symbol,
    UInt,
    ULong,
    data_section,
    header_bytes,
    properties_bytes,
)
from syphon.amqp.frames import Attach, Error, Flow, Modified, Rejected, Released, Source, Target
from syphon.model import Interrupted, SyphonError, from_condition

from .wire_session import ACCEPTED, ACCEPTED_BYTES, Wire

T = TypeVar("T")

SENDER, RECEIVER = False, True
UNSETTLED, SECOND = 0, 1
BATCH_SIZE = "com.microsoft:max-message-batch-size"
RELEASED = Released().to_bytes()
DEFERRED = Modified(delivery_failed=True, undeliverable_here=True).to_bytes()
_OUTCOMES = {0x24: "accepted", 0x25: "rejected", 0x26: "released", 0x27: "modified"}


PING_TYPE = "application/vnd.ms-servicebus-ping"
"""The content type by which the service recognises a ping."""
PING_LIVES = 1000
"""The time to live of a ping, in milliseconds."""


class LinkState(Enum):
    """The states of a link."""

    ATTACHING = "attaching"
    OPEN = "open"
    LOST = "lost"


def unique_name() -> str:
    """A name that no other link or request has. It costs a fifth of a UUID."""
    return os.urandom(18).hex()


class RawLink:
    """The base of all raw links: a handle on a wire, and a state."""

    def __init__(self, wire: Wire, kind: str, path: str) -> None:
        self.wire = wire
        self.path = path
        self.state = LinkState.ATTACHING
        self.was_open = False
        self.error: SyphonError | None = None
        self.name = f"syphon-{kind}-{unique_name()}"
        self.handle = wire.add(self, self.name)
        self._since = wire.now()

    def on_attach(self, attach: Attach) -> None:
        # A refused attach comes without its terminus; the detach with the reason follows at once.
        if (attach.source if attach.role == SENDER else attach.target) is not None:
            self.state = LinkState.OPEN
            self.was_open = True

    def on_flow(self, flow: Flow) -> None:
        pass

    def on_message(self, delivery_id: int, tag: bytes, payload: bytes) -> None:
        pass

    def on_outcome(self, delivery_id: int, state: object) -> None:
        pass

    def lost(self, error: SyphonError) -> None:
        self.state = LinkState.LOST
        self.error = error

    def awaits_answer_since(self) -> float | None:
        return self._since if self.state is LinkState.ATTACHING else None

    def close(self) -> None:
        if self.state is not LinkState.LOST:
            self.wire.drop(self)
            self.lost(Interrupted("The link was closed."))


@dataclass(frozen=True, slots=True)
class Sent(Generic[T]):
    """The outcome of a delivery: accepted, or refused with an error. `unknown`: no answer came, or an empty one."""

    ticket: T
    error: SyphonError | None = None
    unknown: bool = False
    seconds: float = 0.0
    """Seconds from the sending to the answer."""


class RawSender(RawLink, Generic[T]):
    """Sends encoded messages and batches, many at a time. The owner recognises a delivery by its `ticket`."""

    def __init__(self, wire: Wire, path: str) -> None:
        super().__init__(wire, "sender", path)
        self.max_size = 0
        self.max_batch = 0
        self.results: deque[Sent[T]] = deque()
        self._credit = 0
        self._count = 0
        self._in_flight: dict[int, tuple[T, float]] = {}
        wire.send(Attach(self.name, self.handle, SENDER, UNSETTLED, 0, Source(self.name), Target(path), None, None, 0))

    def on_attach(self, attach: Attach) -> None:
        super().on_attach(attach)
        self.max_size = attach.max_message_size or 256 * 1024
        batch = attach.properties.get(BATCH_SIZE) if attach.properties is not None else None
        self.max_batch = min(self.max_size, int(batch)) if isinstance(batch, int) and batch > 0 else self.max_size

    def on_flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            self._credit = (flow.delivery_count or 0) + flow.link_credit - self._count

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def has_room(self) -> bool:
        return self.state is LinkState.OPEN and self._credit > 0

    def send(self, payload: bytes, message_format: int, ticket: T) -> None:
        self._credit -= 1
        self._count += 1
        delivery_id = self.wire.transfer(self, message_format, payload)
        self._in_flight[delivery_id] = ticket, self.wire.now()

    def on_outcome(self, delivery_id: int, state: object) -> None:
        if delivery_id not in self._in_flight:
            return  # the link was lost before the answer came
        ticket, since = self._in_flight.pop(delivery_id)
        error, took = outcome_error(state, "accepted"), self.wire.now() - since
        self.results.append(Sent(ticket, error, unknown=state is None, seconds=took))

    def lost(self, error: SyphonError) -> None:
        super().lost(error)
        for ticket, _ in self._in_flight.values():
            self.results.append(Sent(ticket, error, unknown=True))
        self._in_flight.clear()

    def awaits_answer_since(self) -> float | None:
        if self._in_flight:
            return next(iter(self._in_flight.values()))[1]
        return super().awaits_answer_since()


class SettlingLink(Protocol):
    """What settles the messages that it has received: a link, or the management node for deferred messages."""

    path: str

    @property
    def state(self) -> LinkState: ...

    def complete(self, arrival: Arrival) -> None: ...

    def release(self, arrival: Arrival) -> None: ...

    def defer(self, arrival: Arrival) -> None: ...

    def dead_letter(self, arrival: Arrival, reason: str, description: str) -> None: ...

    def settling_since(self, arrival: Arrival) -> float | None: ...


@dataclass(slots=True, eq=False)
class Arrival:
    """A message as it came from a backlog queue, locked for us. Only the link that received it can settle it."""

    link: SettlingLink
    delivery_id: int
    lock_token: bytes
    payload: bytes
    received_at: float
    locked_at: float
    """When the lock period last began: at the arrival, or at the last renewal."""
    renewal_asked_at: float = 0.0


class Settled(NamedTuple):
    """The service's answer to a settlement. `unknown`: none came before the link was lost, or in time."""

    arrival: Arrival
    outcome: str
    error: SyphonError | None = None
    unknown: bool = False


class RawReceiver(RawLink):
    """Receives messages as bytes, in peek-lock mode, and settles them in any order."""

    def __init__(self, wire: Wire, path: str) -> None:
        super().__init__(wire, "receiver", path)
        self.arrivals: deque[Arrival] = deque()
        self.settled: deque[Settled] = deque()
        self.credit = 0
        self.is_drained = True
        """No message is in flight to us, and none will be until credit is granted."""
        self._draining = False
        self._is_checking = False
        self._count = 0
        self._settling: dict[int, tuple[Arrival, str, float]] = {}
        self._abandoned: tuple[float, float] | None = None
        """When the oldest settlement that is no longer awaited was requested, and when it was abandoned."""
        wire.send(Attach(self.name, self.handle, RECEIVER, UNSETTLED, SECOND, Source(path), Target(self.name)))

    def on_attach(self, attach: Attach) -> None:
        super().on_attach(attach)
        self._count = attach.initial_delivery_count or 0

    def grant(self, credit: int) -> None:
        """Sets how many messages may come from now on. The number is absolute, so that two calls grant it once."""
        self.credit = credit
        self.is_drained = self._draining = self._is_checking = False
        self.wire.grant(self.handle, self._count, credit)

    def drain(self) -> None:
        """Takes the credit back. Messages in flight still come; then the peer confirms: `is_drained`."""
        if not self.is_drained and not self._draining:
            self.credit = 0
            self._draining = True
            self.wire.grant(self.handle, self._count, 0, drain=True)

    def check_credit(self) -> None:
        """Asks the peer how much credit is left. Messages that got lost on the way have used up theirs."""
        self._is_checking = True
        self.wire.ask_for_flow(self.handle, self._count)

    def on_flow(self, flow: Flow) -> None:
        if self._draining and flow.link_credit == 0:
            self.is_drained = True
        elif self._is_checking and flow.delivery_count is not None and flow.link_credit is not None:
            self._is_checking = False
            # Frames arrive in order: whatever the peer sent before this one has arrived, or never will.
            left = (flow.delivery_count + flow.link_credit - self._count) & 0xFFFFFFFF
            self.credit = min(self.credit, left if left < 0x80000000 else 0)

    def on_message(self, delivery_id: int, tag: bytes, payload: bytes) -> None:
        self._count = (self._count + 1) & 0xFFFFFFFF
        self.credit -= 1
        now = self.wire.now()
        self.arrivals.append(Arrival(self, delivery_id, tag, payload, now, now))

    def complete(self, arrival: Arrival) -> None:
        self._settle(arrival, "accepted", ACCEPTED_BYTES)

    def release(self, arrival: Arrival) -> None:
        """Releases the message to the queue, unchanged; its delivery count does not change."""
        self._settle(arrival, "released", RELEASED)

    def defer(self, arrival: Arrival) -> None:
        """Defers the message: from now on it is received by its sequence number only."""
        self._settle(arrival, "modified", DEFERRED)

    def dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        info = Map.symbols({"DeadLetterReason": reason, "DeadLetterErrorDescription": description})
        self._settle(arrival, "rejected", Rejected(Error("com.microsoft:dead-letter", description, info)).to_bytes())

    @property
    def settling(self) -> int:
        return len(self._settling)

    def settling_since(self, arrival: Arrival) -> float | None:
        """When the settlement of a message was requested, if it has no answer yet."""
        asked = self._settling.get(arrival.delivery_id)
        return None if asked is None else asked[2]

    def _settle(self, arrival: Arrival, outcome: str, state: bytes) -> None:
        self._settling[arrival.delivery_id] = arrival, outcome, self.wire.now()
        self.wire.settle(self, arrival.delivery_id, state)

    def stop_awaiting(self, requested_before: float) -> None:
        """Counts the settlements as unknown that were requested before then and have no answer.

        The peer still owes an answer until it says something: its silence did not begin now.
        """
        late = list(itertools.takewhile(lambda entry: entry[1][2] < requested_before, self._settling.items()))
        if late and self._silent_since() is None:
            self._abandoned = late[0][1][2], self.wire.now()
        for delivery_id, (arrival, outcome, _) in late:
            del self._settling[delivery_id]
            error = Interrupted("The service did not answer in time.")
            self.settled.append(Settled(arrival, outcome, error, unknown=True))

    def _silent_since(self) -> float | None:
        """When the oldest abandoned settlement was requested; None if the peer has spoken since we abandoned it."""
        if self._abandoned is None or self.wire.has_heard_since(self._abandoned[1]):
            return None
        return self._abandoned[0]

    def on_outcome(self, delivery_id: int, state: object) -> None:
        if delivery_id not in self._settling:
            return  # the answer came too late
        arrival, outcome, _ = self._settling.pop(delivery_id)
        self.settled.append(Settled(arrival, outcome, outcome_error(state, outcome)))

    def lost(self, error: SyphonError) -> None:
        super().lost(error)
        for arrival, outcome, _ in self._settling.values():
            self.settled.append(Settled(arrival, outcome, error, unknown=True))
        self._settling.clear()
        self.credit = 0
        self.is_drained = True

    def awaits_answer_since(self) -> float | None:
        if (silent_since := self._silent_since()) is not None:
            return silent_since
        if self._settling:
            return next(iter(self._settling.values()))[2]
        return super().awaits_answer_since()


def outcome_error(state: object, wanted: str) -> SyphonError | None:
    """None if a delivery state is the wanted outcome; otherwise the error that it means.

    A rejected outcome with an error in it is a refusal, even if we requested `rejected`.
    """
    if state is ACCEPTED and wanted == "accepted":
        return None
    if not isinstance(state, Described) or not isinstance(state.descriptor, ULong):
        return Interrupted("The service settled the delivery without an outcome.")
    fields = state.value if isinstance(state.value, list) else []
    name = _OUTCOMES.get(state.descriptor, "unknown")
    if name == "rejected" and fields and isinstance(fields[0], Described):
        details = fields[0].value
        parts = details if isinstance(details, list) else []
        condition = str(parts[0]) if parts else "amqp:internal-error"
        return from_condition(condition, str(parts[1] or "") if len(parts) > 1 else "")
    if name == wanted:
        return None
    return Interrupted(f"The service answered '{name}', not '{wanted}' as requested.")


def ping_payload() -> bytes:
    """An encoded ping: an empty message that shows whether an entity accepts messages, and is never delivered (F5).

    It has a session id because an entity with sessions requires one.
    """
    return (
        header_bytes(Header(ttl=UInt(PING_LIVES)))
        + properties_bytes(
            Properties(message_id=str(uuid.uuid4()), content_type=Symbol(PING_TYPE), group_id=str(uuid.uuid4()))
        )
        + data_section(b"")
    )
