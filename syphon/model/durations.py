"""How long things took, as a histogram that can be added up across processes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Where histograms of durations are cut: what OpenTelemetry's conventions advise."""


@dataclass(slots=True)
class Durations:
    """Counts by how long it took: up to each bound, and beyond the last."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BUCKETS) + 1))
    seconds: float = 0.0
    """All of them together."""

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS_BUCKETS, seconds)] += 1
        self.seconds += seconds

    def add(self, other: Durations) -> None:
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds
