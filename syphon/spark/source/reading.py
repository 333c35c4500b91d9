"""Reads the messages of entities by peeking: nothing is received, locked or changed.

An entity is read in ranges of sequence numbers. The numbers are found before the read begins, so a read ends although
messages keep coming. A range may be read again at any time: a peek can begin at any number.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from syphon.bus import FIRST_OF_PARTITION, Connection, Peeked, connected, peek_pages, sequence_bounds
from syphon.config import SideSettings
from syphon.model import DestinationSilent, DestinationUnreachable, Interrupted, SyphonError

from .filters import Wanted
from .message_batches import MessageBatches, in_batches
from .options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

TRIES = 4
"""How often in a row a connection may break without a message before a read fails."""
PAUSE = 1.0
"""Seconds before a connection is opened again."""


class PartitionedEntity(SyphonError):
    """The entity is partitioned, and cannot be read by sequence numbers."""


class SequenceRange(NamedTuple):
    """Messages of one entity, by their sequence numbers: from the first to the last, both included."""

    entity: str
    first: int
    last: int


def plan_ranges(options: SourceOptions, wanted: Wanted) -> list[SequenceRange]:
    """The ranges that have messages now, none with more numbers than `partition_size`."""
    ranges: list[SequenceRange] = []
    low, high = max(1, wanted.numbers.low), wanted.numbers.high
    if low > high:
        return []
    with connected(options.side, options.entities[0]) as connection:
        for entity in options.entities:
            found = bounds_of(connection, entity, low - 1)
            if found is not None and found[0] <= high:
                whole = SequenceRange(entity, found[0], min(found[1], high))
                ranges += split_range(whole, options.behaviour.partition_size)
    return ranges


def bounds_of(connection: Connection, entity: str, after: int) -> tuple[int, int] | None:
    """The lowest and highest sequence number above `after`. Raises PartitionedEntity."""
    found = sequence_bounds(connection, entity, after)
    if found is not None:
        _refuse_partitioned(entity, found[1])
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
    """The messages of a range, in pages. A connection that breaks is opened again, and the read goes on where it was.

    Connections break: Spark may take its time with a batch, and the service ends a connection that is silent.
    """
    entity, first, last = part
    failures = 0
    while first <= last:
        try:
            with connected(side, entity) as connection:
                for page in peek_pages(connection, entity, first, stop=last):
                    _refuse_partitioned(entity, page[-1].sequence_number)
                    failures = 0
                    first = page[-1].sequence_number + 1
                    yield page
            return
        except (Interrupted, DestinationSilent, DestinationUnreachable):
            failures += 1
            if failures >= TRIES:
                raise
            time.sleep(PAUSE)


def _refuse_partitioned(entity: str, number: int) -> None:
    if number >= FIRST_OF_PARTITION:
        raise PartitionedEntity(
            f"'{entity}' is partitioned: each partition counts its messages for itself, so that no sequence number "
            "says what comes next. Such an entity can be written to, but not read from."
        )
