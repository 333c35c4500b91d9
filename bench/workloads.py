"""What is moved, over which distance, and by which loops."""

from __future__ import annotations

from dataclasses import dataclass

KB = 1024


@dataclass(frozen=True)
class Workload:
    """Messages in one backlog queue, for as many destinations, a round trip (in milliseconds) away."""

    name: str
    counts: dict[str, int]
    """How many messages each loop moves: a slow one fewer, so that a run ends today."""
    size: int = KB
    destinations: int = 8
    round_trip: int = 0


NEAR, FAR, MANY, LONG, LARGE, SPARK = "near", "20 ms", "1000 destinations", "ten times as many", "64 KB", "on Spark"


def workloads(scale: float) -> list[Workload]:
    many = max(1000, round(20_000 * scale))
    few = max(300, round(3_000 * scale))
    some = max(100, round(500 * scale))
    return [
        Workload(NEAR, {"sdk_sync": few, "sdk_async": few, "pump": many}),
        Workload(SPARK, {"pump": many, "drain, 1 slot": many, "two pumps": many, "drain, 2 slots": many}),
        Workload(FAR, {"sdk_sync": 200, "sdk_async": few, "pump": many}, round_trip=20),
        Workload("5 ms", {"pump": many}, round_trip=5),
        Workload("1 destination", {"pump": many}, destinations=1),
        Workload(MANY, {"pump": many}, destinations=1000),
        Workload(LONG, {"pump": many * 10}),
        Workload(LARGE, {"sdk_sync": some, "sdk_async": some, "pump": many // 10}, size=64 * KB),
    ]
