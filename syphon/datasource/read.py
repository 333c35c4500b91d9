"""Spark's readers of the data source, for tables and for streams, and the new messages of a stream.

The offset of a stream is the last sequence number that it has seen of each entity, and when it saw that one. Polling
costs one peek for an entity without new messages, and happens at most once per second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from syphon.amqp import Timestamp
from syphon.config import SideSettings
from syphon.model import SyphonError
from syphon.servicebus import Connection, MessageState, Peeked, connected, peek_pages, sequence_bounds
from syphon.time_budget import CLOCK_TOLERANCE, STREAM_CHECK_EVERY, STREAM_CONNECTION_KEPT_FOR, STREAM_POLL_EVERY

from .columns import read_names
from .message_fields import read_fields
from .peek_read import (
    BROKEN,
    Bounds,
    SequenceRange,
    Wanted,
    bounds_of,
    plan_ranges,
    push,
    read_range,
    retried,
    split_range,
)
from .source_options import SourceOptions, Start

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_DEAD_LETTERS = "/$deadletterqueue"


class NumbersRestarted(SyphonError):
    """The sequence numbers of an entity have restarted."""


def refuse_restarted(connection: Connection, entity: str, last: int, seen_at: float) -> None:
    """Raises NumbersRestarted if a message has a number up to `last`, but was enqueued after that number was seen.

    It peeks at the first message and at the one with the highest number: one peek for an empty entity, about 30 for a
    deep one. Of dead letters it is not documented which time the service gives them: they are not checked.
    """
    if entity.lower().endswith(_DEAD_LETTERS):
        return
    first = _message_from(connection, entity, 1)
    if first is None or first.sequence_number > last:
        return
    _refuse_later(first, entity, last, seen_at)
    others = sequence_bounds(connection, entity, first.sequence_number)
    if others is not None and others[1] <= last:
        newest = _message_from(connection, entity, others[1])
        if newest is not None and newest.sequence_number <= last:
            _refuse_later(newest, entity, last, seen_at)


def _message_from(connection: Connection, entity: str, number: int) -> Peeked | None:
    with closing(peek_pages(connection, entity, number, most=1, ahead=False)) as pages:
        return next((message for page in pages for message in page), None)


def _refuse_later(message: Peeked, entity: str, last: int, seen_at: float) -> None:
    fields = read_fields(message.payload, with_body=False, with_application=False)
    enqueued = fields.annotations.get("x-opt-enqueued-time")
    if message.state is not MessageState.ACTIVE or type(enqueued) is not Timestamp:
        return  # a scheduled message may have the time at which it is due
    if enqueued / 1000 > seen_at + CLOCK_TOLERANCE:
        raise NumbersRestarted(
            f"'{entity}' was deleted and created again: its message {message.sequence_number} was enqueued at "
            f"{_text(enqueued / 1000)}, but the stream had seen number {last} by {_text(seen_at)}. With this "
            f"checkpoint the stream would skip all messages up to number {last}. Give it a new one."
        )


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


Offsets = dict[str, int]
"""The last number of each entity by its name; and by `seen_key` when it was seen, in seconds since 1970."""
T = TypeVar("T")


def seen_key(entity: str) -> str:
    """Where an offset has the time at which the entity's number was seen. No name of an entity has a `#`."""
    return f"{entity}#seen_at"


