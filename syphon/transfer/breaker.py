"""The circuit breaker of a destination: whether the pump sends to it; if not, until when and why (S4, S9).

`TRANSITIONS` has its states. A session or partition key that times out has a breaker of its own (`FailingKeys`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from syphon.model import (
    DestinationBusy,
    Impossible,
    Interrupted,
    LockLost,
    NotAuthorized,
    RetryPolicy,
    SyphonError,
    Waits,
)
from syphon.time_budget import CUT_OFF_RETRY_AFTER, LONGEST_DESTINATION_DELAY, RECHECK_AFTER, RECHECK_RIGHTS_AFTER

log = logging.getLogger(__name__)

BROKEN_LINKS = 3
"""How often in a row a link may break before the destination backs off."""
BUSY_IN_A_ROW = 3
"""How often in a row a destination may answer busy, with nothing accepted between, and still be expected back soon: its
messages stay in flight, and it backs off for ten seconds each time. Busy is not a failure (S5)."""
FAILED_KEYS = 16
"""How many different keys in a row may time out before the destination counts as unavailable. Four would be too few if
two of its sixteen fragments are down: among 4,096 random keys are four in a row that belong there."""


@dataclass(frozen=True, slots=True)
class Available:
    """The destination accepts messages, as far as is known."""


@dataclass(frozen=True, slots=True)
class BackingOff:
    """The pump sends nothing to it until then; its messages stay in the backlog."""

    until: float
    because: SyphonError


@dataclass(frozen=True, slots=True)
class Rejecting:
    """The destination refuses every message: they are dead-lettered until the next attempt."""

    until: float
    because: SyphonError


State = Available | BackingOff | Rejecting


class Failure(Enum):
    """What can go wrong with a destination as a whole."""

    BROKEN_LINK = auto()
    """Its link broke, for the third time in a row: links break now and then, and the pump reopens them at once."""
    BUSY = auto()
    UNAVAILABLE = auto()
    REFUSING = auto()
    """It refuses every message (missing, disabled), and the operator counts that as temporary (S4)."""
    REFUSING_FOREVER = auto()
    """The same, and the operator counts it as permanent."""
    NO_RIGHT = auto()
    """The pump may not send to it: a person must grant the right first."""
    CUTTING_CONNECTION = auto()
    """The connection is lost whenever something is sent to it."""


TRANSITIONS: Mapping[Failure, tuple[type[BackingOff] | type[Rejecting], float | None]] = {
    Failure.BROKEN_LINK: (BackingOff, Waits.retry_after),
    Failure.BUSY: (BackingOff, None),
    Failure.UNAVAILABLE: (BackingOff, None),
    Failure.REFUSING: (BackingOff, RECHECK_AFTER),
    Failure.REFUSING_FOREVER: (Rejecting, RECHECK_AFTER),
    Failure.NO_RIGHT: (BackingOff, RECHECK_RIGHTS_AFTER),
    Failure.CUTTING_CONNECTION: (BackingOff, CUT_OFF_RETRY_AFTER),
}
"""The state that each failure leads to, from any state, and the seconds of the first delay; None: what the error says.
When the time of a state is over, the destination is available again. In `BackingOff` each failure in a row doubles the
delay, except the first `BUSY_IN_A_ROW` busy answers."""


class Breaker:
    """The breaker of one destination."""

    def __init__(self, path: str, permanent: frozenset[type[SyphonError]]) -> None:
        self.state: State = Available()
        self.failures = 0
        """How often in a row it has failed."""
        self.busy_in_a_row = 0
        """How often it has answered busy since it last accepted something."""
        self._path = path
        self._permanent = permanent
        self._broken = 0

    def state_at(self, now: float) -> State:
        """The state now. A state whose time is over becomes Available."""
        if isinstance(self.state, BackingOff | Rejecting) and now >= self.state.until:
            self.state = Available()
        return self.state

    def back_off(self, until: float, because: SyphonError, failures: int) -> None:
        """Backs off because another pump found that the destination is unavailable."""
        self.state = BackingOff(until, because)
        self.failures = self.busy_in_a_row = 0
        self.count_failures(because, failures)

    def retry(self) -> None:
        """Ends the pause, unless the service has asked for it: ten seconds without requests (S5)."""
        if not self.is_throttled:
            self.state = Available()

    def count_failures(self, because: SyphonError, failures: int) -> None:
        """Raises the failure count to another pump's, if that is higher."""
        if isinstance(because, DestinationBusy):
            self.busy_in_a_row = max(self.busy_in_a_row, failures)
            failures -= BUSY_IN_A_ROW
        self.failures = max(self.failures, failures)

    @property
    def is_throttled(self) -> bool:
        """Whether it backs off because the service answered busy, and is expected to accept messages soon."""
        return (
            self.busy_in_a_row <= BUSY_IN_A_ROW
            and isinstance(self.state, BackingOff)
            and isinstance(self.state.because, DestinationBusy)
        )

    @property
    def attempts(self) -> int:
        """How many attempts in a row have failed, for whatever reason."""
        return max(self.failures, self.busy_in_a_row)

    def is_permanent(self, error: SyphonError) -> bool:
        """Whether a message that met this error is dead-lettered (S4)."""
        return isinstance(error, Impossible) and type(error) in self._permanent

    def worked(self) -> None:
        self.failures = self.busy_in_a_row = self._broken = 0

    def failed(self, error: SyphonError, now: float) -> None:
        """Takes the failure of the destination as a whole into account: its next state, and for how long."""
        failure = self._failure(error)
        if failure is Failure.BROKEN_LINK:
            self._broken += 1
            if self._broken < BROKEN_LINKS:
                return
            self._broken = 0
        self._enter(failure, error, now)

    def cut_off(self, now: float) -> None:
        """Backs off because the connection is lost whenever something is sent to the destination."""
        error = Waits(f"The connection is lost whenever something is sent to '{self._path}'.")
        self._enter(Failure.CUTTING_CONNECTION, error, now)

    def _failure(self, error: SyphonError) -> Failure:
        if isinstance(error, Interrupted | LockLost):
            return Failure.BROKEN_LINK
        if self.is_permanent(error):
            return Failure.REFUSING_FOREVER
        if isinstance(error, DestinationBusy):
            return Failure.BUSY
        if isinstance(error, Waits):
            return Failure.UNAVAILABLE
        return Failure.NO_RIGHT if isinstance(error, NotAuthorized) else Failure.REFUSING

    def _enter(self, failure: Failure, error: SyphonError, now: float) -> None:
        state, delay = TRANSITIONS[failure]
        if delay is None:
            delay = error.retry_after if isinstance(error, Waits) else Waits.retry_after
        if state is Rejecting:
            self.state = Rejecting(now + delay, error)
        elif isinstance(error, DestinationBusy):
            self._wait_for_service(error, now)
        else:
            self._wait(delay, error, now)

    def _wait_for_service(self, error: DestinationBusy, now: float) -> None:
        """Backs off as long as the throttled service demands; doubles the time only if it stays busy (S9)."""
        if isinstance(self.state, BackingOff) and isinstance(self.state.because, DestinationBusy):
            return  # another batch that was in flight was refused too
        self.busy_in_a_row += 1
        if self.busy_in_a_row > BUSY_IN_A_ROW:
            self._wait(error.retry_after, error, now)
        elif not isinstance(self.state, BackingOff) or self.state.until < now + error.retry_after:
            log.info("destination %s is busy; retrying in %.0f s", self._path, error.retry_after)
            self.state = BackingOff(now + error.retry_after, error)

    def _wait(self, first_delay: float, error: SyphonError, now: float) -> None:
        """Backs off: each failure in a row doubles the time."""
        waits = self.state if isinstance(self.state, BackingOff) else None
        if waits is None:  # else: another batch that was in flight failed too, which is no new failure
            self.failures += 1
        delay = RetryPolicy(first=first_delay, longest=LONGEST_DESTINATION_DELAY).delay(self.failures - 1)
        if waits is None:
            log.warning(
                "destination %s is unavailable: %s; its messages stay in the backlog; retrying in %.0f s",
                self._path,
                str(error).rstrip("."),
                delay,
            )
        if waits is None or waits.until < now + delay:  # a service that requests ten seconds of quiet gets them (S5)
            self.state = BackingOff(now + delay, error)


