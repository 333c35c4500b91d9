"""Spark's readers of the data source, for tables and for streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from .columns import read_names
from .consumption import BATCH, MOST_ROWS, ConsumedOffset, Consumption, read_consumed
from .peek_read import plan_ranges, push, read_range, since
from .source_options import SOURCE, BadSourceOptions, SourceOptions
from .stream_offsets import NewMessages, Offsets

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Peeks at all messages that exist when its tasks begin.

    It takes filters of Spark's only with the option `pushdown`. Spark 4.3 keeps the filters of a query for the frame
    that was loaded, and not for the query: a second query of the same frame would get the rows of the first one.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._names = read_names(schema)
        self._nullable = [field.nullable for field in schema.fields]
        self._wanted = since(options)

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
        return read_range(self._options.side, partition.value, self._names, self._nullable, since(self._options))

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
    ConsumingStreamReader: Any = None
else:

    class LimitedStreamReader(StreamReader, SupportsTriggerAvailableNow):  # type: ignore[no-redef]
        """The same; it limits the rows of a micro-batch, and `availableNow` ends."""

        def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # type: ignore[override]  # noqa: N802
            return self._new_messages.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

        def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
            """Shown in the progress of a query beside the offset that it has read: the difference is its lag."""
            return self._new_messages.newest or None

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            most = self._options.behaviour.max_rows
            return ReadAllAvailable() if most is None else ReadMaxRows(most)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._new_messages.stop_at_present()

    class ConsumingStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[no-redef]
        """Takes the messages that come out of their entities: see `consumption`."""

        def __init__(self, options: SourceOptions, schema: StructType) -> None:
            self._options = options
            self._names = read_names(schema)
            self._nullable = [field.nullable for field in schema.fields]
            self._consumption = Consumption(options)

        def initialOffset(self) -> ConsumedOffset:  # noqa: N802
            return {BATCH: 0}

        def latestOffset(self, start: ConsumedOffset, limit: ReadLimit) -> ConsumedOffset:  # noqa: N802
            return self._consumption.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            return ReadMaxRows(self._options.behaviour.max_rows or MOST_ROWS)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._consumption.stop_at_present()

        def partitions(self, start: ConsumedOffset, end: ConsumedOffset) -> list[InputPartition]:  # noqa: ARG002
            return [InputPartition(part) for part in self._consumption.parts(end)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return read_consumed(self._options.side, partition.value, self._names, self._nullable)

        def stop(self) -> None:
            self._consumption.close()


def stream_reader(options: SourceOptions, schema: StructType) -> DataSourceStreamReader:
    """The reader of streams that this Spark can use best."""
    if options.behaviour.consume:
        if ConsumingStreamReader is None:
            raise BadSourceOptions(f"{SOURCE}: consume needs Spark 4.2 or newer.")
        consuming: DataSourceStreamReader = ConsumingStreamReader(options, schema)
        return consuming
    reader: StreamReader = (LimitedStreamReader or StreamReader)(options, schema)
    return reader
