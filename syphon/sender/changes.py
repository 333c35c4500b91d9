"""What happens to a pair, as values: their text is the log line, and what the application's callback is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .errors import brief


@dataclass(frozen=True, slots=True)
class EntityFailedOver:
    """Nothing sent to the entity has arrived for the failover interval."""

    entity: str
    failing_for: float
    """Seconds since the first failure."""
    because: Exception

    def __str__(self) -> str:
        since = f"failing for {self.failing_for:.0f} s" if self.failing_for >= 1 else "failing"
        return f"'{self.entity}' is failed over ({since}): its messages go to the backlog. {brief(self.because)}"


@dataclass(frozen=True, slots=True)
class EntityPinged:
    """The entity was tried."""

    entity: str
    error: Exception | None

    def __str__(self) -> str:
        answer = "and took it" if self.error is None else f"and failed: {brief(self.error)}"
        return f"'{self.entity}' was sent a ping, {answer}"


@dataclass(frozen=True, slots=True)
class EntityReturned:
    """A ping has arrived: all senders use the primary again."""

    entity: str
    away_for: float
    """Seconds since it was failed over."""

    def __str__(self) -> str:
        return f"'{self.entity}' is back after {self.away_for:.0f} s: its messages go to the primary again"


@dataclass(frozen=True, slots=True)
class QueueTakenOut:
    """A backlog queue did not take messages: no sender of the pair uses it for a while."""

    queue: str
    seconds: float
    because: Exception

    def __str__(self) -> str:
        return f"{self.queue} is out of rotation for {self.seconds:.0f} s: {brief(self.because)}"


@dataclass(frozen=True, slots=True)
class QueueTakenBack:
    """A backlog queue that had been taken out takes messages again."""

    queue: str

    def __str__(self) -> str:
        return f"{self.queue} takes messages again"


Change: TypeAlias = EntityFailedOver | EntityPinged | EntityReturned | QueueTakenOut | QueueTakenBack
