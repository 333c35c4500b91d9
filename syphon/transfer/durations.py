"""How long things took, as a histogram that can be added up across processes: a count and a sum for each span."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Where histograms of durations are cut: what OpenTelemetry's conventions advise."""
SPANS = len(SECONDS_BUCKETS) + 1


@dataclass(slots=True)
class Durations:
    """The mean of a span lies within it: who records it as often as it was counted has the histogram and its sum."""

    counts: list[int] = field(default_factory=lambda: [0] * SPANS)
    sums: list[float] = field(default_factory=lambda: [0.0] * SPANS)

    def note(self, seconds: float) -> None:
        span = bisect_left(SECONDS_BUCKETS, seconds)
        self.counts[span] += 1
        self.sums[span] += seconds

    def add(self, other: Durations) -> None:
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.sums = [mine + more for mine, more in zip(self.sums, other.sums, strict=True)]
