"""The rows of the ledger: one per transfer, one per attempt of a task and queue. Neither holds message bodies.

The row of a transfer says what happened to one message. The row of an attempt says what a task had counted of one queue
in its last report to the driver: the difference between the two is what a killed task did not record (D9).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from syphon.model import Counters

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TRANSFERS = (
    "pair string, queue string, sequence_number bigint, message_id string, destination string, session_id string, "
    "enqueued_at timestamp, received_at timestamp, forwarded_at timestamp, settled_at timestamp, size bigint, "
    "delivery_count int, outcome string, reason string, possible_duplicate boolean, job string, slot int, attempt int, "
    "renamed_to string"
)
"""The Spark schema of transfers: one row per transfer. `destination` is what the message named, `renamed_to` the entity
it went to or waits for, if the operator has renamed its destination. Files from before that have no such column."""

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


class Origin(NamedTuple):
    """Which task made a row: its pair, its job, and which attempt it was."""

    pair: str
    job: str
    slot: int
    attempt: int


class OpenJob(NamedTuple):
    """A job that begins. It is put on record before its first receive. The time is as in an Outcome."""

    job: str
    pair: str
    queues: tuple[str, ...]
    slots: int
    opened_at: int
