"""The consuming stream: messages leave their entities once the stream's checkpoint has them.

For each micro-batch the driver receives messages and **defers** them: from then on no other receiver gets them, and a
peek still shows them, bodies included. The offset of the batch holds their numbers, and Spark writes it into the
checkpoint before the executors read them. When Spark asks for the batch after it, this one has been committed: its
messages are completed, by their numbers.

So nothing is lost, whatever dies when:

- before the offset is written: the messages are deferred and in no batch. The next start of the stream scans for them.
- before the batch is committed: Spark repeats it, with the same numbers.
- before they are completed: the next start completes them. Those that a dead process has locked are kept in the offset.

A task delivers every message of its part, or fails, since the commit completes them all. Service Bus may show one late
(S11): what a peek does not show is received by its number and deferred again. It counts as gone if the service has not
found it for as long as a lock may last, because it does not find a locked message either.

A batch that Spark repeats has the same messages, so a sink that knows its batches (files, tables) gets each message
once; any other at least once.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from syphon.model import DestinationSilent, EntityPath, Interrupted, SyphonError
from syphon.servicebus import (
    FIRST_OF_PARTITION,
    Arrival,
    Connection,
    DeferredReceiver,
    LinkState,
    ManagementLinks,
    MessageState,
    Peeked,
    RawReceiver,
    connected,
    peek_pages,
    wait_for_traffic,
)
from syphon.time_budget import (
    ATTACH_WITHIN,
    CONSUMED_WITHIN,
    DEFERRED_RETRY_AFTER,
    FIRST_CONSUMED_WITHIN,
    LONGEST_LOCK,
    PEEK_RETRY_AFTER,
    SETTLED_WITHIN,
    STREAM_POLL_EVERY,
)

from .message_batches import MessageBatches, in_batches
from .message_fields import read_fields
from .peek_read import ATTEMPTS, BROKEN, entities_of, refuse_partitioned
from .source_options import SOURCE, BadSourceOptions, SourceOptions
from .stream_offsets import KeptConnection

if TYPE_CHECKING:
    import pyarrow as pa

    from syphon.config import SideSettings

log = logging.getLogger("syphon.datasource")

ConsumedOffset: TypeAlias = dict[str, "int | list[list[int]]"]
"""The batch, and the numbers of its messages by entity (in lower case) as ranges. Spark keeps it as JSON.

