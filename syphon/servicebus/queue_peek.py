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

from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from functools import partial

from syphon.amqp import Int, Long, Map, UInt
from syphon.model import DestinationBusy, DestinationSilent, SyphonError
from syphon.time_budget import PAGE_WITHIN, PEEK_TURN

from .connection import Connection
from .management_node import ManagementLinks, ManagementReply, RequestLink
from .peek_reply import Peeked, messages_of

PAGE = 250
"""The most messages that Service Bus returns at once."""
FIRST_PAGE = 32
"""The first page is small, because the size of the messages is not known yet."""
PAGE_BYTES = 1024 * 1024
"""The approximate size of a page."""
FIRST_OF_PARTITION = 1 << 48
"""From here on a sequence number has the partition of a partitioned entity in its upper 16 bits."""


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
            page = messages_of(self._reply, self.path)
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
