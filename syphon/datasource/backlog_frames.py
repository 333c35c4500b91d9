"""The backlog and the ledger as DataFrames, in any session (X6), and what `inspect` and a dry run count in the backlog.

A few Spark tasks peek into all queues, and make a row of each message, without its body. Peeking locks, receives and
changes nothing. Connection strings travel inside the pickled task, and are in no row and no plan.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from syphon.backlog import MessagePreview, PreviewRules, SelectedQueue, preview_message, select_queues
from syphon.config import ConfigLike, settings_of
from syphon.ledger import Ledger
from syphon.model import MessageCondition, SyphonError, first_line
from syphon.option_declarations import read_where
from syphon.servicebus import Peeked, connected, peek_pages
from syphon.spark import access_to

from .message_batches import STATES, in_batches

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BACKLOG_SCHEMA = (
    "pair string, queue string, sequence_number bigint, message_id string, destination string, session_id string, "
    "enqueued_at timestamp, scheduled_for timestamp, expires_at timestamp, size bigint, delivery_count int, "
    "state string, dead_letter_reason string, dead_letter_description string, restored_size bigint, "
    "backlog_expires_at timestamp"
)
"""The Spark schema: one row per message of the backlog."""
SELECTED = "selected"
"""The column that says whether an expression selects the message."""
TASKS_PER_SLOT = 2
"""Queues are not equally deep: a slot that has finished gets another task."""


class BacklogUnseen(SyphonError):
    """The backlog could not be peeked to its end."""


@dataclass(frozen=True)
class DestinationSummary:
    """The messages that wait for one destination. `destination` is None for messages that name none."""

    pair: str
    destination: str | None
    messages: int
    bytes: int
    oldest: datetime | None
    scheduled: int
    """Messages that are scheduled for a time in the future."""
    expired: int
    """Messages whose time to live has expired."""
    dead_letters: int
    """Messages that a drain would dead-letter, with the current settings."""
    expiring_in_backlog: int = 0
    """Messages that will expire in the backlog, and go to its dead letters (M9)."""
    first_backlog_expiry: datetime | None = None
    renamed_to: str | None = None
    """The entity that they would go to, if the operator has renamed the destination."""


@dataclass(frozen=True)
class DeadLetterPreview:
    """Why a drain would dead-letter messages for one destination, and how many."""

    pair: str
    destination: str | None
    reason: str
    messages: int
    example: str


def backlog(
    spark: SparkSession,
    config: ConfigLike,
    *,
    pairs: Sequence[str] = (),
    queues: Sequence[str] = (),
    where: str | None = None,
) -> DataFrame:
    """The messages that wait in the backlog queues, with where a drain would send them: the rows of `syphon inspect`.

    `config` is a settings file, its content as a dict, or a `Config`; `pairs` and `queues` choose some, as the options
    of the command do, and `where` is its `--where`. Each evaluation peeks again: persist the frame to query it twice.
    Nothing is received or changed.
    """
    selected = select_queues(settings_of(config).pairs, pairs, queues)
    access_to(spark).ship()
    condition = None if where is None else read_where(where)
    return backlog_frame(spark, selected, condition).where(SELECTED).drop(SELECTED)


def ledger(spark: SparkSession, path: str | Path, table: Literal["transfers", "attempts"] = "transfers") -> DataFrame:
    """A table of the ledger: a row for each transfer, or for each attempt of a task and queue. It may be written to
    meanwhile; every row occurs once. Raises LedgerUnreadable.
    """
    found = Ledger(spark, str(path))
    return found.transfers() if table == "transfers" else found.attempts()


def backlog_frame(
    spark: SparkSession, selected: Sequence[SelectedQueue], where: MessageCondition | None = None
) -> DataFrame:
    """A row per message in these queues: the columns of `BACKLOG_SCHEMA`, and `SELECTED`, which is what `where` says.

    Each evaluation peeks again: persist to query it twice.
    """
    shares = shared_out(selected, TASKS_PER_SLOT * access_to(spark).most_slots())

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from backlog_batches(shares[index], where)

    return spark.range(0, len(shares), 1, len(shares)).mapInArrow(look, f"{BACKLOG_SCHEMA}, {SELECTED} boolean")


def shared_out(queues: Sequence[SelectedQueue], most: int) -> list[list[SelectedQueue]]:
    """The queues in `most` shares at most, the queues of a pair next to each other.

    A task costs half a second before its first message, most of it for a process and a connection: a task for each of
    100 nearly empty queues took four times as long as their drain.
    """
    ordered = sorted(queues, key=lambda each: each.pair.name)
    count = min(len(ordered), max(1, most))
    ends = [len(ordered) * part // count for part in range(count + 1)] if count else []
    return [ordered[first:end] for first, end in pairwise(ends)]


def backlog_batches(queues: Iterable[SelectedQueue], where: MessageCondition | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of some queues, over one connection for each pair."""
    for _, of_pair in groupby(queues, key=lambda each: each.pair.name):
        some = list(of_pair)
        pair = some[0].pair
        rules = PreviewRules(pair.destinations.allowed, pair.time_to_live)
        with connected(pair.secondary, some[0].queue) as connection:
            for selected in some:
                for messages in in_batches(peek_pages(connection, selected.queue)):
                    yield _batch(selected, [_message_row(message, rules, where) for message in messages])


