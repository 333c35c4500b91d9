"""The stream reader of the data source: Spark's interface over `new_messages`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from .filters import Wanted
from .new_messages import NewMessages, Offsets
from .options import SourceOptions
from .reading import read_range
from .schema import read_names

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


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
