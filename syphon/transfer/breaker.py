"""The circuit breaker of a destination: whether the pump sends to it; if not, until when and why (S4, S9)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from syphon.model import DestinationBusy, Impossible, Interrupted, LockLost, NotAuthorized, SyphonError, Waits

log = logging.getLogger(__name__)

BROKEN_LINKS = 3
"""How often in a row a link may break before the destination backs off."""
RECHECK_AFTER = 30.0
"""Seconds after which the pump tries a destination again that refused everything (missing, disabled)."""
RECHECK_RIGHTS_AFTER = 60.0
"""The same for a destination that the pump has no right to send to: a person must grant the right first."""
BUSY_IN_A_ROW = 3
"""How often in a row a destination may answer busy, with nothing accepted between, and still be expected back soon: its
messages stay in flight, and it backs off for ten seconds each time. Busy is not a failure (S5)."""
CUT_OFF = 15.0
"""Seconds after which the pump first tries a destination again whose messages cut the connection."""
LONGEST_PAUSE = 120.0
"""Seconds between tries, at most: each failure doubles them (S9)."""


@dataclass(frozen=True, slots=True)
class Available:
    """The destination takes messages, as far as is known."""


@dataclass(frozen=True, slots=True)
class BackingOff:
    """The pump sends nothing to it until then; its messages stay in the backlog."""

    until: float
    because: SyphonError


@dataclass(frozen=True, slots=True)
class Rejecting:
    """The destination takes nothing: its messages are dead-lettered until the pump tries it again."""

    until: float
    because: SyphonError


State = Available | BackingOff | Rejecting


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
        if isinstance(because, DestinationBusy):
            self.busy_in_a_row, self.failures = failures, max(0, failures - BUSY_IN_A_ROW)
        else:
            self.failures = failures

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
        """How many attempts in a row were in vain, for whatever reason."""
        return max(self.failures, self.busy_in_a_row)

    def is_permanent(self, error: SyphonError) -> bool:
        """Whether a message that met this error is dead-lettered (S4)."""
        return isinstance(error, Impossible) and type(error) in self._permanent

    def worked(self) -> None:
        self.failures = self.busy_in_a_row = self._broken = 0

    def failed(self, error: SyphonError, now: float) -> None:
        """Notes a failure of the destination as a whole: how long it backs off, and what happens to its messages."""
        if isinstance(error, Interrupted | LockLost):
            self._broken += 1
            if self._broken >= BROKEN_LINKS:  # links break now and then; the pump opens a new one at once
                self._broken = 0
                self._wait(Waits.retry_after, error, now)
        elif self.is_permanent(error):
            self.state = Rejecting(now + RECHECK_AFTER, error)
        elif isinstance(error, DestinationBusy):
            self._wait_for_service(error, now)
        elif isinstance(error, Waits):
            self._wait(error.retry_after, error, now)
        else:
            self._wait(RECHECK_RIGHTS_AFTER if isinstance(error, NotAuthorized) else RECHECK_AFTER, error, now)

    def cut_off(self, now: float) -> None:
        """Backs off because the connection is lost whenever something is sent to the destination."""
        self._wait(CUT_OFF, Waits(f"The connection is lost whenever something is sent to '{self._path}'."), now)

    def _wait_for_service(self, error: DestinationBusy, now: float) -> None:
        """Backs off for as long as a throttled service asks for. Only when it goes on does the time double (S9)."""
        if isinstance(self.state, BackingOff) and isinstance(self.state.because, DestinationBusy):
            return  # another batch that was in flight was refused too
        self.busy_in_a_row += 1
        if self.busy_in_a_row > BUSY_IN_A_ROW:
            self._wait(error.retry_after, error, now)
        elif not isinstance(self.state, BackingOff) or self.state.until < now + error.retry_after:
            log.info("destination %s answered busy: next attempt in %.0f s", self._path, error.retry_after)
            self.state = BackingOff(now + error.retry_after, error)

    def _wait(self, first_pause: float, error: SyphonError, now: float) -> None:
        """Backs off: each failure in a row doubles the time."""
        waits = self.state if isinstance(self.state, BackingOff) else None
        if waits is None:  # else: another batch that was under way failed too, which is no new failure
            self.failures += 1
        pause = min(first_pause * 2.0 ** min(self.failures - 1, 10), LONGEST_PAUSE)
        if waits is None:
            log.warning(
                "destination %s is backing off: %s Its messages stay in the backlog; next attempt in %.0f s",
                self._path,
                error,
                pause,
            )
        if waits is None or waits.until < now + pause:  # a service that asked for ten seconds of quiet gets them (S5)
            self.state = BackingOff(now + pause, error)
