"""What the pump is meant to reach, as ratios within one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from .stage import Measured
from .workloads import FAR, LARGE, LONG, MANY, NEAR, SPARK

Results = Mapping[tuple[str, str], Measured]
"""By workload and loop."""


@dataclass(frozen=True)
class Target:
    """A ratio, how much it is, and how much it should be: at least, or at the most."""

    what: str
    found: float
    wanted: float
    at_most: bool = False

    @property
    def is_met(self) -> bool:
        return self.found <= self.wanted if self.at_most else self.found >= self.wanted

    def __str__(self) -> str:
        return f"{self.what}: {self.found:.3g}, wanted {'≤' if self.at_most else '≥'} {self.wanted:g}"


def targets(results: Results) -> Iterator[Target]:
    """Those for which there are measurements."""

    def speed(workload: str, loop: str = "pump") -> float:
        return results[workload, loop].per_second

    def cpu(workload: str, loop: str = "pump") -> float:
        return results[workload, loop].cpu_per_1000

    def megabytes(workload: str) -> float:
        return results[workload, "pump"].megabytes

    wanted: list[tuple[str, Callable[[], float], float, bool]] = [
        ("CPU of the SDK's sync loop in ours", lambda: cpu(NEAR, "sdk_sync") / cpu(NEAR), 8, False),
        ("speed at 20 ms in that of the SDK's sync loop", lambda: speed(FAR) / speed(FAR, "sdk_sync"), 150, False),
        ("speed at 20 ms in that of the SDK's async loop", lambda: speed(FAR) / speed(FAR, "sdk_async"), 8, False),
        ("speed at 20 ms in our own near", lambda: speed(FAR) / speed(NEAR), 0.75, False),
        ("one slot's speed in one pump's", lambda: speed(SPARK, "drain, 1 slot") / speed(SPARK), 0.8, False),
        ("two slots' in two pumps'", lambda: speed(SPARK, "drain, 2 slots") / speed(SPARK, "two pumps"), 0.8, False),
        ("speed with 1000 destinations in that with 8", lambda: speed(MANY) / speed(NEAR), 0.5, False),
        ("CPU of ten times as many messages in that of few", lambda: cpu(LONG) / cpu(NEAR), 1.1, True),
        ("memory (MB) after ten times as many messages", lambda: megabytes(LONG), 120, True),
        ("memory (MB) with messages of 64 KB", lambda: megabytes(LARGE), 120, True),
    ]
    for what, find, bound, at_most in wanted:
        try:
            yield Target(what, find(), bound, at_most)
        except KeyError:
            continue
