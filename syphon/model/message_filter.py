"""Selects messages of a queue: by destination, by the time when they came into it, and by an expression.

There is one filter. The pump compares each message with it, the drain compares each message that it peeks at, and
Spark SQL uses a condition that is made from the same object. (The expression is not part of that: the reader of
the messages evaluates it.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from .entity_path import EntityPath, PathPatterns


class MessageCondition(Protocol):
    """A condition on the bytes of a message, as `--where` states it."""

    def holds(self, payload: bytes) -> bool: ...


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Matches all messages unless a field restricts it. Times are milliseconds since 1970."""

    destinations: PathPatterns = field(default_factory=PathPatterns)
    before: int | None = None
    after: int | None = None
    """Inclusive; `before` is exclusive."""
    where: MessageCondition | None = None

    def matches(self, destination: EntityPath | None, enqueued_at: int, payload: bytes = b"") -> bool:
        """Whether a message is selected. One without a readable destination is, unless destinations are named."""
        if self.before is not None and enqueued_at >= self.before:
            return False
        if self.after is not None and enqueued_at < self.after:
            return False
        if not self.destinations.fit_all and (destination is None or not self.destinations.fit(destination)):
            return False
        return self.where is None or self.where.holds(payload)

    @property
    def is_specific(self) -> bool:
        """Whether it names what a person may have misspelled. A period that matches nothing is normal."""
        return self.needs_destination or self.where is not None

    @property
    def needs_destination(self) -> bool:
        """Whether the destination of a message must be read to decide."""
        return not self.destinations.fit_all

    def sql(self) -> str:
        """Destinations and times as a condition on the columns `destination` and `enqueued_at` of a backlog's rows."""
        conditions = ["true"]
        if self.before is not None:
            conditions.append(f"unix_millis(enqueued_at) < {self.before}")
        if self.after is not None:
            conditions.append(f"unix_millis(enqueued_at) >= {self.after}")
        if self.needs_destination:
            key = "lower(trim(BOTH '/' FROM destination))"
            conditions.append(f"coalesce({key} rlike {_literal(self.destinations.java_regex)}, false)")
        return " and ".join(conditions)


def millis_of(moment: datetime | None) -> int | None:
    """Milliseconds since 1970."""
    return None if moment is None else round(moment.timestamp() * 1000)


def _literal(text: str) -> str:
    """A string literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
