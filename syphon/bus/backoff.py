"""Pauses before a link or connection that broke is opened again: longer ones if it keeps breaking.

Breaking is nothing special: the service ends idle links after ten minutes, and whole connections when it is updated.
What breaks as soon as it is open would otherwise be opened a thousand times a second.
"""

from __future__ import annotations

A_GOOD_TIME = 10.0
"""Seconds. What was open for so long has worked."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0


class Backoff:
    """Of one link, or one connection."""

    def __init__(self) -> None:
        self._pause = 0.0

    def pause(self, lasted: float, shortest: float = 0.0) -> float:
        """It broke, after so many seconds: how many to wait until it is opened again."""
        pause = max(shortest, self._pause if lasted < A_GOOD_TIME else 0.0)
        self._pause = min(max(FIRST_PAUSE, 2 * pause), LONGEST_PAUSE)
        return pause
