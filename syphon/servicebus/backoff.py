"""How long to wait before a link or connection is reopened."""

from __future__ import annotations

from syphon.model import RetryPolicy
from syphon.time_budget import FIRST_RECONNECT_DELAY, LONGEST_RECONNECT_DELAY, STABLE_AFTER


class Backoff:
    """The delays before one link or connection is reopened: longer ones if it keeps breaking.

    Links and connections break in normal operation: the service ends idle links after ten minutes, and whole
    connections when it is updated. Without a delay, one that breaks as soon as it is open would be opened a thousand
    times per second.
    """

    def __init__(self, longest: float = LONGEST_RECONNECT_DELAY) -> None:
        self._policy = RetryPolicy(first=FIRST_RECONNECT_DELAY, longest=longest)
        self._failures = 0

    def reset(self) -> None:
        """Starts over with the shortest delay."""
        self._failures = 0

    def delay(self, lasted: float, at_once: bool = True) -> float:
        """The seconds to wait before the next opening, after one that lasted this many seconds.

        `at_once`: the first one after a link or connection that worked needs no delay.
        """
        failures = max(self._failures if lasted < STABLE_AFTER else 0, 0 if at_once else 1)
        self._failures = failures + 1
        return self._policy.delay(failures - 1) if failures else 0.0
