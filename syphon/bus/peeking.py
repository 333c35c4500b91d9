"""Peeking: reads the messages of a queue, in any state, without locking or changing them.

Messages come as bytes, in pages. The next page is requested when the last one is used up, so that a queue of any depth
needs the memory of one page. Locked messages are returned like other active ones (D4).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from syphon.amqp import Int, Long, Malformed, Map, Section, UInt, decode, split
from syphon.model import DestinationBusy, DestinationSilent, SyphonError, from_condition

from .connection import Connection
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
    peeker = Peeker(connection, path, most=most, answer_within=answer_within)
    try:
        while page := _wait_for_page(peeker, start, busy_pause):
            yield from page
            start = max(message.sequence_number for message in page) + 1
    finally:
        peeker.close()
        connection.wire.flush()


class Peeker:
    """Peeks at one entity without waiting: its owner asks for a page, and takes it in a later turn."""

    def __init__(
        self, connection: Connection, path: str, *, most: int = PAGE, answer_within: float = ANSWER_WITHIN
    ) -> None:
        self.connection = connection
        self.path = path
        self.is_waiting = False
        """Whether a page was asked for and not taken yet."""
        self.answer_within = answer_within
        self._most = most
        self._count = min(most, FIRST_PAGE)
        self._start = 1
        self._link: RequestLink | None = None
        self._is_asked = False
        self._requests = 0
        self._reply: ManagementReply | None = None

    def ask(self, start: int) -> None:
        """Asks for the next messages from a sequence number on."""
        self._start, self.is_waiting, self._is_asked, self._reply = start, True, False, None

    def take(self) -> list[Peeked] | None:
        """The page that was asked for, empty if there are no messages; None while there is no answer.

        To be called every turn. Raises if the entity cannot be peeked at, or the link was lost; the next page that is
        asked for uses a new link.
        """
        if not self.is_waiting:
            return None
        try:
            self._work()
            if self._reply is None:
                return None
            page = _messages(self._reply, self.path)
        except SyphonError:
            self.close()
            raise
        self.is_waiting, self._reply = False, None
        if page:
            size = max(len(message.payload) for message in page)
            self._count = min(self._most, PAGE, max(1, PAGE_BYTES // size))
        return page

    def close(self) -> None:
        link, self._link, self.is_waiting = self._link, None, False
        if link is not None:
            link.close()

    def _work(self) -> None:
        if self._link is not None and not self._is_asked and self._link.error is not None:
            self._link.close()  # lost while nothing was asked for: the service detaches idle links
            self._link = None
        if self._link is None:
            if not self.connection.tokens.allow(self.path):
                return
            self._link = RequestLink(self.connection.wire, f"{self.path}/$management")
        if not self._is_asked:
            self._is_asked = True
            self._requests += 1
            timeout = UInt(int(self.answer_within * 1000))
            self._link.ask(
                {"operation": "com.microsoft:peek-message", "com.microsoft:server-timeout": timeout},
                Map.of({"from-sequence-number": Long(self._start), "message-count": Int(self._count)}),
                partial(self._answered, self._requests),
            )
        self._link.work()
        if self._reply is None and self._link.error is not None:
            raise self._link.error

    def _answered(self, request: int, reply: ManagementReply) -> None:
        if request == self._requests:  # and not to one that its owner has dropped
            self._reply = reply

    def drop(self) -> None:
        """The owner no longer wants the page that it asked for."""
        self._requests += 1
        self.is_waiting, self._is_asked, self._reply = False, False, None


def _wait_for_page(peeker: Peeker, start: int, busy_pause: float) -> list[Peeked]:
    try:
        return _page(peeker, start)
    except DestinationBusy:
        now = peeker.connection.wire.now
        until = now() + busy_pause
        while now() < until:
            _turn(peeker)
        return _page(peeker, start)


def _page(peeker: Peeker, start: int) -> list[Peeked]:
    wire = peeker.connection.wire
    deadline = wire.now() + peeker.answer_within
    peeker.ask(start)
    while (page := peeker.take()) is None:
        if wire.now() >= deadline:
            text = f"{wire.name}: '{peeker.path}' has not answered for {peeker.answer_within:.0f} seconds."
            raise DestinationSilent(text)
        _turn(peeker)
    return page


def _turn(peeker: Peeker) -> None:
    """Reads and writes for a moment."""
    connection = peeker.connection
    if connection.wire.failure is not None:
        raise connection.wire.failure
    connection.wait(TURN)
    connection.read()
    connection.tick()


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
