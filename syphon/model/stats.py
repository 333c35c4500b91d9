"""What became of messages, by destination, by reason and by how long it took: what a single count does not tell.

It is taken from outcomes as they are recorded, travels with a task's sheet, and is bounded however many destinations
messages name: what is beyond the bound is counted together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .durations import Durations
from .entity_path import EntityPath
from .outcome import Outcome, Result

MOST_DESTINATIONS = 200
OTHERS = "(others)"
"""Stands for all destinations beyond the bound. No entity can have this name."""
NOT_ALLOWED = "DestinationNotAllowed"


@dataclass(slots=True)
class DestinationStats:
    """What became of the messages for one destination."""

    path: str
    forwarded: int = 0
    dead_lettered: int = 0
    left: int = 0
    """Since it last took one. What is left comes again and again, and counts once."""
    oldest_left: int | None = None
    """When the oldest of the left came into the backlog, in milliseconds since 1970."""
    first_left: int | None = None
    """The sequence number of the first of the left: with it, all of them begin to come again."""

    def take(self) -> None:
        """It has taken a message, and will take those that it has left: they come again."""
        self.forwarded += 1
        self.left, self.oldest_left, self.first_left = 0, None, None

    def leave(self, outcome: Outcome) -> None:
        if self.first_left in (None, outcome.sequence_number):
            self.left, self.first_left = 0, outcome.sequence_number
        self.left += 1
        self.oldest_left = earlier(self.oldest_left, outcome.enqueued_at)

    def add(self, other: DestinationStats) -> None:
        self.forwarded += other.forwarded
        self.dead_lettered += other.dead_lettered
        self.left += other.left
        self.oldest_left = earlier(self.oldest_left, other.oldest_left)


@dataclass(slots=True)
class Stats:
    """Of one attempt, or of many."""

    destinations: dict[str, DestinationStats] = field(default_factory=dict)
    """By path in lower case: capitals make no difference to Service Bus."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Dead letters."""
    front: int | None = None
    """When the message that was finished last had come into the backlog: about how far the queue has been read."""
    process: Durations = field(default_factory=Durations)
    """From a message's arrival to its settlement."""
    send: Durations = field(default_factory=Durations)
    """From a batch on its way to the destination's answer."""
    settle: Durations = field(default_factory=Durations)
    """From a message's acceptance to the end of its completion."""

    def note(self, outcome: Outcome) -> None:
        """Called for every message: it has to be quick."""
        result, reason = outcome.result, ""
        self.front = outcome.enqueued_at
        if result is Result.DEAD_LETTERED:
            reason = outcome.reason.partition(":")[0]
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if result is not Result.LEFT:
            self.process.note((outcome.settled_at - outcome.received_at) / 1000)
        if outcome.forwarded_at is not None:
            self.settle.note((outcome.settled_at - outcome.forwarded_at) / 1000)
        if not outcome.destination or reason == NOT_ALLOWED:
            return  # a name that the operator has not allowed is nobody's label
        tally = self._tally(outcome.destination)
        if result is Result.FORWARDED:
            tally.take()
        elif result is Result.DEAD_LETTERED:
            tally.dead_lettered += 1
        else:
            tally.leave(outcome)

    def add(self, other: Stats) -> None:
        for tally in list(other.destinations.values()):
            self._tally(tally.path).add(tally)
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        self.process.add(other.process)
        self.send.add(other.send)
        self.settle.add(other.settle)

    def _tally(self, path: str) -> DestinationStats:
        entity = EntityPath.of(path)
        found = self.destinations.get(entity.key)
        if found is None:
            if len(self.destinations) >= MOST_DESTINATIONS:
                entity = EntityPath.of(OTHERS)
            found = self.destinations.setdefault(entity.key, DestinationStats(entity.name))
        return found


class QueueKey(NamedTuple):
    """A backlog queue of a pair."""

    pair: str
    queue: str


def earlier(one: int | None, other: int | None) -> int | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
