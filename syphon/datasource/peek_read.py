"""Reads the messages of entities by peeking: nothing is received, locked or changed.

An entity is read in ranges of sequence numbers. The last range of an entity is open: its end is determined when its
read begins, so a read ends although messages keep coming. A range may be read again at any time: a peek can begin at
any number.

A read applies bounds of the sequence number and of the time of enqueuing itself. A filter counts as applied only if it
is applied exactly. Spark applies all others to the rows that it gets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from syphon.config import SideSettings, Via
from syphon.model import DestinationSilent, DestinationUnreachable, EntityPath, Interrupted, PathPatterns, SyphonError
from syphon.servicebus import (
    FIRST_OF_PARTITION,
    Connection,
    Peeked,
    administration_of,
    connected,
    peek_pages,
    sequence_bounds,
)
from syphon.time_budget import PEEK_RETRY_AFTER

from .message_batches import MessageBatches, in_batches
from .source_options import SOURCE, BadSourceOptions, SourceOptions, is_pattern, once

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Bounds:
    """Whole numbers from `low` to `high`, both included."""

    low: int = _LOWEST
    high: int = _HIGHEST

    def narrowed(self, comparison: str, value: int) -> Bounds | None:
        """The part of the bounds in which a comparison holds; None for a comparison that is not known here."""
        match comparison:
            case "EqualTo":
                return Bounds(max(self.low, value), min(self.high, value))
            case "GreaterThan":
                return Bounds(max(self.low, value + 1), self.high)
            case "GreaterThanOrEqual":
                return Bounds(max(self.low, value), self.high)
            case "LessThan":
                return Bounds(self.low, min(self.high, value - 1))
            case "LessThanOrEqual":
                return Bounds(self.low, min(self.high, value))
        return None

    def __contains__(self, value: int | None) -> bool:
        return value is not None and self.low <= value <= self.high


def since(options: SourceOptions) -> Wanted:
    """The messages of a read, as far as its options say when they were enqueued."""
    moment = options.behaviour.starting_timestamp
    return Wanted() if moment is None else Wanted(enqueued=Bounds((moment - _EPOCH) // _MICROSECOND))


@dataclass(frozen=True)
class Wanted:
    """The messages that a read selects."""

    numbers: Bounds = Bounds()
    enqueued: Bounds | None = None
    """Microseconds since 1970; None if every time will do, and also none at all."""

    def with_filter(self, found: Any) -> Wanted | None:
        """The messages that also pass a filter of Spark's; None if the filter cannot be applied exactly."""
        column = getattr(found, "attribute", None)
        comparison = type(found).__name__
        if column == ("sequence_number",):
            if comparison == "IsNotNull":
                return self  # every message has one
            value = getattr(found, "value", None)
            if type(value) is int and (numbers := self.numbers.narrowed(comparison, value)) is not None:
                return Wanted(numbers, self.enqueued)
        elif column == ("enqueued_at",):
            times = self.enqueued or Bounds()
            if comparison == "IsNotNull":
                return Wanted(self.numbers, times)
            micros = _micros(getattr(found, "value", None))
            if micros is not None and (narrowed := times.narrowed(comparison, micros)) is not None:
                return Wanted(self.numbers, narrowed)
        return None


def push(wanted: Wanted, filters: Iterable[Any]) -> tuple[Wanted, list[Any]]:
    """The messages that pass all filters that can be applied, and the filters that stay with Spark."""
    rest = []
    for each in filters:
        narrowed = wanted.with_filter(each)
        if narrowed is None:
            rest.append(each)
        else:
            wanted = narrowed
    return wanted, rest


def _micros(value: object) -> int | None:
    # A time without a zone would depend on the session's.
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


ATTEMPTS = 4
"""How often in a row a connection may break without a message before a read fails."""
BROKEN = (Interrupted, DestinationSilent, DestinationUnreachable)
"""What a new connection may repair."""
T = TypeVar("T")


class PartitionedEntity(SyphonError):
    """The entity is partitioned, and cannot be read by sequence numbers."""


class SequenceRange(NamedTuple):
    """Messages of one entity, by their sequence numbers: from the first to the last, both included."""

    entity: str
    first: int
    last: int
    is_open: bool = False
    """Messages after the last one belong to it, too, as far as they exist when the read begins."""
    highest: int = _HIGHEST
    """The last number that may belong to an open range."""
    is_partitioned: bool = False
    """The entity is partitioned: it is read as a whole, because its partitions count for themselves."""


def entities_of(options: SourceOptions) -> tuple[str, ...]:
    """The entities that the options name: for a pattern the queues that it fits, which needs the Manage claim."""
    if not any(map(is_pattern, options.entities)):
        return options.entities
    administration = administration_of(options.side, Via.ADMIN, "")
    try:
        queues = sorted(administration.queue_names(""))
    finally:
        administration.close()
    found: list[str] = []
    for entity in options.entities:
        name, _, part = entity.partition("/$")  # as in orders-*/$DeadLetterQueue
        fits = PathPatterns.of([name]).fit
        paths = [queue for queue in queues if fits(EntityPath.of(queue))] if is_pattern(entity) else [name]
        found += [f"{path}/${part}" if part else path for path in paths]
    return once(found)


