"""What was moved in the last minutes, in spans of a few seconds: what the status page draws."""

from __future__ import annotations

from collections import deque

from .status import Throughput

SPAN = 5
"""Seconds."""
SPANS = 120


class History:
    """Is told totals now and then, and keeps their differences."""

    def __init__(self, began: float) -> None:
        self._spans: deque[list[int]] = deque([[0, 0]], maxlen=SPANS)
        self._number = int(began // SPAN)
        self._totals = (0, 0)

    def note(self, now: float, forwarded: int, dead_lettered: int) -> None:
        number = int(now // SPAN)
        for _ in range(min(number - self._number, SPANS)):
            self._spans.append([0, 0])
        self._number = max(number, self._number)  # a clock that steps back counts into the span it had
        self._spans[-1][0] += forwarded - self._totals[0]
        self._spans[-1][1] += dead_lettered - self._totals[1]
        self._totals = forwarded, dead_lettered

    def throughput(self) -> Throughput:
        return Throughput(
            seconds=SPAN,
            forwarded=[forwarded for forwarded, _ in self._spans],
            dead_lettered=[dead_lettered for _, dead_lettered in self._spans],
        )