class _MessageRow(NamedTuple):
    message: MessagePreview
    sequence_number: int
    state: str
    selected: bool


def _message_row(peeked: Peeked, rules: PreviewRules, where: MessageCondition | None) -> _MessageRow:
    preview = preview_message(peeked.payload, time.time_ns() // 1_000_000, rules)
    is_selected = where is None or where.holds(peeked.payload)
    return _MessageRow(preview, peeked.sequence_number, STATES[peeked.state], is_selected)


def _batch(selected: SelectedQueue, rows: Sequence[_MessageRow]) -> pa.RecordBatch:
    import pyarrow as pa

    text, number, when = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")

    def same(value: str) -> pa.Array:
        return pa.array([value] * len(rows), text)

    def each(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([getattr(row.message, name) for row in rows], kind)

    def times(name: str) -> pa.Array:
        values = [getattr(row.message, name) for row in rows]
        return pa.array([None if value is None else value * 1000 for value in values], when)

    columns = {
        "pair": same(selected.pair.name),
        "queue": same(selected.queue),
        "sequence_number": pa.array([row.sequence_number for row in rows], number),
        "message_id": each("message_id", text),
        "destination": each("destination", text),
        "session_id": each("session_id", text),
        "enqueued_at": times("enqueued_at"),
        "scheduled_for": times("scheduled_for"),
        "expires_at": times("expires_at"),
        "size": each("size", number),
        "delivery_count": each("delivery_count", pa.int32()),
        "state": pa.array([row.state for row in rows], text),
        "dead_letter_reason": each("reason", text),
        "dead_letter_description": each("description", text),
        "restored_size": each("restored_size", number),
        "backlog_expires_at": times("backlog_expires_at"),
        SELECTED: pa.array([row.selected for row in rows], pa.bool_()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def summary(frame: DataFrame) -> list[DestinationSummary]:
    """The messages that wait for each destination, the most first."""
    from pyspark.sql import functions as f

    now = f.current_timestamp()
    totals = frame.groupBy("pair", "destination").agg(
        f.count("*").alias("messages"),
        f.sum("size").alias("bytes"),
        f.min("enqueued_at").cast("double").alias("oldest"),
        f.count(f.when(f.col("scheduled_for") > now, 1)).alias("scheduled"),
        f.count(f.when(f.col("expires_at") <= now, 1)).alias("expired"),
        f.count("dead_letter_reason").alias("dead_letters"),
        f.count("backlog_expires_at").alias("expiring_in_backlog"),
        f.min("backlog_expires_at").cast("double").alias("first_backlog_expiry"),
    )
    rows = totals.orderBy("pair", f.desc("messages"), "destination").collect()
    moments = ("oldest", "first_backlog_expiry")
    return [DestinationSummary(**{**row.asDict(), **{name: _moment(row[name]) for name in moments}}) for row in rows]


def dead_letter_previews(frame: DataFrame) -> list[DeadLetterPreview]:
    """The messages that a drain would dead-letter, by reason, the most first."""
    from pyspark.sql import functions as f

    refused = frame.where(f.col("dead_letter_reason").isNotNull())
    grouped = refused.groupBy("pair", "destination", f.col("dead_letter_reason").alias("reason")).agg(
        f.count("*").alias("messages"), f.min("dead_letter_description").alias("example")
    )
    return [
        DeadLetterPreview(**row.asDict()) for row in grouped.orderBy("pair", f.desc("messages"), "reason").collect()
    ]


def larger_than(frame: DataFrame, limits: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """How many messages are too large for their destination, by pair and destination, with what each takes (M7)."""
    from pyspark.sql import functions as f

    if not limits:
        return {}
    is_over = f.lit(False)
    for (pair, destination), most in limits.items():
        ours = (f.col("pair") == pair) & (f.col("destination") == destination)
        is_over = is_over | (ours & (f.col("restored_size") > most))
    over = frame.where(f.col("dead_letter_reason").isNull() & is_over).groupBy("pair", "destination").count()
    return {(row["pair"], row["destination"]): row["count"] for row in over.collect()}


def _moment(seconds: float | None) -> datetime | None:
    # Spark would return a naive datetime in the time zone of the machine.
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


@contextmanager
def looking(spark: SparkSession) -> Iterator[None]:
    """Raises an error of a task as BacklogUnseen or PythonUnusable, without the long stack trace that Spark adds."""
    from pyspark.errors import PySparkException

    from syphon.spark import check_python  # executors import this module, and lack what a job of the driver needs

    try:
        yield
    except PySparkException as error:
        check_python(spark, error)
        words = re.findall(r"^syphon\.[\w.]+: (.+)$", str(error), re.MULTILINE)
        raise BacklogUnseen(words[-1] if words else first_line(error)) from None
