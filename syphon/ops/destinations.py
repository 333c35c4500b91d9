"""The destinations of one pair over time: what a single look at jobs does not tell.

Jobs come and go. Since when a destination takes nothing, how many of its messages were left and how old they are is
put together from the sheets of several jobs, and from messages that were no reason to start one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from syphon.model import MOST_DESTINATIONS, DestinationStats, EntityPath, QueueKey, Stats
from syphon.spark import QueueTotals, SlotReport
from syphon.transfer import DestinationBackoff
from syphon.worker import BY_THE_OPERATOR, TurnedAway

from .status import Destination, DestinationState

FRESH = 150.0
"""Seconds after which a message that was seen and left counts as gone: each comes again once in a lock period."""


@dataclass(slots=True)
class Stuck:
    """Messages of one queue for a destination that did not take them."""

    seen_at: float
    left: int = 0
    oldest: int | None = None


@dataclass(slots=True)
class Known:
    """One destination."""

    tally: DestinationStats
    since: float | None = None
    waits_until: float = 0.0
    closed_until: float = 0.0
    reason: str | None = None
    stuck: dict[str, Stuck] = field(default_factory=dict)
    """By queue."""

    def saw(self, queue: str, now: float, left: int, oldest: int | None) -> None:
        stuck = self.stuck.setdefault(queue, Stuck(now))
        stuck.seen_at, stuck.left = now, max(stuck.left, left)
        stuck.oldest = min((moment for moment in (stuck.oldest, oldest) if moment is not None), default=None)


class Destinations:
    """Looked at about once a second. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._read: dict[str, tuple[SlotReport, ...]] = {}

    def look(
        self,
        now: float,
        standings: Mapping[QueueKey, QueueTotals],
        waiting: Iterable[DestinationBackoff],
        turned_away: Mapping[tuple[str, str], TurnedAway],
        paused: Iterable[str],
    ) -> list[Destination]:
        """What is known of them now."""
        self._count(standings)
        for key, standing in standings.items():
            self._read_sheets(now, key.queue, standing)
        for (queue, path), away in turned_away.items():
            self._find(path).saw(queue, now, away.messages, away.oldest)
        for found in waiting:
            self._wait(now, found)
        held = {EntityPath.of(path).key: path for path in paused}
        for path in held.values():
            known = self._find(path)
            known.since = known.since or now
        self._forget(now, held)
        return sorted(
            (_status(known, now, key in held) for key, known in self._known.items()),
            key=lambda found: (found.state is DestinationState.OPEN, found.path),
        )

    def oldest(self, queue: str) -> int | None:
        """When the oldest message that was left in a queue had come into it, in milliseconds since 1970."""
        stuck = (known.stuck[queue].oldest for known in self._known.values() if queue in known.stuck)
        return min((moment for moment in stuck if moment is not None), default=None)

    def left(self, queue: str) -> int:
        """At least so many messages were left in a queue."""
        return sum(known.stuck[queue].left for known in self._known.values() if queue in known.stuck)

    def _find(self, path: str) -> Known:
        return self._known.setdefault(EntityPath.of(path).key, Known(DestinationStats(path)))

    def _count(self, standings: Mapping[QueueKey, QueueTotals]) -> None:
        census = Stats()
        for standing in standings.values():
            census.add(standing.stats)
        for key, tally in census.destinations.items():
            known = self._known.setdefault(key, Known(DestinationStats(tally.path)))
            if tally.forwarded > known.tally.forwarded:  # it takes messages
                known.since, known.waits_until = None, 0.0
                known.stuck.clear()
            known.tally = tally

    def _read_sheets(self, now: float, queue: str, standing: QueueTotals) -> None:
        if self._read.get(queue) is not standing.last:
            self._read[queue] = standing.last
            self._read_job(now, queue, standing.last)
        self._read_job(now, queue, standing.live)

    def _read_job(self, now: float, queue: str, sheets: Iterable[SlotReport]) -> None:
        """One by one: two jobs after each other have left the same messages."""
        left = Stats()
        for sheet in sheets:
            left.add(sheet.stats)
            for found in sheet.backing_off:
                if found.seconds > 0:
                    self._wait(now, found)
            for found in sheet.rejecting:
                known = self._find(found.path)
                known.closed_until, known.reason = now + found.seconds, found.reason
        for tally in left.destinations.values():
            if tally.left:
                self._find(tally.path).saw(queue, now, tally.left, tally.oldest_left)

    def _wait(self, now: float, found: DestinationBackoff) -> None:
        known = self._find(found.path)
        known.since, known.reason = known.since or now, found.reason
        known.waits_until = max(known.waits_until, now + found.seconds)

    def _forget(self, now: float, held: Mapping[str, str]) -> None:
        """What was not seen for long, and names beyond the bound that have nothing to tell any more."""
        for key, known in list(self._known.items()):
            known.stuck = {queue: stuck for queue, stuck in known.stuck.items() if now - stuck.seen_at < FRESH}
            if key not in held and not known.stuck and now - known.waits_until > FRESH:
                known.since = None
            is_silent = known.since is None and now > known.closed_until and not known.stuck
            if is_silent and len(self._known) > MOST_DESTINATIONS and not (known.tally.forwarded or known.tally.left):
                del self._known[key]


def _status(known: Known, now: float, paused: bool) -> Destination:
    state, reason, next_try = DestinationState.OPEN, None, None
    if paused:
        state, reason = DestinationState.PAUSED, BY_THE_OPERATOR
    elif known.since is not None:
        state, reason = DestinationState.WAITING, known.reason
        next_try = moment(known.waits_until) if known.waits_until > now else None
    elif known.closed_until > now:
        state, reason, next_try = DestinationState.CLOSED, known.reason, moment(known.closed_until)
    tally = known.tally
    return Destination(
        path=tally.path,
        state=state,
        reason=reason,
        next_try=next_try,
        since=None if known.since is None else moment(known.since),
        forwarded=tally.forwarded,
        dead_lettered=tally.dead_lettered,
        left=sum(stuck.left for stuck in known.stuck.values()),
    )


def moment(seconds: float) -> datetime:
    """Seconds since 1970, as a time."""
    return datetime.fromtimestamp(seconds, UTC)
