"""How often something is retried, and after which delays: one rule for links, connections, destinations, messages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Each failure in a row doubles the delay, up to the longest one (S9)."""

    total: int = 2**31
    """How many retries there are; by default as many as it takes."""
    first: float = 0.8
    """Seconds before the first retry."""
    longest: float = 120.0
    fixed: bool = False
    """Every delay is as long as the first."""

    def delay(self, retried: int) -> float:
        """Seconds before the next retry, after this many retries."""
        return min(self.longest, self.first if self.fixed else self.first * 2.0 ** min(retried, _ENOUGH))


_ENOUGH = 32
"""Doublings after which every delay has become the longest: a power must not overflow."""
