"""The pace of a pump: so many messages a second, and no more than a second's worth at once."""

from __future__ import annotations


class RateLimiter:
    """A bucket that fills with time, and from which each message takes one."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._allowance = 0.0

    def room(self, rate: float | None, now: float) -> int | None:
        """How many messages may come now; None is any number. A rate of 0 is a pause."""
        passed, self._at = now - self._at, now
        if not rate:
            self._allowance = 0.0
            return None if rate is None else 0
        self._allowance = min(self._allowance + passed * rate, max(1.0, rate))
        return max(0, int(self._allowance))

    def spend(self) -> None:
        self._allowance -= 1
