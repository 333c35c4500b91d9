"""What became of messages: of one message (`Outcome`), and of many (`Counters`).

The fields of `Counters` are declared here and nowhere else. The pump counts them, a slot reports them, the ledger
records them, the drain, the report and `/status` show them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import NamedTuple, Self


class Result(StrEnum):
    """The ways a transfer can end."""

    FORWARDED = "forwarded"
    """The destination accepted the message, and it is completed on the backlog."""
    DEAD_LETTERED = "dead_lettered"
    """The message can never arrive as it is. It is in the backlog queue's dead letters, with the reason."""
    LEFT = "left"
    """The message stays in the backlog: its destination takes no messages now, or the transfer was stopped."""


class Outcome(NamedTuple):
    """One transfer, as the ledger records it. Times are milliseconds since 1970. It never contains a body."""

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
    """The destination may have the message twice, under the same message id."""
    renamed_to: str | None = None
    """The entity it went to, or waits for, if the operator has renamed its destination."""


@dataclass(slots=True)
class Counters:
    """How many transfers ended in which way: received = forwarded + dead_lettered + left + without_outcome."""

    received: int = 0
    forwarded: int = 0
    """The destination accepted the message, and it is completed on the backlog."""
    dead_lettered: int = 0
    left: int = 0
    """The message stays in the backlog."""
    outside: int = 0
    """Messages counted in `left` because the filter did not match them."""
    possible_duplicates: int = 0
    """The destination may have the message twice, under the same message id."""
    bytes_forwarded: int = 0

    @property
    def moved(self) -> int:
        """Messages that are no longer in the backlog."""
        return self.forwarded + self.dead_lettered

    @property
    def without_outcome(self) -> int:
        """Received, and either still in hand or lost with a task that was killed."""
        return self.received - self.forwarded - self.dead_lettered - self.left

    def __add__(self, other: Self) -> Self:
        return type(self).total((self, other))

    @classmethod
    def total(cls, parts: Iterable[Counters]) -> Self:
        """The sum of all fields that this class has."""
        values = _values_of(cls)  # type: ignore[arg-type]  # the class can be hashed, although its values cannot
        return cls(*map(sum, zip(*map(values, parts), strict=True)))

    def counters(self) -> Counters:
        """These fields alone, as a new value without the fields that a subclass adds."""
        return Counters.total([self])


@cache
def _values_of(kind: type[Counters]) -> attrgetter[tuple[int, ...]]:
    """What reads the fields of this class, in their order. Every report of every slot is added up with it."""
    return attrgetter(*(field.name for field in fields(kind)))
