"""The rows of the ledger: one per transfer, one per attempt of a task. Neither holds message bodies.

The row of a transfer says what happened to one message. The row of an attempt says what a task had counted in its last
report to the driver: the difference between the two is what a killed task did not record (D9).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from syphon.model import Counters, Outcome

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TRANSFERS = (
    "pair string, queue string, sequence_number bigint, message_id string, destination string, session_id string, "
    "enqueued_at timestamp, received_at timestamp, forwarded_at timestamp, settled_at timestamp, size bigint, "
    "delivery_count int, outcome string, reason string, possible_duplicate boolean, job string, slot int, attempt int"
)
"""The Spark schema of transfers: one row per transfer."""

ATTEMPTS = (
    "pair string, queue string, job string, slot int, attempt int, started_at timestamp, ended_at timestamp, "
    "received bigint, forwarded bigint, dead_lettered bigint, left bigint, possible_duplicates bigint, "
    "finished boolean, error string"
)
"""The Spark schema of attempts: one row per attempt of a task. `finished` is false if it sent no last report."""


class Attempt(NamedTuple):
    """What a task had counted in one of its attempts, by its last report. Times are as in an Outcome."""

    pair: str
    queue: str
    job: str
    slot: int
    attempt: int
    started_at: int
    ended_at: int
    counters: Counters
    finished: bool
    error: str | None = None


class Origin(NamedTuple):
    """Which task made a row: its pair, its job, and which attempt it was."""

    pair: str
    job: str
    slot: int
    attempt: int


def transfer_rows(outcomes: Sequence[Outcome], origin: Origin) -> pa.RecordBatch:
    """Outcomes as an Arrow batch, as Spark takes them from a task."""
    import pyarrow as pa

    text, number, when = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
    by_column = list(zip(*outcomes, strict=True)) or [()] * len(Outcome._fields)
    by_name = dict(zip(Outcome._fields, by_column, strict=True))

    def times(name: str) -> pa.Array:
        return pa.array([value * 1000 if value else None for value in by_name[name]], number).cast(when)

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), len(outcomes))

    def each(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array(by_name[name], kind)

    columns = {
        "pair": same(origin.pair, text),
        "queue": each("queue", text),
        "sequence_number": each("sequence_number", number),
        "message_id": each("message_id", text),
        "destination": each("destination", text),
        "session_id": each("session_id", text),
        "enqueued_at": times("enqueued_at"),
        "received_at": times("received_at"),
        "forwarded_at": times("forwarded_at"),
        "settled_at": times("settled_at"),
        "size": each("size", number),
        "delivery_count": each("delivery_count", pa.int32()),
        "outcome": each("result", text),
        "reason": each("reason", text),
        "possible_duplicate": each("possible_duplicate", pa.bool_()),
        "job": same(origin.job, text),
        "slot": same(origin.slot, pa.int32()),
        "attempt": same(origin.attempt, pa.int32()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def attempt_rows(attempts: Sequence[Attempt]) -> list[tuple[object, ...]]:
    """Attempts as tuples, as Spark takes them from the driver."""

    def when(millis: int) -> datetime:
        return EPOCH + timedelta(milliseconds=millis)

    def row(attempt: Attempt) -> tuple[object, ...]:
        counters = attempt.counters
        return (
            *attempt[:5],
            when(attempt.started_at),
            when(attempt.ended_at),
            counters.received,
            counters.forwarded,
            counters.dead_lettered,
            counters.left,
            counters.possible_duplicates,
            attempt.finished,
            attempt.error,
        )

    return [row(attempt) for attempt in attempts]
