"""The failover state machine of one queue or topic of the primary, shared by all senders of a pair (F2, F5).

    Healthy ──a failure that counts──► Doubtful ──failover_interval without a success──► FailedOver
       ▲ ▲                                │                                                  │
       │ └──────────a send succeeds───────┘                                                  │
       └───────────────────────────────a ping succeeds───────────────────────────────────────┘

It has no clock and no I/O: time is an argument, and each change is a returned value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from syphon.time_budget import BUSY_DELAY

from .events import Change, EntityFailedOver, EntityPinged, EntityReturned


class EntityState(Enum):
    """Where the messages for an entity go."""

    HEALTHY = auto()
    """To the primary."""
    DOUBTFUL = auto()
    """To the primary, but none has arrived since the first failure."""
    FAILED_OVER = auto()
    """To the backlog."""


class EntityEvent(Enum):
    """What senders and pings find out about an entity."""

    SEND_FAILED = auto()
    """With an error that counts."""
    SEND_SUCCEEDED = auto()
    INTERVAL_PASSED = auto()
    """The failover interval has passed since the first failure."""
    PING_FAILED = auto()
    PING_ARRIVED = auto()


TRANSITIONS: Mapping[tuple[EntityState, EntityEvent], EntityState] = {
    (EntityState.HEALTHY, EntityEvent.SEND_FAILED): EntityState.DOUBTFUL,
    (EntityState.DOUBTFUL, EntityEvent.SEND_FAILED): EntityState.DOUBTFUL,
    (EntityState.DOUBTFUL, EntityEvent.SEND_SUCCEEDED): EntityState.HEALTHY,
    (EntityState.DOUBTFUL, EntityEvent.INTERVAL_PASSED): EntityState.FAILED_OVER,
    (EntityState.FAILED_OVER, EntityEvent.PING_FAILED): EntityState.FAILED_OVER,
    (EntityState.FAILED_OVER, EntityEvent.PING_ARRIVED): EntityState.HEALTHY,
}
"""All other events change nothing. So a send that began before the failover does not bring the entity back: only a ping
does."""


@dataclass(slots=True)
class OrderedReturn:
    """The sends to the backlog since an entity was failed over: it returns when none can be left there (D21)."""

    begun: int = 0
    in_flight: int = 0
    waits_since: float | None = None
    """When its first ping arrived."""
    held_until: float = 0.0
    """New sends wait until then, so that the backlog becomes empty."""
    not_held_before: float = 0.0


class PrimaryEntity:
    """A queue or topic of the primary, as all senders of a pair see it."""

    def __init__(self, path: str, failover_interval: float, ping_interval: float) -> None:
        self.path = path
        self.state = EntityState.HEALTHY
        self.because: Exception | None = None
        """The last failure that counts; None while the entity is healthy."""
        self.failovers = 0
        """How often it has failed over. No sender uses a link to the primary that is older than the last failover."""
        self.busy_error: Exception | None = None
        self.busy_until = 0.0
        self.ordered: OrderedReturn | None = None
        """How it returns to the primary, while it is failed over and the order of sessions is kept."""
        self._since = 0.0
        """When its state began: for `DOUBTFUL` the first failure, for `FAILED_OVER` the failover."""
        self._ping_at = 0.0
        self._failover_interval = failover_interval
        self._ping_interval = ping_interval

    @property
    def is_healthy(self) -> bool:
        return self.state is EntityState.HEALTHY

    @property
    def is_failed_over(self) -> bool:
        return self.state is EntityState.FAILED_OVER

    def succeeded(self) -> None:
        """A send has arrived."""
        self.busy_error = None
        self._happened(EntityEvent.SEND_SUCCEEDED)

    def failed(self, error: Exception, now: float) -> Iterator[Change]:
        """A send has failed with an error that counts."""
        if self.is_healthy:
            self._since = now
        if self._happened(EntityEvent.SEND_FAILED):
            self.because = error
        yield from self.check(now)

    def check(self, now: float) -> Iterator[Change]:
        """Fails the entity over if the failover interval has passed."""
        due, failing_for = self._since + self._failover_interval, now - self._since
        if (
            now < due or self.because is None
        ):  # compared as in `due()`: a watch that waits until then must not wait again
            return
        if self._happened(EntityEvent.INTERVAL_PASSED):
            self._since, self._ping_at = now, now + self._ping_interval
            self.failovers += 1
            yield EntityFailedOver(self.path, failing_for, self.because)

    def was_busy(self, error: Exception, now: float) -> None:
        """The service has answered "server busy": no sender of the pair sends to the entity for ten seconds."""
        self.busy_error, self.busy_until = error, now + BUSY_DELAY

    def due(self) -> float | None:
        """When the entity needs attention: to fail over, or to be pinged. None while it is healthy."""
        if self.state is EntityState.DOUBTFUL:
            return self._since + self._failover_interval
        return self._ping_at if self.is_failed_over else None

    def pinged(self, error: Exception | None, began: float, now: float) -> Iterator[Change]:
        """A ping that began at `began` has arrived, or has failed with an error."""
        if not self._happened(EntityEvent.PING_ARRIVED if error is None else EntityEvent.PING_FAILED):
            return
        yield EntityPinged(self.path, error)
        if error is None:
            yield EntityReturned(self.path, now - self._since)
        else:
            self._ping_at = max(now, began + self._ping_interval)

    def _happened(self, event: EntityEvent) -> bool:
        """Moves to the next state. Returns whether the event means something in the present one."""
        after = TRANSITIONS.get((self.state, event))
        if after is None:
            return False
        self.state = after
        if after is EntityState.HEALTHY:
            self.because = None
        return True
