"""The failover state machine of one queue or topic of the primary, shared by all senders of a pair (F2, F5).

    Healthy ──a failure that counts──► Doubtful ──failover_interval without a success──► FailedOver
       ▲ ▲                                │                                                  │
       │ └──────────a send succeeds───────┘                                                  │
       └───────────────────────────────a ping succeeds───────────────────────────────────────┘

It has no clock and no I/O: time is an argument, and each event is a returned value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .events import Change, EntityFailedOver, EntityPinged, EntityReturned

BUSY_PAUSE = 10.0
"""Seconds during which no sender sends to a busy entity (S5)."""


@dataclass(frozen=True, slots=True)
class Healthy:
    """Messages go to the primary."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Messages go to the primary, but none has arrived since the first failure."""

    since: float
    because: Exception


@dataclass(frozen=True, slots=True)
class FailedOver:
    """Messages go to the backlog."""

    since: float
    because: Exception
    ping_at: float


EntityState = Healthy | Doubtful | FailedOver
HEALTHY = Healthy()


class PrimaryEntity:
    """A queue or topic of the primary, as all senders of a pair see it."""

    def __init__(self, path: str, failover_interval: float, ping_interval: float) -> None:
        self.path = path
        self.state: EntityState = HEALTHY
        self.failovers = 0
        """How often it has failed over. No sender uses a link to the primary that is older than the last failover."""
        self.busy_error: Exception | None = None
        self.busy_until = 0.0
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval

    @property
    def is_failed_over(self) -> bool:
        return isinstance(self.state, FailedOver)

    def succeeded(self) -> None:
        """A send has arrived.

        A send that began before the failover does not bring the entity back: only a ping does.
        """
        self.busy_error = None
        if isinstance(self.state, Doubtful):
            self.state = HEALTHY

    def failed(self, error: Exception, now: float) -> Iterator[Change]:
        """A send has failed with an error that counts."""
        if isinstance(self.state, Healthy):
            self.state = Doubtful(now, error)
        elif isinstance(self.state, Doubtful):
            self.state = Doubtful(self.state.since, error)
        yield from self.check(now)

    def check(self, now: float) -> Iterator[Change]:
        """Fails the entity over if the failover interval has passed."""
        doubt = self.state
        if isinstance(doubt, Doubtful) and now >= doubt.since + self._failover_interval:
            self.state = FailedOver(now, doubt.because, now + self._ping_interval)
            self.failovers += 1
            yield EntityFailedOver(self.path, now - doubt.since, doubt.because)

    def was_busy(self, error: Exception, now: float) -> None:
        """The service has answered "server busy": no sender of the pair sends to the entity for ten seconds."""
        self.busy_error, self.busy_until = error, now + BUSY_PAUSE

    def due(self) -> float | None:
        """When the entity needs attention: to fail over, or to be pinged. None while it is healthy."""
        if isinstance(self.state, Doubtful):
            return self.state.since + self._failover_interval
        return self.state.ping_at if isinstance(self.state, FailedOver) else None

    def pinged(self, error: Exception | None, began: float, now: float) -> Iterator[Change]:
        """A ping that began at `began` has arrived, or has failed with an error."""
        if not isinstance(self.state, FailedOver):
            return
        yield EntityPinged(self.path, error)
        if error is None:
            away_for, self.state = now - self.state.since, HEALTHY
            yield EntityReturned(self.path, away_for)
        else:
            ping_at = max(now, began + self._ping_interval)
            self.state = FailedOver(self.state.since, self.state.because, ping_at)
