"""Peeking: reads the messages of a queue, in any state, without locking or changing them.

Messages come as bytes, in pages. The next page is requested when the last one is used up, so that a queue of any depth
needs the memory of one page. Locked messages are returned like other active ones (D4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import NamedTuple

from syphon.amqp import Int, Long, Malformed, Map, Section, UInt, decode, split
from syphon.model import DestinationBusy, DestinationSilent, Interrupted, SyphonError, from_condition

from .connection import Connection, wait_for_traffic
from .links import ManagementReply, RequestLink

PAGE = 250
"""The most messages that Service Bus returns at once."""
FIRST_PAGE = 32
"""The first page is small, because the size of the messages is not known yet."""
PAGE_BYTES = 1024 * 1024
"""The approximate size of a page."""
ANSWER_WITHIN = 30.0
TURN = 0.2
_SEQUENCE, _STATE = "x-opt-sequence-number", "x-opt-message-state"


class MessageState(IntEnum):
    """The state of a message, by the numbers that Service Bus annotates it with."""

    ACTIVE = 0
    """The message can be received, or a receiver has it locked."""
    DEFERRED = 1
    SCHEDULED = 2


class Peeked(NamedTuple):
    """A message that was peeked at."""

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

    Blocks for up to `answer_within` seconds a page; raises if the entity cannot be peeked at. If the namespace is
    throttled, it waits as long as Service Bus asks for (S5), once for each page: a deep queue has more messages than a
    Standard namespace returns in a second.
    """
    node = _Node(connection, path, answer_within)
    try:
        count = min(most, FIRST_PAGE)
        while page := _page(node, start, count, busy_pause):
            yield from page
            start = max(message.sequence_number for message in page) + 1
            size = max(len(message.payload) for message in page)
            count = min(most, PAGE, max(1, PAGE_BYTES // size))
    finally:
        node.close()


def _page(node: _Node, start: int, count: int, pause: float) -> list[Peeked]:
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
        self._reply: ManagementReply | None = None

    def page(self, start: int, count: int) -> list[Peeked]:
        """Up to `count` messages; an empty list if there are none from `start` on."""
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
        """Sends no request for a while, and keeps the connection alive."""
        now = self._connection.wire.now
        until = now() + seconds
        self._converse(lambda: now() >= until, seconds + TURN)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._connection.wire.flush()

    def _answered(self, reply: ManagementReply) -> None:
        self._reply = reply

    def _open(self) -> RequestLink:
        if self._link is None:
            self._converse(lambda: self._connection.tokens.allow(self._path))
            self._link = RequestLink(self._connection.wire, f"{self._path}/$management")
        return self._link

    def _converse(self, done: Callable[[], bool], within: float | None = None) -> None:
        """Reads and writes until `done` returns true."""
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


def _messages(reply: ManagementReply, path: str) -> list[Peeked]:
    if reply.status in (202, 204):
        return []
    if reply.status != 200:
        text = f"'{path}' cannot be peeked at: {reply.description} (status {reply.status})"
        raise from_condition(reply.condition, text) if reply.condition else SyphonError(text)
    entries = reply.body.get("messages") if isinstance(reply.body, Map) else None
    payloads = (
        [entry.get("message") for entry in entries if isinstance(entry, Map)] if isinstance(entries, list) else []
    )
    return [stamped(payload) for payload in payloads if isinstance(payload, bytes)]


def stamped(payload: bytes) -> Peeked:
    """A message with two annotations of the broker: its sequence number and its state."""
    annotations = _annotations(payload)
    number, code = annotations.get(_SEQUENCE), annotations.get(_STATE)
    if not isinstance(number, int):
        raise SyphonError(f"A message of {len(payload)} bytes has no {_SEQUENCE}: its place in the queue is unknown.")
    # A missing or unknown state counts as active: the queue must not be reported as empty because of it.
    state = next((state for state in MessageState if state == code), MessageState.ACTIVE)
    return Peeked(payload, int(number), state)


def _annotations(payload: bytes) -> Map:
    """Reads no further than the annotations: the sections after them may not be AMQP at all."""
    try:
        for span in split(payload, until=Section.MESSAGE_ANNOTATIONS):
            if span.section == Section.MESSAGE_ANNOTATIONS:
                found = decode(payload, span.value, span.end)[0]
                return found if isinstance(found, Map) else Map()
    except Malformed:
        pass
    return Map()
