"""The progress of a drain as a value: for the table of the command, and for callers of `syphon.drain`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syphon.control import RateLimit
from syphon.model import plural
from syphon.transfer import DestinationBackoff

from .queue_drain import DrainState


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of one backlog queue."""

    pair: str
    queue: str
    state: DrainState
    error: str
    expected: int | None
    """Messages at the start, by the count of the namespace; None if it is unknown."""
    moved: int
    in_flight: int
    dead_lettered: int
    """Messages among those moved that went to the dead letters."""

    @property
    def left(self) -> int | None:
        """Remaining messages, by the count at the start; None if it is unknown."""
        return None if self.expected is None else max(0, self.expected - self.moved)


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """The progress of a drain."""

    queues: tuple[QueueProgress, ...]
    backing_off: tuple[DestinationBackoff, ...] = ()
    """Destinations that are currently unavailable."""
    limits: Mapping[str, RateLimit] = field(default_factory=dict)
    """How fast messages may move, and who decided that, by pair; only pairs with a limit."""
    is_stopping: bool = False

    @property
    def moved(self) -> int:
        return sum(queue.moved for queue in self.queues)

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues)

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
        """Remaining messages, by the counts at the start; None if one is unknown."""
        return None if self.expected is None else max(0, self.expected - self.moved)

    def __str__(self) -> str:
        left = "" if self.left is None else f", about {self.left:,} left"
        return f"{plural(self.moved, 'message')} moved{left}"