Under `entity#unsettled` are numbers of earlier batches that could not be completed yet.
"""
BATCH, UNSETTLED = "#batch", "#unsettled"
MOST_ROWS = 10_000
"""Messages of a batch without `max_rows`: its offset holds their numbers."""
AT_ONCE = 200
"""Deferred messages that one request asks for."""
GAP = 100
"""Numbers between two ranges that are read together: a peek passes over the messages between them."""


def ranges_of(numbers: Sequence[int]) -> list[list[int]]:
    """Numbers as ranges of consecutive ones, both ends included."""
    ordered = sorted(set(numbers))
    runs = (list(run) for _, run in groupby(enumerate(ordered), key=lambda each: each[1] - each[0]))
    return [[run[0][1], run[-1][1]] for run in runs]


def numbers_in(offset: Mapping[str, object], key: str) -> list[int]:
    """The numbers that an offset has under a key."""
    ranges = offset.get(key, [])
    if not isinstance(ranges, list):
        raise BadSourceOptions(
            f"{SOURCE}: the checkpoint is that of a stream that peeks. Give the consuming stream one of its own."
        )
    return [number for first, last in ranges for number in range(first, last + 1)]


def batch_in(offset: Mapping[str, object]) -> int:
    """The number of the batch that ends at an offset; 0 before the first one."""
    number = offset.get(BATCH, 0)
    assert isinstance(number, int)
    return number


class Consumed(NamedTuple):
    """A part of a batch, which one task reads: deferred messages of an entity."""

    entity: str
    ranges: tuple[tuple[int, int], ...]


class Consumption:
    """Receives, defers and completes the messages of a stream. It lives in the process that plans the stream."""

    def __init__(
        self,
        options: SourceOptions,
        now: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._now, self._date = now, date
        self._entities = {EntityPath.of(entity).key: entity for entity in entities_of(options)}
        self._connection = KeptConnection(options.side, now)
        self._to_scan = set(self._entities)
        """Entities that may have deferred messages that are in no batch."""
        self._ready: dict[str, set[int]] = {entity: set() for entity in self._entities}
        """The numbers of deferred messages that are in no batch yet."""
        self._completed = -1
        """The batch whose messages have been completed."""
        self._unsettled: dict[str, set[int]] = {}
        self._until: float | None = None
        """When the stream was told to end with what existed then, in seconds since 1970."""
        self._over: set[str] = set()
        """Entities of which nothing is left that existed then."""
        self._quiet_until = 0.0

    def stop_at_present(self) -> None:
        """Ends with the messages that exist."""
        self._until = self._date()

    def latest(self, start: ConsumedOffset, most: int | None = None) -> ConsumedOffset:
        """Completes the messages of the batch that ends at `start`, which Spark has committed, and defers new ones.

        Returns the offset of the next batch, or `start` if there is none.
        """
        self._complete(start)
        if self._until is None and self._now() < self._quiet_until:
            return start
        room = most or MOST_ROWS
        batch: dict[str, list[int]] = {}
        for entity, name in self._entities.items():
            if entity in self._to_scan:
                self._connection.use(name, self._scan)
                self._to_scan.discard(entity)
            if len(self._ready[entity]) < room and entity not in self._over:
                self._connection.use(name, partial(self._receive, most=room))
            taken = sorted(self._ready[entity])[:room]
            self._ready[entity].difference_update(taken)
            room -= len(taken)
            if taken:
                batch[entity] = taken
            if not room:
                break
        if not batch:
            self._quiet_until = self._now() + STREAM_POLL_EVERY
            return start
        unsettled = {f"{entity}{UNSETTLED}": ranges_of(list(left)) for entity, left in self._unsettled.items() if left}
        return {
            BATCH: batch_in(start) + 1,
            **{entity: ranges_of(taken) for entity, taken in batch.items()},
            **unsettled,
        }

    def parts(self, end: Mapping[str, object]) -> list[Consumed]:
        """What the tasks of a batch read."""
        size = self._options.behaviour.partition_size
        parts: list[Consumed] = []
        for entity, name in self._entities.items():
            numbers = numbers_in(end, entity)
            for start in range(0, len(numbers), size):
                ranges = ranges_of(numbers[start : start + size])
                parts.append(Consumed(name, tuple((first, last) for first, last in ranges)))
        return parts

    def close(self) -> None:
        self._connection.close()

    # --- completing ----------------------------------------------------------------------------------------------

    def _complete(self, start: Mapping[str, object]) -> None:
        """Completes what a committed batch has delivered, and what earlier ones have left."""
        batch = batch_in(start)
        if batch != self._completed:
            for entity in self._entities:
                delivered = {*numbers_in(start, entity), *numbers_in(start, f"{entity}{UNSETTLED}")}
                self._unsettled.setdefault(entity, set()).update(delivered)
            self._completed = batch
        for entity, numbers in self._unsettled.items():
            if numbers:
                self._connection.use(self._entities[entity], self._settle)

    def _settle(self, connection: Connection, path: str) -> None:
        """Completes deferred messages by their numbers. One that is locked is completed the next time."""
        unsettled = self._unsettled[EntityPath.of(path).key]
        numbers = sorted(unsettled)
        with closing(ManagementLinks(path)) as node:
            parts = _at_once(numbers)
            completed = sum(_settled(connection, node, part, DeferredReceiver.complete) for part in parts)
        if completed == len(numbers):
            unsettled.clear()
            return
        pages = _peeked(connection, path, ranges_of(numbers))  # the others are gone, or locked by a dead process
        deferred = {each.sequence_number for page in pages for each in page if each.state is MessageState.DEFERRED}
        unsettled.intersection_update(deferred)

    # --- receiving -----------------------------------------------------------------------------------------------
    def _scan(self, connection: Connection, path: str) -> None:
        """Finds messages that a stream has deferred and that no checkpoint has: it was killed between the two."""
        entity = EntityPath.of(path).key
        known = self._unsettled.get(entity, set())
        for page in peek_pages(connection, path):
            refuse_partitioned(path, max(message.sequence_number for message in page))
            deferred = {each.sequence_number for each in page if each.state is MessageState.DEFERRED}
            self._ready[entity] |= deferred - known

    def _receive(self, connection: Connection, path: str, most: int) -> None:
        """Receives messages, and defers them at once. They count as soon as the service has confirmed it."""
        entity = EntityPath.of(path).key
        ready = self._ready[entity]
        is_known = entity not in self._to_scan
        self._to_scan.add(entity)  # unless this ends in order, more may have been deferred than is known
        _wait(connection, lambda: connection.tokens.allow(path), ATTACH_WITHIN, path)
        link = RawReceiver(connection.wire, path)
        numbers: dict[bytes, int] = {}
        now = connection.wire.now
        heard_at = now()

        def defer() -> bool:
            """Whether nothing more is to be expected: no message for a while, or enough of them."""
            nonlocal heard_at, is_known
            if link.error is not None:
                raise link.error
            while link.arrivals:
                arrival, heard_at = link.arrivals.popleft(), now()
                number, enqueued = _place(arrival.payload)
                if number >= FIRST_OF_PARTITION:
                    link.release(arrival)
                    refuse_partitioned(path, number)
                numbers[arrival.lock_token] = number
                if self._until is not None and enqueued > self._until:
                    self._over.add(entity)
                link.defer(arrival)
            while link.settled:
                settled = link.settled.popleft()
                is_known = is_known and not settled.unknown
                if settled.error is None:
                    ready.add(numbers[settled.arrival.lock_token])
            patience = CONSUMED_WITHIN if numbers else FIRST_CONSUMED_WITHIN
            return link.is_drained or link.credit == 0 or now() - heard_at > patience

        try:
            _wait(connection, lambda: link.state is not LinkState.ATTACHING, ATTACH_WITHIN, path)
            heard_at = now()
            if link.error is None:
                link.grant(max(0, most - len(ready)))
            _wait(connection, defer, None, path)
            link.drain()
            _wait(connection, lambda: defer() and link.is_drained and not link.settling, SETTLED_WITHIN, path)
        finally:
            link.close()
            connection.wire.flush()
        if is_known:
            self._to_scan.discard(entity)
        if self._until is not None and not numbers:
            self._over.add(entity)


def _settled(
    connection: Connection,
    node: ManagementLinks,
    numbers: Sequence[int],
    settle: Callable[[DeferredReceiver, Arrival], None],
) -> int:
    """Receives deferred messages by their numbers, and settles them. Returns how many are settled for certain.

    Raises the error if one could be neither received nor said not to be found.
    """
    path = node.entity
    _wait(connection, lambda: connection.tokens.allow(path), ATTACH_WITHIN, path)
    source = DeferredReceiver(node, connection.wire)
    source.receive(numbers)
    received = 0

    def is_done() -> bool:
        nonlocal received
        while source.arrivals:
            settle(source, source.arrivals.popleft())
            received += 1
        source.flush()
        node.work()
        if source.state is LinkState.LOST:
            raise Interrupted(f"The management node of '{path}' was lost.")
        return source.requested <= 0 and len(source.settled) >= received

    _wait(connection, is_done, SETTLED_WITHIN, path)
    for _, error in source.refused:
        raise error
    return sum(settled.error is None for settled in source.settled)


def _at_once(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Numbers in parts that one request may ask for."""
    return (numbers[start : start + AT_ONCE] for start in range(0, len(numbers), AT_ONCE))


