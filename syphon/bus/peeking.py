"""Peeking: a look at what lies in a queue, in whatever state, that locks nothing and changes nothing.

Messages come as bytes, a page at a time, and the next page is asked for when the last one is used up: a queue of any
depth takes the memory of one page. Locked messages are shown like any other active one (D4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

from syphon.amqp import Int, Long, Malformed, Map, Section, UInt, decode, split
from syphon.model import DestinationBusy, DestinationSilent, Interrupted, SyphonError, from_condition

from .connection import Connection, wait_for_traffic
from .links import NodeReply, RequestLink

PAGE = 250
"""How many messages Service Bus gives at once, at the most."""
FIRST_PAGE = 32
"""The first page is small: nobody knows yet how large the messages are."""
PAGE_BYTES = 1024 * 1024
"""About how many bytes a page should have."""
ANSWER_WITHIN = 30.0
TURN = 0.2
_SEQUENCE, _STATE = "x-opt-sequence-number", "x-opt-message-state"


class MessageState(IntEnum):
    """Where a message stands, by the numbers that Service Bus writes onto it."""

    ACTIVE = 0
    """It can be received, or is locked by somebody who has received it."""
    DEFERRED = 1
    SCHEDULED = 2


class Peeked(NamedTuple):
    """A message that was looked at."""

    payload: bytes
    sequence_number: int
    state: MessageState


def peek(
    connection: Connection,
    path: str,
    start: int = 1,
    *,
    most: int = PAGE,
    answer_within: float = ANSWER_WITHIN,
    busy_pause: float = DestinationBusy.retry_after,
) -> Iterator[Peeked]:
    """Every message of an entity from a sequence number on, in order, `most` to a page.

    Blocks, `answer_within` seconds a page; raises what stands in the way. A throttled namespace is given the time that
    it asks for (S5), once for each page: a deep queue is more than a Standard namespace answers in a second.
    """
    node = _Node(connection, path, answer_within)
    try:
        count = min(most, FIRST_PAGE)
        while page := _patiently(node, start, count, busy_pause):
            yield from page
            start = max(message.sequence_number for message in page) + 1
            size = max(len(message.payload) for message in page)
            count = min(most, PAGE, max(1, PAGE_BYTES // size))
    finally:
        node.close()


def _patiently(node: _Node, start: int, count: int, pause: float) -> list[Peeked]:
    try:
        return node.page(start, count)
    except DestinationBusy:
        node.rest(pause)
        return node.page(start, count)


class _Node:
    """The management node of one entity."""

    def __init__(self, connection: Connection, path: str, answer_within: float) -> None:
        self._connection = connection
        self._path = path
        self._answer_within = answer_within
        self._link: RequestLink | None = None
        self._reply: NodeReply | None = None

    def page(self, start: int, count: int) -> list[Peeked]:
        """Up to so many messages; none if there are none from there on."""
        link = self._open()
        self._reply = None
        link.ask(
            {
                "operation": "com.microsoft:peek-message",
                "com.microsoft:server-timeout": UInt(int(self._answer_within * 1000)),
            },
            Map.of({"from-sequence-number": Long(start), "message-count": Int(count)}),
            self._answered,
        )
        self._converse(lambda: self._reply is not None or link.error is not None)
        if self._reply is None:
            raise link.error or Interrupted()
        return _messages(self._reply, self._path)

    def rest(self, seconds: float) -> None:
        """Asks nothing for a while; the connection is kept alive."""
        now = self._connection.wire.now
        until = now() + seconds
        self._converse(lambda: now() >= until, seconds + TURN)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._connection.wire.flush()

    def _answered(self, reply: NodeReply) -> None:
        self._reply = reply

    def _open(self) -> RequestLink:
        if self._link is None:
            self._converse(lambda: self._connection.tokens.allow(self._path))
            self._link = RequestLink(self._connection.wire, f"{self._path}/$management")
        return self._link

    def _converse(self, done: Callable[[], bool], within: float | None = None) -> None:
        """Reads and writes until that is so."""
        wire = self._connection.wire
        deadline = wire.now() + (self._answer_within if within is None else within)
        while not done():
            if wire.failure is not None:
                raise wire.failure
            if wire.now() >= deadline:
                text = f"{wire.name}: '{self._path}' has not answered for {self._answer_within:.0f} seconds."
                raise DestinationSilent(text)
            wait_for_traffic([wire], TURN)
            self._connection.read()
            self._connection.tick()
            if self._link is not None:
                self._link.work()


def _messages(reply: NodeReply, path: str) -> list[Peeked]:
    if reply.status in (202, 204):
        return []
    if reply.status != 200:
        text = f"'{path}' cannot be peeked at: {reply.description} (status {reply.status})"
        raise from_condition(reply.condition, text) if reply.condition else SyphonError(text)
    found = reply.body.get("messages") if isinstance(reply.body, Map) else None
    payloads = [entry.get("message") for entry in found if isinstance(entry, Map)] if isinstance(found, list) else []
    return [stamped(payload) for payload in payloads if isinstance(payload, bytes)]


def stamped(payload: bytes) -> Peeked:
    """A message with what the broker wrote onto it: its place in the queue, and its state."""
    annotations = _annotations(payload)
    number, said = annotations.get(_SEQUENCE), annotations.get(_STATE)
    if not isinstance(number, int):
        raise SyphonError(f"A message of {len(payload)} bytes has no {_SEQUENCE}: its place in the queue is unknown.")
    # What is not said, or says nothing to us, counts as active: a queue must not be called empty for it.
    state = next((state for state in MessageState if state == said), MessageState.ACTIVE)
    return Peeked(payload, int(number), state)


def _annotations(payload: bytes) -> Map:
    """Read no further than that: what the sender wrote behind may be no AMQP at all."""
    try:
        for span in split(payload, until=Section.MESSAGE_ANNOTATIONS):
            if span.section == Section.MESSAGE_ANNOTATIONS:
                found = decode(payload, span.value, span.end)[0]
                return found if isinstance(found, Map) else Map()
    except Malformed:
        pass
    return Map()
