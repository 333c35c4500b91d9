"""What a dispatcher knows of each slot that runs, and of each backlog queue of its pair."""

from __future__ import annotations

from dataclasses import dataclass, field

from syphon.model import Counters
from syphon.spark import HandOver, SlotReport
from syphon.transfer import MOST_QUEUES, Ring

FIRST_RETRY, LONGEST_RETRY = 2.0, 120.0
"""Seconds between tries while something fails: they double from the first to the longest."""


@dataclass(slots=True, eq=False)
class RunningSlot:
    """A job with one slot that runs."""

    job: str
    started_at: float
    queues: dict[str, HandOver]
    """The queues that it was handed and has not reported as ended."""
    began_at: float | None = None
    """When it first reported."""
    report: SlotReport | None = None
    is_leaving: bool = False
    makes_room: bool = False
    """It leaves for a pair that has no slot."""
    misses_primary: bool = False
    """It could not reach the primary: it gets no queue until it has."""
    successor: RunningSlot | None = None
    """The slot that takes over its queues. It stops when the successor serves them."""
    before: dict[str, Counters] = field(default_factory=dict)
    """What it had counted for a queue when the queue was handed to it."""

    @property
    def has_room(self) -> bool:
        """Whether it can serve another queue."""
        is_accepting = self.report is not None and self.report.is_accepting
        return is_accepting and not self.misses_primary and len(self.queues) < MOST_QUEUES

    @property
    def is_saturated(self) -> bool:
        """Whether it has more to do than it can."""
        return self.report is not None and self.report.is_saturated


@dataclass(slots=True)
class QueueWork:
    """One backlog queue, as the dispatcher sees it."""

    name: str
    number: int = 0
    """How often it was handed out."""
    slots: int = 0
    """How many slots serve it."""
    ring: Ring | None = None
    """It has rung, and no slot serves it yet."""
    trouble: str = ""
    """Why its last service failed; empty if it did not."""
    arm_at: float | None = None
    """When to listen to it again, after a failure."""
    retry: float = FIRST_RETRY

    @property
    def is_working(self) -> bool:
        return self.slots > 0 or self.ring is not None