class NewMessages:
    """The new messages of some entities. It lives in the process on the driver that plans the stream."""

    def __init__(
        self,
        options: SourceOptions,
        now: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._now, self._date = now, date
        self._check_at: dict[str, float] = {}
        self._target: Offsets | None = None
        self._quiet_until = 0.0
        self._connection = _KeptConnection(options.side, options.entities[0], now)

    def first_offsets(self) -> Offsets:
        """Where a stream begins that has no checkpoint."""
        if self._options.behaviour.start is Start.EARLIEST:
            return dict.fromkeys(self._options.entities, 0)
        return self.latest({})

    def latest(self, start: Mapping[str, int], most: int | None = None) -> Offsets:
        """The offsets up to which a stream may read now. With `most`, there are no more messages than that between, but
        at least one of each entity that has some.
        """
        entities = self._options.entities
        offsets = {entity: start.get(entity, 0) for entity in entities}
        offsets |= {key: start[key] for key in map(seen_key, entities) if key in start}
        if self._target is None and self._now() < self._quiet_until:
            return offsets
        share = None if most is None else max(1, most // len(entities))
        for entity in entities:
            self._check(entity, start)
            found = self._bounds(entity, offsets[entity])
            if found is not None:
                first, last = found
                # Numbers may have gaps, but none occurs twice: there are at most as many messages as numbers.
                offsets[entity] = last if share is None else min(last, first + share - 1)
                offsets[seen_key(entity)] = int(self._date())
        if all(offsets[entity] == start.get(entity, 0) for entity in entities):
            self._quiet_until = self._now() + STREAM_POLL_EVERY
        return offsets

    def stop_at_present(self) -> None:
        """Ignore messages that arrive after this call."""
        self._target = None
        self._quiet_until = 0.0
        self._target = self.latest({})

    def _check(self, entity: str, start: Mapping[str, int]) -> None:
        """Raises NumbersRestarted if the offset is that of an entity which was deleted since. An offset of an older
        version has no time: it is not checked.
        """
        last, seen_at = start.get(entity, 0), start.get(seen_key(entity))
        if not last or seen_at is None or self._now() < self._check_at.get(entity, 0.0):
            return
        self._connection.use(lambda connection: refuse_restarted(connection, entity, last, seen_at))
        self._check_at[entity] = self._now() + STREAM_CHECK_EVERY

    def _bounds(self, entity: str, after: int) -> tuple[int, int] | None:
        if self._target is not None and after >= self._target[entity]:
            return None
        found = self._connection.use(lambda connection: bounds_of(connection, entity, after))
        if found is None or self._target is None:
            return found
        first, last = found
        return (first, min(last, self._target[entity])) if first <= self._target[entity] else None

    def ranges(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[SequenceRange]:
        """The parts of what is between two offsets. An entity that is no longer among the options is left out."""
        ranges: list[SequenceRange] = []
        for entity in self._options.entities:
            first, last = start.get(entity, 0) + 1, end.get(entity, 0)
            if first <= last:
                ranges += split_range(SequenceRange(entity, first, last), self._options.behaviour.partition_size)
        return ranges

    def close(self) -> None:
        self._connection.close()


class _KeptConnection:
    """A connection that is kept while it is used often."""

    def __init__(self, side: SideSettings, entity: str, now: Callable[[], float]) -> None:
        self._side, self._entity, self._now = side, entity, now
        self._open = ExitStack()
        self._connection: Connection | None = None
        self._used_at = 0.0

    def use(self, look: Callable[[Connection], T]) -> T:
        """Call `look` with the kept connection, and again with a new one if that is broken."""
        if self._connection is not None and self._now() < self._used_at + STREAM_CONNECTION_KEPT_FOR:
            try:
                return self._looked(look, self._connection)
            except BROKEN:
                pass
        return retried(lambda: self._looked(look, self._opened()))

    def _opened(self) -> Connection:
        self.close()
        self._connection = self._open.enter_context(connected(self._side, self._entity))
        return self._connection

    def _looked(self, look: Callable[[Connection], T], connection: Connection) -> T:
        found = look(connection)
        self._used_at = self._now()
        return found

    def close(self) -> None:
        self._open.close()
        self._connection = None


class BatchReader(DataSourceReader):
    """Peeks at all messages that exist when its tasks begin.

    It takes filters of Spark's only with the option `pushdown`. Spark 4.3 keeps the filters of a query for the frame
    that was loaded, and not for the query: a second query of the same frame would get the rows of the first one.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._names = read_names(schema)
        self._nullable = [field.nullable for field in schema.fields]
        numbers = Bounds(options.behaviour.first)
        if options.behaviour.last is not None:
            numbers = Bounds(numbers.low, options.behaviour.last)
        self._wanted = Wanted(numbers)

    @property
    def pushFilters(self) -> Callable[[list[Any]], Iterable[Any]]:  # noqa: N802
        """Takes filters of Spark's, where the session pushes them down (`spark.sql.python.filterPushdown.enabled`)."""
        return _OptionalPushdown(self)

    def push(self, filters: Sequence[Any]) -> list[Any]:
        """Applies the filters that it can. Returns the others."""
        if not self._options.behaviour.pushdown:
            return list(filters)
        self._wanted, rest = push(self._wanted, filters)
        return rest

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(part) for part in plan_ranges(self._options, self._wanted)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # If there is no partition, Spark reads one all the same: without a value, or None (Spark 4.0 and 4.1).
        if partition is None or partition.value is None:
            return iter(())
        return read_range(self._options.side, partition.value, self._names, self._nullable, self._wanted)


class _OptionalPushdown:
    """A `pushFilters` that does not insist. By default Spark pushes no filters down to Python, and raises an error if a
    reader has this method all the same. Ours only saves work: without it Spark filters the rows.
    """

    def __init__(self, reader: BatchReader) -> None:
        self._reader = reader
        # What Spark reads, to see whether the method is the reader's own. Spark 4.0 has none.
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        return self._reader.push(filters)


class StreamReader(DataSourceStreamReader):
    """Peeks at the messages that come, by sequence number. For Spark 4.0 and 4.1, whose batches have no limit."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._names = read_names(schema)
        self._nullable = [field.nullable for field in schema.fields]
        self._new_messages = NewMessages(options)
        self._seen: Offsets = {}

    def initialOffset(self) -> Offsets:  # noqa: N802
        return self._new_messages.first_offsets()

    def latestOffset(self) -> Offsets:  # type: ignore[override]  # noqa: N802
        self._seen = self._new_messages.latest(self._seen)
        return self._seen

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        return [InputPartition(part) for part in self._new_messages.ranges(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options.side, partition.value, self._names, self._nullable, Wanted())

    def stop(self) -> None:
        self._new_messages.close()


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    LimitedStreamReader: Any = None
else:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):  # type: ignore[no-redef]
        """The same, with limits: a micro-batch has so many rows, and `availableNow` ends."""

        def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # type: ignore[override]  # noqa: N802
            return self._new_messages.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            most = self._options.behaviour.max_rows
            return ReadAllAvailable() if most is None else ReadMaxRows(most)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._new_messages.stop_at_present()


def stream_reader(options: SourceOptions, schema: StructType) -> StreamReader:
    """The reader of streams that this Spark can use best."""
    reader: StreamReader = (LimitedStreamReader or StreamReader)(options, schema)
    return reader
