"""Outcomes by destination, by reason and by duration: details that a single count does not show.

The pump adds each outcome as it records it, and a task sends its `Stats` with its reports. Their size is bounded:
messages may name any number of destinations, and those beyond `MOST_DESTINATIONS` are counted together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from .entity_path import EntityPath
from .outcome import Outcome, Result

MOST_DESTINATIONS = 200
OTHERS = "(others)"
"""Stands for all destinations beyond the bound. No entity can have this name."""
DESTINATION_NOT_ALLOWED = "DestinationNotAllowed"
"""The DeadLetterReason of a message whose destination the operator does not allow (D13)."""

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The bounds of a histogram of durations, as OpenTelemetry's conventions advise."""


@dataclass(slots=True)
class Durations:
    """A histogram of durations that can be added up across processes: counts up to each bound, and beyond the last."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS_BUCKETS) + 1))
    seconds: float = 0.0
    """The sum of all durations."""

    def note(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(SECONDS_BUCKETS, seconds)] += times
        self.seconds += seconds * times

    def note_all(self, millis: Iterable[int]) -> None:
        """Adds many durations, in milliseconds: those of one second have few different values."""
        for value, times in Counter(millis).items():
            self.note(value / 1000, times)

    def add(self, other: Durations) -> None:
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds


@dataclass(slots=True)
class DestinationStats:
    """What became of the messages for one destination."""

    path: str
    forwarded: int = 0
    dead_lettered: int = 0
    left: int = 0
    """Messages left in the backlog since the destination last accepted one. A message that is left is received again
    and again, and counts once."""
    oldest_left: int | None = None
    """When the oldest message in `left` came into the backlog, in milliseconds since 1970."""
    first_left: int | None = None
    """The sequence number of the first message in `left`. When it is received again, all of them are: the count
    restarts."""

    def take(self, messages: int = 1) -> None:
        """Counts accepted messages. The destination will now accept those that were left: they come again."""
        self.forwarded += messages
        self._forget_left()

    def give_up(self) -> None:
        """Counts a dead letter. It may be one of those that were left: at least so many fewer wait."""
        self.dead_lettered += 1
        self.left = max(0, self.left - 1)
        if not self.left:
            self._forget_left()

    def leave(self, outcome: Outcome) -> None:
        if self.first_left in (None, outcome.sequence_number):
            self.left, self.first_left = 0, outcome.sequence_number
        self.left += 1
        self.oldest_left = earliest(self.oldest_left, outcome.enqueued_at)

    def _forget_left(self) -> None:
        self.left, self.oldest_left, self.first_left = 0, None, None

    def add(self, other: DestinationStats) -> None:
        self.forwarded += other.forwarded
        self.dead_lettered += other.dead_lettered
        self.left += other.left
        self.oldest_left = earliest(self.oldest_left, other.oldest_left)


@dataclass(slots=True)
class Stats:
    """The details of one attempt's outcomes, or of many attempts'."""

    destinations: dict[str, DestinationStats] = field(default_factory=dict)
    """By path in lower case, because Service Bus ignores the case of a path."""
    reasons: dict[str, int] = field(default_factory=dict)
    """How many messages were dead-lettered, by reason."""
    front: int | None = None
    """When the message that was finished last had come into the backlog: about how far the queue has been read."""
    process: Durations = field(default_factory=Durations)
    """From a message's arrival to its settlement."""
    send: Durations = field(default_factory=Durations)
    """From the sending of a batch to the destination's answer."""
    settle: Durations = field(default_factory=Durations)
    """From a message's acceptance to the end of its completion."""

    def note_all(self, outcomes: Sequence[Outcome]) -> None:
        """Adds outcomes, in their order.

        Messages that were forwarded in a row, nearly always all, are counted together: that takes a quarter of the
        microsecond that each would take alone, and a transfer takes thirty.
        """
        for result, run in groupby(outcomes, attrgetter("result")):
            if result is Result.FORWARDED:
                self._note_forwarded(list(run))
            else:
                for outcome in run:
                    self.note(outcome)

    def _note_forwarded(self, outcomes: list[Outcome]) -> None:
        self.front = outcomes[-1].enqueued_at
        self.process.note_all(outcome.settled_at - outcome.received_at for outcome in outcomes)
        self.settle.note_all(
            outcome.settled_at - outcome.forwarded_at for outcome in outcomes if outcome.forwarded_at is not None
        )
        for destination, messages in Counter(outcome.renamed_to or outcome.destination for outcome in outcomes).items():
            if destination:
                self._of(destination).take(messages)

    def note(self, outcome: Outcome) -> None:
        """Adds an outcome."""
        result, reason = outcome.result, ""
        self.front = outcome.enqueued_at
        if result is Result.DEAD_LETTERED:
            reason = outcome.reason.partition(":")[0]
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if result is not Result.LEFT:
            self.process.note((outcome.settled_at - outcome.received_at) / 1000)
        if outcome.forwarded_at is not None:
            self.settle.note((outcome.settled_at - outcome.forwarded_at) / 1000)
        if not outcome.destination or reason == DESTINATION_NOT_ALLOWED:
            return  # a name that the operator has not allowed must not become a label of a metric
        stats = self._of(outcome.renamed_to or outcome.destination)
        if result is Result.FORWARDED:
            stats.take()
        elif result is Result.DEAD_LETTERED:
            stats.give_up()
        else:
            stats.leave(outcome)

    def add(self, other: Stats) -> None:
        for stats in list(other.destinations.values()):
            self._of(stats.path).add(stats)
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        self.process.add(other.process)
        self.send.add(other.send)
        self.settle.add(other.settle)

    def _of(self, path: str) -> DestinationStats:
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


def earliest(one: int | None, other: int | None) -> int | None:
    """The earlier of two times, either of which may be unknown."""
    return min((time for time in (one, other) if time is not None), default=None)