def plan_ranges(options: SourceOptions, wanted: Wanted) -> list[SequenceRange]:
    """The ranges of all entities, none with more numbers than `partition_size`, as far as messages exist.

    Spark plans a frame once, and may evaluate it again an hour later. So each entity has an open range at its end,
    unless the numbers that are wanted end before.
    """
    bounds: dict[str, Bounds] = {}
    entities = entities_of(options)
    if not entities:
        raise BadSourceOptions(f"{SOURCE}: no queue fits {', '.join(options.entities)}.")
    for entity in entities:
        first, last = options.behaviour.numbers(entity)
        low, high = max(1, first, wanted.numbers.low), min(last or _HIGHEST, wanted.numbers.high)
        if low <= high and last != 0:
            bounds[entity] = Bounds(low, high)
    return retried(lambda: _planned(options, bounds)) if bounds else []


def _planned(options: SourceOptions, bounds: Mapping[str, Bounds]) -> list[SequenceRange]:
    ranges: list[SequenceRange] = []
    with connected(options.side, next(iter(bounds))) as connection:
        for entity, (low, high) in ((entity, (each.low, each.high)) for entity, each in bounds.items()):
            first, last = sequence_bounds(connection, entity, low - 1) or (low, low)
            if last >= FIRST_OF_PARTITION:
                ranges.append(SequenceRange(entity, low, high, is_partitioned=True))
                continue
            if first > high:
                continue
            parts = split_range(SequenceRange(entity, first, min(last, high)), options.behaviour.partition_size)
            if last < high:
                parts[-1] = parts[-1]._replace(is_open=True, highest=high)
            ranges += parts
    return ranges


def retried(look: Callable[[], T]) -> T:
    """Call `look`, which opens a connection, and retry after a delay if that breaks: at most ATTEMPTS calls."""
    for _ in range(ATTEMPTS - 1):
        try:
            return look()
        except BROKEN:
            time.sleep(PEEK_RETRY_AFTER)
    return look()


def bounds_of(connection: Connection, entity: str, after: int) -> tuple[int, int] | None:
    """The lowest and highest sequence number above `after`. Raises PartitionedEntity."""
    found = sequence_bounds(connection, entity, after)
    if found is not None:
        refuse_partitioned(entity, max(found))
    return found


def split_range(whole: SequenceRange, size: int) -> list[SequenceRange]:
    """A range in parts of about the same length, none longer than `size`."""
    numbers = whole.last - whole.first + 1
    parts = -(-numbers // size)
    starts = [whole.first + numbers * part // parts for part in range(parts + 1)]
    return [SequenceRange(whole.entity, starts[part], starts[part + 1] - 1) for part in range(parts)]


def read_range(
    side: SideSettings, part: SequenceRange, names: Sequence[str], nullable: Sequence[bool], wanted: Wanted
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in Arrow batches."""
    times = wanted.enqueued
    batches = MessageBatches(names, nullable, None if times is None else times.__contains__)
    for messages in in_batches(pages_of(side, part)):
        batch = batches.batch(part.entity, messages)
        if batch.num_rows:
            yield batch


def pages_of(side: SideSettings, part: SequenceRange) -> Iterator[list[Peeked]]:
    """The messages of a range, in pages.

    A connection that breaks is reopened, and the read continues where it was.
    Connections break: Spark may take its time with a batch, and the service ends a connection that is silent.
    """
    if part.is_partitioned:
        yield from _partitioned_pages(side, part)
        return
    entity, first, last, is_open, highest, _ = part
    failures = 0
    while first <= last:
        try:
            with connected(side, entity) as connection:
                if is_open and (found := bounds_of(connection, entity, last)) is not None:
                    last = min(found[1], highest)
                is_open = False
                for page in peek_pages(connection, entity, first, stop=last):
                    refuse_partitioned(entity, max(message.sequence_number for message in page))
                    failures = 0
                    first = page[-1].sequence_number + 1
                    yield page
            return
        except BROKEN:
            failures += 1
            if failures >= ATTEMPTS:
                raise
            time.sleep(PEEK_RETRY_AFTER)


def _partitioned_pages(side: SideSettings, part: SequenceRange) -> Iterator[list[Peeked]]:
    """The messages of a partitioned entity. If the connection breaks, Spark begins again: no number says where."""
    with connected(side, part.entity) as connection:
        for page in peek_pages(connection, part.entity):
            found = [message for message in page if part.first <= message.sequence_number <= part.last]
            if found:
                yield found


def refuse_partitioned(entity: str, number: int) -> None:
    if number >= FIRST_OF_PARTITION:
        raise PartitionedEntity(
            f"'{entity}' is partitioned: each partition counts its messages for itself, so that no sequence number "
            "says which message follows. Read it as a table: a stream cannot."
        )
