"""The management node of an entity: requests and replies, and the deferred messages that only it can deliver.

No link delivers a deferred message. It is received by its sequence number and settled over this node, because a message
that came this way cannot be settled over a link. Requests to `$cbs` use the same kind of links.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from syphon.amqp import (
    Array,
    Long,
    Malformed,
    Map,
    Message,
    Properties,
    Section,
    UInt,
    Value,
    properties_bytes,
    section_bytes,
)
from syphon.amqp.frames import Attach, Source, Target
from syphon.model import Interrupted, LockLost, SyphonError, from_condition

from .links import RECEIVER, Arrival, LinkState, RawLink, RawSender, Settled, unique_name
from .wire_session import NoMoreLinks, Wire

LONGS, UUIDS = 0x81, 0x98
PEEK_LOCK = 1
"""The receiver-settle-mode in which a message is locked, and not deleted at once."""
TOKENS_PER_REQUEST = 100
"""Locks that one request is about, at most."""
NOT_FOUND = "com.microsoft:message-not-found"
_COMPLETED, _DEFERRED, _DEAD_LETTERED = "completed", "defered", "suspended"
"""The dispositions, as Service Bus spells them."""
_OUTCOMES = {_COMPLETED: "accepted", _DEFERRED: "modified", _DEAD_LETTERED: "rejected"}


@dataclass(frozen=True, slots=True)
class ManagementReply:
    """The answer of a node to a request: its status, and the message that has its body."""

    status: int
    description: str
    condition: str
    message: Message

    @property
    def body(self) -> Value:
        """The body, decoded now: few callers need it, and that of a peek is large. Raises Malformed."""
        return self.message.read(Section.VALUE)


class RequestLink:
    """Sends requests to a node ($cbs, or an entity's $management) and receives its replies."""

    def __init__(self, wire: Wire, node: str) -> None:
        self._replies = _ReplyLink(wire, node)
        try:
            self._requests: RawSender[str] = RawSender(wire, node)
        except NoMoreLinks:
            self._replies.close()
            raise
        self._queued: deque[bytes] = deque()

    @property
    def error(self) -> SyphonError | None:
        return self._replies.error or self._requests.error

    def ask(self, properties: dict[str, Value], body: Value, answered: Callable[[ManagementReply], None]) -> None:
        request_id = unique_name()
        self._replies.expect(request_id, answered)
        self._queued.append(
            properties_bytes(Properties(message_id=request_id, reply_to=self._replies.name))
            + section_bytes(Section.APPLICATION_PROPERTIES, Map.of(properties))
            + section_bytes(Section.VALUE, body)
        )
        self.work()

    def work(self) -> None:
        """Sends queued requests as soon as both links are open."""
        while self._queued and self._replies.state is LinkState.OPEN and self._requests.has_room():
            self._requests.send(self._queued.popleft(), 0, "")
        self._requests.results.clear()

    def close(self) -> None:
        self._requests.close()
        self._replies.close()


class ManagementLinks:
    """The management node of an entity, over one pair of links for all its users: a connection has few links."""

    def __init__(self, entity: str) -> None:
        self.entity = entity
        self._link: RequestLink | None = None

    def link(self, wire: Wire) -> RequestLink:
        """The links to it. New ones if the last ones were lost: the users of those see their `error`."""
        if self._link is None or self._link.error is not None:
            self.close()
            self._link = RequestLink(wire, f"{self.entity}/$management")
        return self._link

    def work(self) -> None:
        if self._link is not None:
            self._link.work()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class _ReplyLink(RawLink):
    """The link on which a node's replies arrive."""

    def __init__(self, wire: Wire, node: str) -> None:
        super().__init__(wire, "replies", node)
        self._expected: dict[str, tuple[Callable[[ManagementReply], None], float]] = {}
        self._count = 0
        wire.send(Attach(self.name, self.handle, RECEIVER, 1, 0, Source(node), Target(self.name)))

    def expect(self, request_id: str, answered: Callable[[ManagementReply], None]) -> None:
        self._expected[request_id] = answered, self.wire.now()

    def on_attach(self, attach: Attach) -> None:
        super().on_attach(attach)
        self._count = attach.initial_delivery_count or 0
        self.wire.grant(self.handle, self._count, 100)

    def on_message(self, delivery_id: int, tag: bytes, payload: bytes) -> None:  # noqa: ARG002  a reply is not settled
        message = Message(payload)
        self._count += 1
        self.wire.grant(self.handle, self._count, 100)
        answered, _ = self._expected.pop(str(message.properties().correlation_id), (None, 0.0))
        if answered is not None:
            answered(_reply(message))

    def awaits_answer_since(self) -> float | None:
        if self._expected:
            return next(iter(self._expected.values()))[1]
        return super().awaits_answer_since()


def _reply(message: Message) -> ManagementReply:
    properties = message.application_properties()
    status = properties.get("statusCode") if "statusCode" in properties else properties.get("status-code")
    text = properties.get("statusDescription") or properties.get("status-description") or ""
    condition = properties.get("errorCondition") or ""
    return ManagementReply(int(status) if isinstance(status, int) else 0, str(text), str(condition), message)


def lock_tokens(arrivals: Iterable[Arrival]) -> Array:
    """The lock tokens of messages, as requests about them carry these."""
    return Array(UUIDS, tuple(uuid.UUID(bytes_le=arrival.lock_token) for arrival in arrivals))


class DeferredReceiver:
    """Receives and settles deferred messages of one queue. To the owner of a message it is the message's link."""

    def __init__(self, node: ManagementLinks, wire: Wire) -> None:
        self.path = node.entity
        self.arrivals: deque[Arrival] = deque()
        self.settled: deque[Settled] = deque()
        self.refused: deque[tuple[Sequence[int], SyphonError]] = deque()
        """Numbers that could not be received now, and why."""
        self.requested = 0
        """How many messages were requested and have neither arrived nor turned out to be missing."""
        self._wire = wire
        self._link = node.link(wire)
        self._to_settle: dict[tuple[str, str, str], list[Arrival]] = {}
        """What to ask the node for at the next `flush`: by disposition, reason and description."""
        self._settling: dict[Arrival, tuple[str, float]] = {}

    @property
    def state(self) -> LinkState:
        return LinkState.OPEN if self._link.error is None else LinkState.LOST

    # --- receiving -----------------------------------------------------------------------------------------------

    def receive(self, numbers: Sequence[int]) -> None:
        """Asks for messages by their sequence numbers: of one partition, if the queue has partitions."""
        self.requested += len(numbers)
        self._ask_for(numbers)

    def _ask_for(self, numbers: Sequence[int]) -> None:
        body: dict[str, Value] = {
            "sequence-numbers": Array(LONGS, tuple(map(Long, numbers))),
            "receiver-settle-mode": UInt(PEEK_LOCK),
        }
        self._request("receive-by-sequence-number", body, partial(self._received, numbers, self._wire.now()))

    def _received(self, numbers: Sequence[int], asked_at: float, reply: ManagementReply) -> None:
        if reply.status != 200:
            self._not_received(numbers, reply)
            return
        self.requested -= len(numbers)
        try:
            entries = body.get("messages") if isinstance(body := reply.body, Map) else None
        except Malformed as error:
            self.refused.append((numbers, SyphonError(f"'{self.path}' answered with bytes that are not AMQP: {error}")))
            return
        now = self._wire.now()
        for entry in entries if isinstance(entries, list) else []:
            payload, token = (entry.get("message"), entry.get("lock-token")) if isinstance(entry, Map) else (None, None)
            if isinstance(payload, bytes) and isinstance(token, uuid.UUID):
                # Its lock began at the earliest when it was requested.
                self.arrivals.append(Arrival(self, 0, token.bytes_le, payload, now, asked_at))

    def _not_received(self, numbers: Sequence[int], reply: ManagementReply) -> None:
        """Requests halves: one message that is missing, expired or locked makes the service refuse all."""
        if reply.condition == NOT_FOUND and len(numbers) > 1:
            middle = len(numbers) // 2
            self._ask_for(numbers[:middle])
            self._ask_for(numbers[middle:])
            return
        self.requested -= len(numbers)
        if reply.condition != NOT_FOUND:
            self.refused.append((numbers, from_condition(reply.condition, reply.description)))

    # --- settling ------------------------------------------------------------------------------------------------

    def complete(self, arrival: Arrival) -> None:
        self._settle(arrival, _COMPLETED)

    def release(self, arrival: Arrival) -> None:
        """Releases the message: it stays deferred, and can be received again at once."""
        self.defer(arrival)

    def defer(self, arrival: Arrival) -> None:
        self._settle(arrival, _DEFERRED)

    def dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        self._settle(arrival, _DEAD_LETTERED, reason, description)

    def settling_since(self, arrival: Arrival) -> float | None:
        asked = self._settling.get(arrival)
        return None if asked is None else asked[1]

    def _settle(self, arrival: Arrival, disposition: str, reason: str = "", description: str = "") -> None:
        self._settling[arrival] = disposition, self._wire.now()
        self._to_settle.setdefault((disposition, reason, description), []).append(arrival)

    def flush(self) -> None:
        """Requests the settlements since the last time: many in one request. To be called every turn."""
        if self.state is LinkState.LOST:
            self._lose()
            return
        to_settle, self._to_settle = self._to_settle, {}
        for (disposition, reason, description), arrivals in to_settle.items():
            body: dict[str, Value] = {"disposition-status": disposition}
            if disposition == _DEAD_LETTERED:
                body |= {"deadletter-reason": reason, "deadletter-description": description}
            for start in range(0, len(arrivals), TOKENS_PER_REQUEST):
                self._ask_to_settle(body, arrivals[start : start + TOKENS_PER_REQUEST])

    def _ask_to_settle(self, body: dict[str, Value], arrivals: list[Arrival]) -> None:
        self._request(
            "update-disposition",
            {**body, "lock-tokens": lock_tokens(arrivals)},
            partial(self._answered, body, arrivals),
        )

    def _answered(self, body: dict[str, Value], arrivals: list[Arrival], reply: ManagementReply) -> None:
        error = None if reply.status == 200 else from_condition(reply.condition, reply.description)
        if isinstance(error, LockLost) and len(arrivals) > 1:  # one lost lock makes the service refuse all
            middle = len(arrivals) // 2
            self._ask_to_settle(body, arrivals[:middle])
            self._ask_to_settle(body, arrivals[middle:])
            return
        for arrival in arrivals:
            self._end_settling(arrival, error)

    def stop_awaiting(self, requested_before: float) -> None:
        """Counts the settlements as unknown that were requested before then and have no answer."""
        for arrival in [found for found, (_, asked_at) in self._settling.items() if asked_at < requested_before]:
            self._end_settling(arrival, Interrupted("The service did not answer in time."), unknown=True)

    def _lose(self) -> None:
        """Counts all that has no answer as unknown: the links were lost."""
        self.requested = 0
        self._to_settle.clear()
        for arrival in list(self._settling):
            self._end_settling(arrival, self._link.error, unknown=True)

    def _end_settling(self, arrival: Arrival, error: SyphonError | None, unknown: bool = False) -> None:
        asked = self._settling.pop(arrival, None)
        if asked is not None:  # else: the answer came too late
            self.settled.append(Settled(arrival, _OUTCOMES[asked[0]], error, unknown))

    def _request(self, operation: str, body: dict[str, Value], answered: Callable[[ManagementReply], None]) -> None:
        self._link.ask({"operation": f"com.microsoft:{operation}"}, Map.of(body), answered)
