"""What a drain shows while it runs, and how it ended: as values, for the command and for callers of `syphon.drain`.

The slots know why a destination is unavailable, but may count the same message several times. So a peek counts the
messages that a drain left in the backlog for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from syphon.control import RateLimit, Totals
from syphon.model import DestinationError, EntityPath, SyphonError, plural
from syphon.servicebus import SideFault, connected, peek
from syphon.spark import SparkLost
from syphon.transfer import DestinationBackoff

from .emptiness import IN_THE_BACKLOG
from .queue_drain import MOST_COUNTED, QueueDrain
from .queue_state import DrainState

log = logging.getLogger(__name__)


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
    def remaining(self) -> int | None:
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
    def remaining(self) -> int | None:
        """Remaining messages, by the counts at the start; None if one is unknown."""
        return None if self.expected is None else max(0, self.expected - self.moved)

    def __str__(self) -> str:
        rest = "" if self.remaining is None else f", about {self.remaining:,} left"
        return f"{plural(self.moved, 'message')} moved{rest}"


@dataclass(frozen=True, slots=True)
class DrainResult:
    """How a drain ended."""

    queues: tuple[QueueDrain, ...]
    seconds: float
    lost: SparkLost | None = None
    """Why Spark was lost before the drain ended, if it was."""

    @property
    def totals(self) -> Totals:
        found = Totals.total(queue.totals for queue in self.queues)
        found.killed = len({key for queue in self.queues for key in queue.killed})  # an attempt serves many queues
        return found

    @property
    def remaining(self) -> int | None:
        """Matching messages that are still in the backlog; None if a queue could not be peeked."""
        return _sum(queue.remaining for queue in self.queues)

    @property
    def others(self) -> int | None:
        """Messages in the backlog that do not match; None if a queue could not be peeked."""
        return _sum(queue.others for queue in self.queues)

    @property
    def scheduled(self) -> int:
        """Matching messages that no receiver gets before their time."""
        return sum(queue.scheduled for queue in self.queues)

    @property
    def has_no_match(self) -> bool:
        """Whether the filter matched no message although the backlog has messages."""
        return self.is_empty and not self.totals.moved and bool(self.others)

    @property
    def fault(self) -> SideFault | None:
        return next((queue.fault for queue in self.queues if queue.fault is not None), None)

    @property
    def primary_error(self) -> str:
        """Why the primary was unreachable to the end, if it was and messages wait for it; otherwise empty."""
        return next((queue.primary_error for queue in self.queues if queue.remaining and queue.primary_error), "")

    @property
    def is_empty(self) -> bool:
        return all(queue.state in (DrainState.EMPTY, DrainState.MISSING) for queue in self.queues)

    @property
    def absent(self) -> tuple[str, ...]:
        """Pairs without any of their queues: the backlog may be empty, or this may be the wrong namespace."""
        there = {queue.pair.name for queue in self.queues if queue.state is not DrainState.MISSING}
        return tuple(dict.fromkeys(queue.pair.name for queue in self.queues if queue.pair.name not in there))


def _sum(counts: Iterable[int | None]) -> int | None:
    every = list(counts)
    return None if None in every else sum(count for count in every if count is not None)


# --- what a drain left in the backlog --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WaitingForecast:
    """Messages that wait for their destination, and why."""

    pair: str
    path: str
    left: int
    """Matching messages for it in the backlog; a drain counts by peek, at most 100,000 per queue."""
    reason: str
    error: DestinationError


@dataclass(frozen=True, slots=True)
class WaitingDestination(WaitingForecast):
    """A destination whose messages a drain left in the backlog."""

    seconds: float
    """Seconds until the next attempt."""
    failures: int


def waiting_destinations(result: DrainResult) -> list[WaitingDestination]:
    """The unavailable destinations, the most messages first. Call it when the drain has ended."""
    found = []
    for pair, ours in groupby(result.queues, key=lambda queue: queue.pair.name):
        queues = list(ours)
        known = _unavailable(queues)
        left = _count_by_destination(queues) if known else None
        for destination in known:
            messages = destination.left if left is None else left[EntityPath.of(destination.path).key]
            if messages:
                found.append(WaitingDestination(**destination._asdict() | {"pair": pair, "left": messages}))
    return sorted(found, key=lambda waiting: (-waiting.left, waiting.pair, waiting.path))


def _unavailable(queues: Iterable[QueueDrain]) -> tuple[DestinationBackoff, ...]:
    """The destinations of one pair that back off.

    If a queue is stuck, a destination whose back-off has just ended counts as well: nothing has moved since it failed,
    and its messages may still be locked.
    """
    backoffs = next(iter(queues)).backoffs
    return backoffs.failing() if any(queue.state is DrainState.STUCK for queue in queues) else backoffs.backing_off()


def _count_by_destination(queues: Iterable[QueueDrain]) -> Counter[str] | None:
    """Matching messages by destination; None if a queue could not be peeked."""
    counts: Counter[str] = Counter()
    for queue in queues:
        if queue.remaining == 0:
            continue
        try:
            with connected(queue.pair.secondary, queue.queue) as connection:
                counted = 0
                for message in peek(connection, queue.queue):
                    if message.state not in IN_THE_BACKLOG or not queue.wants(message):
                        continue
                    destination = queue.backoffs.destination_of(message.payload)
                    counts[destination.key if destination is not None else ""] += 1
                    counted += 1
                    if counted >= MOST_COUNTED:
                        break
        except SyphonError as error:
            log.debug("%s could not be counted by destination: %s", queue.queue, error)
            return None
    return counts
