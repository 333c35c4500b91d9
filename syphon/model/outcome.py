"""What became of a message, as a value: one row of the account that a transfer leaves behind."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Result(StrEnum):
    """The ways a transfer can end."""

    FORWARDED = "forwarded"
    """The destination accepted it and it is completed on the backlog."""
    DEAD_LETTERED = "dead_lettered"
    """It can never arrive as it is: it lies in the backlog queue's dead letters, with the reason."""
    LEFT = "left"
    """It stays in the backlog: its destination waits, or we were told to stop."""


class Outcome(NamedTuple):
    """One transfer. Times are milliseconds since 1970. Bodies are never in here."""

    queue: str
    sequence_number: int
    message_id: str
    destination: str
    session_id: str | None
    enqueued_at: int
    received_at: int
    forwarded_at: int | None
    settled_at: int
    size: int
    delivery_count: int
    result: Result
    reason: str = ""
    possible_duplicate: bool = False
    """The destination may have it twice, under the same message id."""
