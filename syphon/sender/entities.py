"""One queue or topic of the primary, as all senders of a pair see it: the failover state machine (F2, F5).

    Healthy ──a failure that counts──► Doubtful ──failover_interval without a success──► FailedOver
       ▲ ▲                                │                                                  │
       │ └──────────a send succeeds───────┘                                                  │
       └───────────────────────────────a ping succeeds───────────────────────────────────────┘

Pure: time comes in as an argument, what happened goes out as a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .changes import Change, EntityFailedOver, EntityPinged, EntityReturned

QUIET = 10.0
"""Seconds a busy entity is left alone (S5)."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """Messages go to the primary."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Messages go to the primary, and since then none has arrived."""

    since: float
    because: Exception


@dataclass(frozen=True, slots=True)
class FailedOver:
    """Messages go to the backlog."""

    since: float
    because: Exception
    ping_at: float


State = Healthy | Doubtful | FailedOver
HEALTHY = Healthy()


class Entity:
    """A queue or topic of the primary."""

    def __init__(self, path: str, failover_interval: float, ping_interval: float) -> None:
        self.path = path
        self.state: State = HEALTHY
        self.failovers = 0
        """How often it has failed over: a link to the primary that was opened before is not used again."""
        self.busy: Exception | None = None
        self.quiet_until = 0.0
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval

    @property
    def is_failed_over(self) -> bool:
        return isinstance(self.state, FailedOver)

    def succeeded(self) -> None:
        """A send has arrived. One that was under way when the entity failed over is no reason to return: a ping is."""
        self.busy = None
        if isinstance(self.state, Doubtful):
            self.state = HEALTHY

    def failed(self, error: Exception, now: float) -> Iterator[Change]:
        """A send has failed, in a way that counts."""
        if isinstance(self.state, Healthy):
            self.state = Doubtful(now, error)
        elif isinstance(self.state, Doubtful):
            self.state = Doubtful(self.state.since, error)
        yield from self.check(now)

    def check(self, now: float) -> Iterator[Change]:
        """Applies the failover interval."""
        doubt = self.state
        if isinstance(doubt, Doubtful) and now >= doubt.since + self._failover_interval:
            self.state = FailedOver(now, doubt.because, now + self._ping_interval)
            self.failovers += 1
            yield EntityFailedOver(self.path, now - doubt.since, doubt.because)

    def was_busy(self, error: Exception, now: float) -> None:
        """The service asked for quiet: no sender of the pair sends to the entity for ten seconds."""
        self.busy, self.quiet_until = error, now + QUIET

    def due(self) -> float | None:
        """When it has to be looked at: to fail over, or to be pinged."""
        if isinstance(self.state, Doubtful):
            return self.state.since + self._failover_interval
        return self.state.ping_at if isinstance(self.state, FailedOver) else None

    def pinged(self, error: Exception | None, began: float, now: float) -> Iterator[Change]:
        """A ping that began then has arrived, or failed."""
        if not isinstance(self.state, FailedOver):
            return
        yield EntityPinged(self.path, error)
        if error is None:
            away_for, self.state = now - self.state.since, HEALTHY
            yield EntityReturned(self.path, away_for)
        else:
            ping_at = max(now, began + self._ping_interval)
            self.state = FailedOver(self.state.since, self.state.because, ping_at)
