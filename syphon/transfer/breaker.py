"""A destination's breaker: whether it is worth trying, and if not, until when it is left alone, and why (S4, S9)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from syphon.model import Impossible, Interrupted, LockLost, NotAuthorized, SyphonError, Waits

log = logging.getLogger(__name__)

BROKEN_LINKS = 3
"""How often in a row a link may break before the destination is left alone for a while."""
RECHECK_AFTER = 30.0
"""Seconds after which a destination that refused everything (missing, disabled) is looked at again."""
RECHECK_RIGHTS_AFTER = 60.0
"""The same of one that we may not send to: somebody has to give us the right first."""
LONGEST_PAUSE = 120.0
"""Seconds between tries, at the most: each that fails doubles them (S9)."""


@dataclass(frozen=True, slots=True)
class Available:
    """Takes messages, as far as we know."""


@dataclass(frozen=True, slots=True)
class BackingOff:
    """Is left alone until then."""

    until: float
    because: SyphonError


@dataclass(frozen=True, slots=True)
class Rejecting:
    """Takes nothing: what comes for it goes to the dead letters, until it is looked at again."""

    until: float
    because: SyphonError


State = Available | BackingOff | Rejecting


class Breaker:
    """Of one destination."""

    def __init__(self, path: str, permanent: frozenset[type[SyphonError]]) -> None:
        self.state: State = Available()
        self.failures = 0
        """How often in a row it has failed."""
        self._path = path
        self._permanent = permanent
        self._broken = 0

    def look(self, now: float) -> State:
        """Its state now: who has been left alone for long enough is worth a try."""
        if isinstance(self.state, BackingOff | Rejecting) and now >= self.state.until:
            self.state = Available()
        return self.state

    def leave_alone(self, until: float, because: SyphonError, failures: int) -> None:
        """Somebody else has found out that it takes nothing."""
        self.state, self.failures = BackingOff(until, because), failures

    def is_permanent(self, error: SyphonError) -> bool:
        """Whether a message that met this error is given up (S4)."""
        return isinstance(error, Impossible) and type(error) in self._permanent

    def worked(self) -> None:
        self.failures = self._broken = 0

    def failed(self, error: SyphonError, now: float) -> None:
        """The destination as a whole does not work: for how long it is left alone, and what becomes of its messages."""
        if isinstance(error, Interrupted | LockLost):
            self._broken += 1
            if self._broken >= BROKEN_LINKS:  # links come and go; a new one is opened at once
                self._broken = 0
                self._wait(Waits.retry_after, error, now)
        elif self.is_permanent(error):
            self.state = Rejecting(now + RECHECK_AFTER, error)
        elif isinstance(error, Waits):
            self._wait(error.retry_after, error, now)
        else:
            self._wait(RECHECK_RIGHTS_AFTER if isinstance(error, NotAuthorized) else RECHECK_AFTER, error, now)

    def _wait(self, first_pause: float, error: SyphonError, now: float) -> None:
        """Is left alone: the longer, the more often in a row it has failed."""
        waits = self.state if isinstance(self.state, BackingOff) else None
        if waits is None:  # else: what was under way beside it fails as well, and is no new failure
            self.failures += 1
        pause = min(first_pause * 2.0 ** min(self.failures - 1, 10), LONGEST_PAUSE)
        if waits is None:
            log.warning(
                "destination %s waits: %s What is for it stays in the backlog; next try in %.0f s",
                self._path,
                error,
                pause,
            )
        if waits is None or waits.until < now + pause:  # who asked for ten seconds of quiet has them (S5)
            self.state = BackingOff(now + pause, error)
