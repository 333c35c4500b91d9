"""Writes rows as messages to a queue or topic, at least once; and Spark's writers over that."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from syphon.model import SyphonError, plural
from syphon.servicebus import namespace_of
from syphon.transfer import EntitySender, OutgoingMessage

from .row_messages import BadRow, Columns, columns_of_batch, columns_of_rows, message_of, row_dicts
from .source_options import BadRows, SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa


log = logging.getLogger("syphon.datasource")
MOST_REASONS = 5
"""Skipped rows of a task whose reasons are kept."""


class RowRefused(SyphonError):
    """A row cannot be sent."""


@dataclass(frozen=True)
class WriteCounts:
    """What one task did with its rows."""

    partition: int
    sent: int
    skipped: int = 0
    possible_duplicates: int = 0
    reasons: tuple[str, ...] = field(default=())
    """Why rows were skipped, of the first ones."""
    attempts: int = 1
    """How often Spark has started the task, this attempt included. Each attempt sends the rows from the first one."""


def send_rows(options: SourceOptions, partition: int, batches: Iterable[Columns], attempts: int = 1) -> WriteCounts:
    """Sends the rows of one partition. Raises RowRefused for a row that cannot be sent, unless it may be skipped.

    Every error says how many messages had been accepted: nothing else does, because Spark keeps no counts of a task
    that fails.
    """
    entity, behaviour = options.entity, options.behaviour
    skipped = _Skipped(partition, entity, behaviour.bad_rows)
    sender = EntitySender(namespace_of(options.side, entity), entity, skipped.refused, behaviour.patience)
    number = 0
    try:
        for columns in batches:
            now = time.time_ns() // 1_000_000
            for row in row_dicts(columns):
                number += 1
                try:
                    made = message_of(row, now)
                except BadRow as error:
                    skipped.note(number, row.get("message_id"), str(error))
                else:
                    sender.send(OutgoingMessage(number, *made))
        sender.finish()
    except Exception as error:
        _add_accepted(error, sender.accepted, partition)
        if sender.accepted:  # Spark drops the error if it repeats a stage whose input it has lost
            log.warning(
                "partition %d failed after at least %d rows; a repetition sends them again", partition, sender.accepted
            )
        raise
    finally:
        sender.close()
    return WriteCounts(
        partition, sender.accepted, skipped.count, sender.possible_duplicates, tuple(skipped.reasons), attempts
    )


def _add_accepted(error: Exception, accepted: int, partition: int) -> None:
    """Adds to an error what had been sent. Messages may be in flight whose outcome is unknown: "at least"."""
    text = f"At least {accepted:,} rows of partition {partition} had been sent; another attempt sends them again."
    if isinstance(error, SyphonError):
        error.args = (f"{error} {text}",)
    else:
        error.add_note(text)  # its arguments may mean anything


class _Skipped:
    """The rows of a task that cannot be sent."""

    def __init__(self, partition: int, entity: str, rule: BadRows) -> None:
        self.count = 0
        self.reasons: list[str] = []
        self._partition, self._entity, self._rule = partition, entity, rule

    def refused(self, message: OutgoingMessage, error: SyphonError) -> None:
        self.note(message.number, message.restored.message_id, f"'{self._entity}' refuses it: {error}")

    def note(self, number: int, message_id: object, reason: str) -> None:
        name = "" if message_id is None else f" (message_id {message_id!r:.60})"
        text = f"row {number} of partition {self._partition}{name}: {reason.rstrip('.')}"
        if self._rule is BadRows.FAIL:
            raise RowRefused(f"{text}. The option bad_rows=skip sends the others.")
        self.count += 1
        if self.count <= MOST_REASONS:
            self.reasons.append(text)


def summarize(entity: str, counts: Sequence[WriteCounts]) -> str:
    """What a write has done, in one line."""
    sent, skipped = sum(each.sent for each in counts), sum(each.skipped for each in counts)
    repeats = sum(each.possible_duplicates for each in counts)
    text = f"{plural(sent, 'message')} sent to '{entity}' from {plural(len(counts), 'partition')}"
    if counts:
        text += f" ({', '.join(f'{each.partition}: {each.sent:,}' for each in sorted(counts, key=_partition))})"
    if repeats:
        text += f"; {repeats:,} of them may have arrived twice"
    for each in sorted(counts, key=_partition):
        if each.attempts > 1:
            text += f"; partition {each.partition} took {each.attempts} attempts: its rows may have arrived twice"
    if skipped:
        reasons = [reason for each in counts for reason in each.reasons][:MOST_REASONS]
        text += f"; {skipped:,} rows were skipped: {'; '.join(reasons)}{' …' if skipped > len(reasons) else ''}"
    return text + "."


def _partition(counts: WriteCounts) -> int:
    return counts.partition


def log_result(entity: str, counts: Sequence[WriteCounts], epoch: int | None = None) -> None:
    """Logs what a write has done: as a warning if rows are missing, or may have arrived twice.

    Spark runs this in a Python process without logging set up: there only warnings are seen.
    """
    text = summarize(entity, counts)
    is_plain = all(not each.skipped and not each.possible_duplicates and each.attempts == 1 for each in counts)
    log.log(logging.INFO if is_plain else logging.WARNING, "%s%s", "" if epoch is None else f"epoch {epoch}: ", text)


def report_failure(entity: str, counts: Sequence[WriteCounts], epoch: int | None = None) -> None:
    """Log that a write has failed, and what had been sent as far as is known: another write sends that again.

    Spark gives the counts of tasks that succeeded only.
    """
    log.warning(
        "%sthe write to '%s' failed. Of the partitions that finished, at least: %s Tasks that failed may have sent "
        "others, once per attempt: their errors say how many. Another write sends all of them again.",
        "" if epoch is None else f"epoch {epoch}: ",
        entity,
        summarize(entity, counts),
    )


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
    return Committed(send_rows(options, context.partitionId(), batches, attempts=context.attemptNumber() + 1))


def _in_columns(rows: Iterator[Any]) -> Iterator[Columns]:
    while some := list(islice(rows, ROWS)):
        yield columns_of_rows(some)


def _counts(messages: list[WriterCommitMessage | None]) -> list[WriteCounts]:
    return [message.counts for message in messages if isinstance(message, Committed)]
