"""The rows of the ledger, and which of them a report selects. Neither table holds message bodies.

There is one row per transfer: what happened to one message. There is one per attempt of a task and queue: it says what
the task had counted of that queue in its last report to the driver. The difference between the two is what a killed
task did not record (D9).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from syphon.model import Counters

if TYPE_CHECKING:
    import pyarrow as pa

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TRANSFERS = (
    "pair string, queue string, sequence_number bigint, message_id string, destination string, session_id string, "
    "enqueued_at timestamp, received_at timestamp, forwarded_at timestamp, settled_at timestamp, size bigint, "
    "delivery_count int, outcome string, reason string, possible_duplicate boolean, job string, slot int, attempt int, "
    "renamed_to string, ordered boolean"
)
"""The Spark schema of transfers: one row per transfer. `destination` is what the message named, `renamed_to` the entity
it went to or waits for, if the operator has renamed its destination; `ordered` whether its pair keeps the order of
sessions. Older files lack the last columns."""

ATTEMPTS = (
    "pair string, queue string, job string, slot int, attempt int, started_at timestamp, ended_at timestamp, "
    "received bigint, forwarded bigint, dead_lettered bigint, left bigint, possible_duplicates bigint, "
    "finished boolean, error string"
)
"""The Spark schema of attempts: one row per attempt and queue. `finished` is false if the task sent no last report."""


class Attempt(NamedTuple):
    """What a task had counted of one queue in one of its attempts, by its last report. Times are as in an Outcome."""

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


class OpenJob(NamedTuple):
    """A job that begins. It is put on record before its first receive. The time is as in an Outcome."""

    job: str
    pair: str
    queues: tuple[str, ...]
    slots: int
    opened_at: int


LONGEST_ATTEMPT = timedelta(days=2)
"""Longer than any attempt: a task lives no longer than its lease, and a lease is at most an hour."""


@dataclass(frozen=True)
class Period:
    """From a moment up to, but not including, another moment. None means no limit."""

    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class Selection:
    """The transfers that a report is about: those of a period and of a pair, or of all."""

    period: Period
    pair: str | None = None

    @property
    def near(self) -> Period:
        """The period in which the attempts that ended within the selected one may have settled messages."""
        since, until = self.period.since, self.period.until
        return Period(since and since - LONGEST_ATTEMPT, until and until + LONGEST_ATTEMPT)


def micros(when: datetime) -> int:
    """Microseconds since 1970."""
    return (when - EPOCH) // timedelta(microseconds=1)


def within(times: pa.ChunkedArray, period: Period) -> pa.ChunkedArray:
    """Which of these times are in the period."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.cast(pc.cast(times, pa.timestamp("us", tz="UTC"), safe=False), pa.int64())
    found = pc.is_valid(numbers)
    if period.since is not None:
        found = pc.and_(found, pc.greater_equal(numbers, micros(period.since)))
    if period.until is not None:
        found = pc.and_(found, pc.less(numbers, micros(period.until)))
    return pc.fill_null(found, False)
