"""How far a drain is, as a value: for the table of the command, and for callers of `syphon.drain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syphon.model import plural
from syphon.spark import RateLimit
from syphon.transfer import DestinationBackoff

from .queue_drain import DrainState


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far the drain of one backlog queue is."""

    pair: str
    queue: str
    state: DrainState
    error: str
    expected: int | None
    """Messages at the start, by the count of the namespace; None if it is unknown."""
    moved: int
    in_hand: int
    dead_lettered: int
    """Messages among those moved that went to the dead letters."""

    @property
    def left(self) -> int | None:
        """Messages that are left by the count at the start; None if it is unknown."""
        return None if self.expected is None else max(0, self.expected - self.moved)


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """How far a drain is."""

    queues: tuple[QueueProgress, ...]
    backing_off: tuple[DestinationBackoff, ...] = ()
    """Destinations that are currently unavailable."""
    limits: Mapping[str, RateLimit] = field(default_factory=dict)
    """How fast messages may move, by pair, and who has decided that: only where somebody has."""
    is_stopping: bool = False

    @property
    def moved(self) -> int:
        return sum(queue.moved for queue in self.queues)

    @property
    def in_hand(self) -> int:
        return sum(queue.in_hand for queue in self.queues)

    @property
    def dead_lettered(self) -> int:
        return sum(queue.dead_lettered for queue in self.queues)

    @property
    def expected(self) -> int | None:
        """Messages at the start, by the counts of the namespaces; None if one is unknown."""
        every = [queue.expected for queue in self.queues]
        return None if None in every else sum(count for count in every if count is not None)

    @property
    def left(self) -> int | None:
        """Messages that are left by the counts at the start; None if one is unknown."""
        return None if self.expected is None else max(0, self.expected - self.moved)

    def __str__(self) -> str:
        left = "" if self.left is None else f", about {self.left:,} left"
        return f"{plural(self.moved, 'message')} moved{left}"