def _place(payload: bytes) -> tuple[int, float]:
    """The sequence number of a message, and when it was enqueued."""
    annotations = read_fields(payload, with_body=False, with_application=False).annotations
    number, enqueued = annotations.get("x-opt-sequence-number"), annotations.get("x-opt-enqueued-time")
    if not isinstance(number, int):
        raise SyphonError(f"A message of {len(payload)} bytes has no sequence number.")
    return number, (int(enqueued) / 1000 if isinstance(enqueued, int) else 0.0)


def _wait(connection: Connection, is_done: Callable[[], bool], within: float | None, path: str) -> None:
    """Reads and writes until something is done. Raises what breaks the connection, or DestinationSilent."""
    wire = connection.wire
    deadline = None if within is None else wire.now() + within
    while not is_done():
        if wire.failure is not None:
            raise wire.failure
        if deadline is not None and wire.now() > deadline:
            raise DestinationSilent(f"{wire.name}: '{path}' has not answered for {within:.0f} seconds.")
        wait_for_traffic([wire], 0.05)
        connection.read()
        connection.tick()


# --- in a task -------------------------------------------------------------------------------------------------------


def read_consumed(
    side: SideSettings, part: Consumed, names: Sequence[str], nullable: Sequence[bool]
) -> Iterator[pa.RecordBatch]:
    """The rows of a part of a batch, in Arrow batches."""
    batches = MessageBatches(names, nullable, None)
    for messages in in_batches(_all_pages(side, part)):
        batch = batches.batch(part.entity, messages)
        if batch.num_rows:
            yield batch


