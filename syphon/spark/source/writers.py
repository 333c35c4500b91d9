"""The writers of the data source, for tables and for streams: Spark's interface over `writing`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from .options import SourceOptions
from .row_messages import Columns, columns_of_batch, columns_of_rows
from .writing import WriteCounts, log_result, report_failure, send_rows

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 1000
"""Rows that are made into messages at once, where Spark gives single rows."""


@dataclass(frozen=True)
class Committed(WriterCommitMessage):
    """What a task tells the driver."""

    counts: WriteCounts


class BatchWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
        return _sent(self._options, map(columns_of_batch, iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log_result(self._options.entity, _counts(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        report_failure(self._options.entity, _counts(messages))


class StreamWriter(DataSourceStreamWriter):
    """Sends the rows of each micro-batch, as single rows: Spark 4.0 has no other way."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> Committed:
        return _sent(self._options, _in_columns(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        log_result(self._options.entity, _counts(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        report_failure(self._options.entity, _counts(messages), batchId)


if hasattr(datasource, "DataSourceStreamArrowWriter"):

    class ArrowStreamWriter(StreamWriter, datasource.DataSourceStreamArrowWriter):
        """Sends the rows of each micro-batch."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Committed:
            return _sent(self._options, map(columns_of_batch, iterator))


def stream_writer(options: SourceOptions) -> DataSourceStreamWriter:
    """The quickest writer of streams that this Spark has."""
    return ArrowStreamWriter(options) if hasattr(datasource, "DataSourceStreamArrowWriter") else StreamWriter(options)


def _sent(options: SourceOptions, batches: Iterator[Columns]) -> Committed:
    context = TaskContext.get()
    if context is None:
        return Committed(send_rows(options, 0, batches))
    return Committed(send_rows(options, context.partitionId(), batches, tries=context.attemptNumber() + 1))


def _in_columns(rows: Iterator[Any]) -> Iterator[Columns]:
    while some := list(islice(rows, ROWS)):
        yield columns_of_rows(some)


def _counts(messages: list[WriterCommitMessage | None]) -> list[WriteCounts]:
    return [message.counts for message in messages if isinstance(message, Committed)]
