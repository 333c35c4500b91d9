"""How fast messages move: a rate over the last seconds, and counts of the last ten minutes for the status page."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from .snapshot import Throughput

WINDOW = 10.0
"""Seconds over which a rate is taken."""
SPAN = 5
"""Seconds that one count of the history covers."""
SPANS = 120


class RateMeter:
    """Measures how fast a count grows, over the last few seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, count: int) -> float:
        """Takes in a count, and returns its growth a second."""
        now = self._now()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()
        since, first = self._seen[0]
        passed = now - since
        return (count - first) / passed if passed > 0.2 else 0.0


@dataclass(slots=True)
class ThroughputSpan:
    """What happened in a few seconds."""

    forwarded: int = 0
    dead_lettered: int = 0
    backlog: int | None = None
    """Messages in the backlog at its end; None if they were not counted."""


class ThroughputHistory:
    """Keeps the growth of the totals, and the size of the backlog, in spans of a few seconds."""

    def __init__(self, began: float) -> None:
        self._spans: deque[ThroughputSpan] = deque([ThroughputSpan()], maxlen=SPANS)
        self._number = int(began // SPAN)
        self._totals = (0, 0)

    def note(self, now: float, forwarded: int, dead_lettered: int, backlog: int | None) -> None:
        """Takes in the totals and the backlog at a moment."""
        number = int(now // SPAN)
        for _ in range(min(number - self._number, SPANS)):
            self._spans.append(ThroughputSpan())
        self._number = max(number, self._number)  # after a clock has stepped back, the current span goes on
        current = self._spans[-1]
        current.forwarded += forwarded - self._totals[0]
        current.dead_lettered += dead_lettered - self._totals[1]
        current.backlog = backlog
        self._totals = forwarded, dead_lettered

    def throughput(self) -> Throughput:
        return Throughput(
            seconds=SPAN,
            forwarded=[span.forwarded for span in self._spans],
            dead_lettered=[span.dead_lettered for span in self._spans],
            backlog=[span.backlog for span in self._spans],
        )
