"""Peeking: reads the messages of a queue, in any state, without locking or changing them.

Messages come as bytes, in pages. The next page is requested when the last one is used up, so that a queue of any depth
needs the memory of one page. Locked messages are returned like other active ones (D4).

A partitioned entity numbers the messages of each partition separately, with the partition in the upper 16 bits of the
number. Service Bus documents that repeated peeks enumerate all messages from the lowest number to the highest, and that
a page may be short although there are more. Whether it interleaves partitions is not documented. So a walk continues
after the *last* message of a page, not after the highest number, ends with an empty page only, and returns no message
twice (`_Walk`).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from syphon.amqp import Int, Long, Malformed, Map, Section, UInt, Value, decode, split
from syphon.amqp.section_edit import extract, keys
from syphon.model import DestinationBusy, DestinationSilent, SyphonError, from_condition
from syphon.time_budget import PAGE_WITHIN, PEEK_TURN

from .connection import Connection
from .management_node import ManagementLinks, ManagementReply, RequestLink

PAGE = 250
"""The most messages that Service Bus returns at once."""
FIRST_PAGE = 32
"""The first page is small, because the size of the messages is not known yet."""
PAGE_BYTES = 1024 * 1024
"""The approximate size of a page."""
FIRST_OF_PARTITION = 1 << 48
"""From here on a sequence number has the partition of a partitioned entity in its upper 16 bits."""
_SEQUENCE, _STATE = "x-opt-sequence-number", "x-opt-message-state"
_KEYS = keys((_SEQUENCE, _STATE))


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
    first: int = FIRST_PAGE,
    answer_within: float = PAGE_WITHIN,
    busy_delay: float = DestinationBusy.retry_after,
) -> Iterator[Peeked]:
    """Every message of an entity from a sequence number on, each once, in the service's order, `most` to a page.

    The first page has at most `first`: each message of a page costs a credit, also if the caller needs one only.

    Blocks for up to `answer_within` seconds a page; raises if the entity cannot be peeked at. If the namespace is
    throttled, it waits as long as Service Bus asks for (S5), twice for each page, and asks for smaller pages from then
    on: a deep queue has more messages than a Standard namespace returns per second.
    """
    pages = peek_pages(
        connection,
        path,
        start,
        most=most,
        first=first,
        answer_within=answer_within,
        busy_delay=busy_delay,
        ahead=False,
    )
    with closing(pages):
        for page in pages:
            yield from page


def peek_pages(
    connection: Connection,
    path: str,
    start: int = 1,
    *,
    stop: int | None = None,
    most: int = PAGE,
    first: int = FIRST_PAGE,
    answer_within: float = PAGE_WITHIN,
    busy_delay: float = DestinationBusy.retry_after,
    ahead: bool = True,
) -> Generator[list[Peeked], None, None]:
    """The same in pages, up to and including the sequence number `stop`.

    With `ahead`, the next page is requested before the caller gets this one: the service makes it while the caller
    works. A caller that stops early has then wasted the peek of one page.
    """
    peeker = Peeker(connection, path, most=most, first=first, answer_within=answer_within)
    walk = _Walk()
    try:
        while stop is None or start <= stop:
            answer = _wait_for_page(peeker, start, busy_delay, stop)
            page = walk.unseen(answer)
            if not page:
                return
            start = answer[-1].sequence_number + 1
            if stop is not None and start > stop:
                page = [message for message in page if message.sequence_number <= stop]
            elif ahead:
                _ask_ahead(peeker, start, stop)
            if page:
                yield page
    finally:
        peeker.close()
        connection.wire.flush()


class _Walk:
    """The messages that a walk over an entity has returned: the highest number of each partition."""

    def __init__(self) -> None:
        self._highest: dict[int, int] = {}

    def unseen(self, page: list[Peeked]) -> list[Peeked]:
        """The messages of a page that the walk has not returned yet. Each partition answers in order."""
        new = []
        for message in page:
            partition = message.sequence_number // FIRST_OF_PARTITION
            if message.sequence_number > self._highest.get(partition, -1):
                self._highest[partition] = message.sequence_number
                new.append(message)
        return new


def sequence_bounds(connection: Connection, path: str, after: int = 0) -> tuple[int, int] | None:
    """The lowest and the highest sequence number above `after` that a message of an entity has; None if none has one.

    Peeks at one message at a time: in steps that double until there is no message, then by halving the last step. The
    answer to a peek is the first message from a number on, so that gaps cost nothing. A number of a partitioned entity
    (from FIRST_OF_PARTITION on) ends the search: such an entity has no highest number.
    """
    peeker = Peeker(connection, path, most=1)

    def first_from(number: int) -> int | None:
        page = _wait_for_page(peeker, number, DestinationBusy.retry_after)
        return page[0].sequence_number if page else None

    try:
        first = first_from(after + 1)
        if first is None:
            return None
        last, step = first, 1
        while last < FIRST_OF_PARTITION:
            if (found := first_from(last + step)) is None:
                break
            last, step = found, 2 * step
        else:
            return first, last
        end = last + step
        while last + 1 < end:
            middle = (last + end) // 2
            if (found := first_from(middle)) is None:
                end = middle
            else:
                last = max(last, found)
        return first, last
    finally:
        peeker.close()
        connection.wire.flush()


class Peeker:
    """Peeks at one entity without waiting: its owner asks for a page, and takes it in a later turn."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        *,
        most: int = PAGE,
        first: int = FIRST_PAGE,
        answer_within: float = PAGE_WITHIN,
        node: ManagementLinks | None = None,
    ) -> None:
        """`node` is the entity's management node, if its links are shared with others."""
        self.connection = connection
        self.path = path
        self.is_waiting = False
        """Whether a page was requested and not taken yet."""
        self.answer_within = answer_within
        self._most = most
        self._count = min(most, first, FIRST_PAGE)
        self._start = 1
        self._needed = most
        self._node = node
        self._link: RequestLink | None = None
        self._is_asked = False
        self._requests = 0
        self._reply: ManagementReply | None = None

    def ask(self, start: int, stop: int | None = None) -> None:
        """Asks for the next messages from a sequence number on. None above `stop` is needed."""
        self._start, self.is_waiting, self._is_asked, self._reply = start, True, False, None
        self._needed = self._most if stop is None else max(1, stop - start + 1)

    def take(self) -> list[Peeked] | None:
        """The requested page, empty if there are no messages; None while there is no answer.

        To be called every turn. Raises if the entity cannot be peeked at, or the link was lost; the next request uses
        a new link.
        """
        if not self.is_waiting:
            return None
        try:
            self._work()
            if self._reply is None:
                return None
            page = _messages(self._reply, self.path)
        except SyphonError as error:
            self.close()
            if isinstance(error, DestinationBusy):  # each message of a page is charged: ask for fewer
                self._most = self._count = max(1, min(self._count, self._needed) // 4)
            raise
        self.is_waiting, self._reply = False, None
        if page:
            size = max(len(message.payload) for message in page)
            self._count = min(self._most, PAGE, max(1, PAGE_BYTES // size))
        return page

    def close(self) -> None:
        link, self._link, self.is_waiting = self._link, None, False
        if link is not None and self._node is None:
            link.close()

    def _work(self) -> None:
        if self._link is not None and not self._is_asked and self._link.error is not None:
            self._link.close()  # lost while idle: the service detaches idle links
            self._link = None
        if self._link is None:
            if not self.connection.tokens.allow(self.path):
                return
            wire = self.connection.wire
            self._link = RequestLink(wire, f"{self.path}/$management") if self._node is None else self._node.link(wire)
        if not self._is_asked:
            self._is_asked = True
            self._requests += 1
            timeout = UInt(int(self.answer_within * 1000))
            self._link.ask(
                {"operation": "com.microsoft:peek-message", "com.microsoft:server-timeout": timeout},
                Map.of(
                    {"from-sequence-number": Long(self._start), "message-count": Int(min(self._count, self._needed))}
                ),
                partial(self._answered, self._requests),
            )
        self._link.work()
        if self._reply is None and self._link.error is not None:
            raise self._link.error

    def _answered(self, request: int, reply: ManagementReply) -> None:
        if request == self._requests:  # and not to one that its owner has dropped
            self._reply = reply

    def drop(self) -> None:
        """The owner no longer wants the requested page."""
        self._requests += 1
        self.is_waiting, self._is_asked, self._reply = False, False, None


def _wait_for_page(peeker: Peeker, start: int, busy_delay: float, stop: int | None = None) -> list[Peeked]:
    """The page from a number on. The caller may have requested it already."""
    try:
        return _page(peeker, start, stop)
    except DestinationBusy:
        _rest(peeker, busy_delay)
    try:
        return _page(peeker, start, stop)
    except DestinationBusy:
        _rest(peeker, busy_delay)
        return _page(peeker, start, stop)


def _rest(peeker: Peeker, seconds: float) -> None:
    """Waits as long as the service requests (S5)."""
    now = peeker.connection.wire.now
    until = now() + seconds
    while now() < until:
        _turn(peeker)


def _ask_ahead(peeker: Peeker, start: int, stop: int | None) -> None:
    """Sends the request for the next page. If that fails, it fails again when the page is needed."""
    peeker.ask(start, stop)
    with suppress(SyphonError):
        peeker.take()
    peeker.connection.wire.flush()


def _page(peeker: Peeker, start: int, stop: int | None) -> list[Peeked]:
    wire = peeker.connection.wire
    deadline = wire.now() + peeker.answer_within
    if not peeker.is_waiting:
        peeker.ask(start, stop)
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
    connection.wait(PEEK_TURN)
    connection.read()
    connection.tick()


def _messages(reply: ManagementReply, path: str) -> list[Peeked]:
    if reply.status in (202, 204):
        return []
    if reply.status != 200:
        text = f"'{path}' cannot be peeked at: {reply.description} (status {reply.status})"
        raise from_condition(reply.condition, text) if reply.condition else SyphonError(text)
    try:
        return [stamped(payload) for payload in _payloads(reply)]
    except Malformed as error:
        raise SyphonError(f"'{path}' answered a peek with bytes that are not AMQP: {error}.") from None


def _payloads(reply: ManagementReply) -> list[bytes]:
    """The messages in the answer to a peek. The usual form is read by hand: a page has 250 of them."""
    span = reply.message.span(Section.VALUE)
    if span is not None:
        try:
            if (usual := _usual_payloads(reply.message.data, span.value, span.end)) is not None:
                return usual
        except (IndexError, struct.error):
            pass
    entries = body.get("messages") if isinstance(body := reply.body, Map) else None
    payloads = (
        [entry.get("message") for entry in entries if isinstance(entry, Map)] if isinstance(entries, list) else []
    )
    return [payload for payload in payloads if isinstance(payload, bytes)]


_MESSAGES, _MESSAGE = b"\xa1\x08messages", b"\xa1\x07message"


def _usual_payloads(data: bytes, start: int, end: int) -> list[bytes] | None:
    """The payloads in {messages: [{message: binary}, …]}; None if the value has any other form."""
    pos = start + 9 if data[start] == 0xD1 else start + 3 if data[start] == 0xC1 else 0
    if not pos or data[pos - 1] != 2 or not data.startswith(_MESSAGES, pos):
        return None
    pos += len(_MESSAGES)
    if data[pos] == 0xD0:
        count, pos = _UINT(data, pos + 5)[0], pos + 9
    elif data[pos] == 0xC0:
        count, pos = data[pos + 2], pos + 3
    else:
        return None
    found: list[bytes] = []
    for _ in range(count):
        pos += 9 if data[pos] == 0xD1 else 3 if data[pos] == 0xC1 else end
        if data[pos - 1] != 2 or not data.startswith(_MESSAGE, pos):
            return None
        pos += len(_MESSAGE)
        if data[pos] == 0xB0:
            size, pos = _UINT(data, pos + 1)[0], pos + 5
        elif data[pos] == 0xA0:
            size, pos = data[pos + 1], pos + 2
        else:
            return None
        found.append(data[pos : pos + size])
        pos += size
    return found if pos == end else None


def stamped(payload: bytes) -> Peeked:
    """A message with two annotations of the broker: its sequence number and its state."""
    number: Value = None
    code: Value = None
    with suppress(IndexError, struct.error):
        number, code = _usual_stamps(payload)
    if number is None:
        number, code = _stamps(payload)
    if not isinstance(number, int):
        raise SyphonError(f"A message of {len(payload)} bytes has no {_SEQUENCE}: its place in the queue is unknown.")
    # A missing or unknown state counts as active: the queue must not be reported as empty because of it.
    state = _STATES.get(code, MessageState.ACTIVE) if isinstance(code, int) else MessageState.ACTIVE
    return Peeked(payload, int(number), state)


_STATES = {int(state): state for state in MessageState}
_UINT, _LONG = struct.Struct(">I").unpack_from, struct.Struct(">q").unpack_from
_SIZES = {0x40: 1, 0x41: 1, 0x42: 1, 0x43: 1, 0x44: 1, 0x50: 2, 0x51: 2, 0x52: 2, 0x53: 2, 0x54: 2, 0x55: 2, 0x56: 2}
_SIZES |= {0x60: 3, 0x61: 3, 0x70: 5, 0x71: 5, 0x80: 9, 0x81: 9, 0x83: 9, 0x98: 17}
"""The bytes of a value with its constructor, for the types that brokers annotate messages with."""


def _usual_stamps(data: bytes) -> tuple[int | None, int | None]:
    """The sequence number and the state's code, if all annotations up to them have the usual forms. Raises IndexError,
    or struct.error, for other bytes.
    """
    pos = 0
    while data[pos] == 0 and data[pos + 1] == 0x53 and data[pos + 2] < 0x72:  # the header, the delivery annotations
        pos += 5 + data[pos + 4] if data[pos + 3] in (0xC0, 0xC1) else 8 + _UINT(data, pos + 4)[0]
    if data[pos + 2] != 0x72:
        return None, None
    if data[pos + 3] == 0xD1:
        count, end, pos = _UINT(data, pos + 8)[0], pos + 8 + _UINT(data, pos + 4)[0], pos + 12
    elif data[pos + 3] == 0xC1:
        count, end, pos = data[pos + 5], pos + 5 + data[pos + 4], pos + 6
    else:
        return None, None
    number = state = None
    for _ in range(count // 2):
        if data[pos] != 0xA3:
            return None, None
        value = pos + 2 + data[pos + 1]
        name, code = data[pos + 2 : value], data[value]
        if name == b"x-opt-sequence-number":
            if code != 0x81 or number is not None:
                return None, None
            number = _LONG(data, value + 1)[0]
        elif name == b"x-opt-message-state":
            if code != 0x54 or state is not None:
                return None, None
            state = data[value + 1]
        pos = (
            value + _SIZES[code] if code in _SIZES else value + 2 + data[value + 1] if code in (0xA1, 0xA3) else end + 1
        )
    return (number, state) if pos == end else (None, None)


def _stamps(payload: bytes) -> tuple[Value, Value]:
    """The same for all forms. Reads no further than the annotations: the sections after them may not be AMQP at all."""
    try:
        for span in split(payload, until=Section.MESSAGE_ANNOTATIONS):
            if span.section == Section.MESSAGE_ANNOTATIONS:
                found = extract(payload, span, _KEYS).found
                number, state = (
                    decode(payload, *found[name])[0] if name in found else None for name in (_SEQUENCE, _STATE)
                )
                return number, state
    except Malformed:
        pass
    return None, None