Key = tuple[str | None, str | None]
"""Session and partition key."""
_KEY_RETRIES = RetryPolicy(first=Waits.retry_after, longest=LONGEST_DESTINATION_DELAY)


class FailingKeys:
    """The session and partition keys of one destination that time out. Each backs off alone, longer each time."""

    def __init__(self) -> None:
        self._until: dict[Key, tuple[float, int]] = {}
        """Until when each backs off, and how often it has timed out."""
        self._in_a_row: set[Key] = set()

    def __bool__(self) -> bool:
        return bool(self._until)

    def failed(self, key: Key, now: float) -> int:
        """Backs off a key that has timed out. Returns how many different keys have timed out in a row."""
        _, failures = self._until.get(key, (0.0, 0))
        self._until[key] = now + _KEY_RETRIES.delay(failures), failures + 1
        self._in_a_row.add(key)
        count = len(self._in_a_row)
        if count >= FAILED_KEYS:
            self._in_a_row.clear()  # the destination backs off: its next attempt restarts the count
        return count

    def worked(self, key: Key) -> None:
        """A message with this key was accepted."""
        self._until.pop(key, None)
        self._in_a_row.clear()

    def is_backing_off(self, key: Key, now: float) -> bool:
        """Whether a key backs off now."""
        return key in self._until and now < self._until[key][0]