def _all_pages(side: SideSettings, part: Consumed) -> Iterator[list[Peeked]]:
    """All messages of a part that exist, in pages."""
    missing = {number for first, last in part.ranges for number in range(first, last + 1)}
    expected = len(missing)
    for page in _pages(side, part):
        missing.difference_update(message.sequence_number for message in page)
        yield page
    yield from _hidden_pages(side, part.entity, missing)
    if missing:
        log.warning(
            "%d of %d messages of '%s' are gone: they have expired, or somebody else has completed them",
            len(missing),
            expected,
            part.entity,
        )


def _pages(side: SideSettings, part: Consumed) -> Iterator[list[Peeked]]:
    """The messages of a part that a peek shows.

    A connection that breaks is reopened, and the read continues where it was.
    """
    failures = after = 0
    while True:
        try:
            with connected(side, part.entity) as connection:
                for page in _peeked(connection, part.entity, part.ranges, after):
                    failures, after = 0, page[-1].sequence_number
                    yield page
            return
        except BROKEN:
            failures += 1
            if failures >= ATTEMPTS:
                raise
            time.sleep(PEEK_RETRY_AFTER)


def _hidden_pages(side: SideSettings, entity: str, missing: set[int]) -> Iterator[list[Peeked]]:
    """Messages that the peek did not show: received by their numbers, deferred again, and removed from `missing`.

    Those that stay missing are gone. A lock of somebody who has died, or of our own connection that broke, has ended
    by then.
    """
    failures, until = 0, time.monotonic() + LONGEST_LOCK
    while missing:
        is_last = time.monotonic() > until
        try:
            with connected(side, entity) as connection, closing(ManagementLinks(entity)) as node:
                for numbers in _at_once(sorted(missing)):
                    page: list[Peeked] = []
                    _settled(connection, node, numbers, partial(_defer_again, page))
                    failures = 0
                    if page:
                        missing.difference_update(message.sequence_number for message in page)
                        yield page
                        is_last, until = False, time.monotonic() + LONGEST_LOCK  # Spark took its time with the page
        except BROKEN:
            failures += 1
            if failures >= ATTEMPTS:
                raise
            is_last, until = False, time.monotonic() + LONGEST_LOCK
        if is_last:
            return
        if missing:
            time.sleep(DEFERRED_RETRY_AFTER)


def _defer_again(page: list[Peeked], source: DeferredReceiver, arrival: Arrival) -> None:
    number, _ = _place(arrival.payload)
    page.append(Peeked(arrival.payload, number, MessageState.DEFERRED))
    source.defer(arrival)


def _peeked(
    connection: Connection, path: str, ranges: Sequence[Sequence[int]], after: int = 0
) -> Iterator[list[Peeked]]:
    """The messages with these numbers, in pages. Ranges that are close to each other are read together."""
    starts = [first for first, _ in ranges]
    for first, last in _together(ranges):
        for page in peek_pages(connection, path, max(first, after + 1), stop=last):
            places = [bisect_right(starts, message.sequence_number) - 1 for message in page]
            found = [
                message
                for message, place in zip(page, places, strict=True)
                if place >= 0 and message.sequence_number <= ranges[place][1]
            ]
            if found:
                yield found


def _together(ranges: Sequence[Sequence[int]]) -> list[list[int]]:
    joined: list[list[int]] = []
    for first, last in ranges:
        if joined and first - joined[-1][1] <= GAP:
            joined[-1][1] = last
        else:
            joined.append([first, last])
    return joined
