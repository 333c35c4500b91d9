"""What became of messages: of one (`Outcome`), of many (`Counters`), and by destination, reason and duration (`Stats`).

The fields of `Counters` are declared here and nowhere else. The pump counts them, a slot reports them, the ledger
records them, the drain, the report and `/status` show them. A slot sends its `Stats` with its reports. Their size is
bounded: messages may name any number of destinations, and those beyond `MOST_DESTINATIONS` are counted together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, Self

from .entity_path import EntityPath


class Result(StrEnum):
    """The ways a transfer can end."""

    FORWARDED = "forwarded"
    """The destination accepted the message, and it is completed on the backlog."""
    DEAD_LETTERED = "dead_lettered"
    """The message cannot arrive as it is. It is in the backlog queue's dead letters, with the reason."""
    LEFT = "left"
    """The message stays in the backlog: its destination is unavailable, or the transfer was stopped."""


class Outcome(NamedTuple):
    """One transfer, as the ledger records it. Times are milliseconds since 1970. It never contains a body."""

    queue: str
    sequence_number: int
    message_id: str
    destination: str
    session_id: str | None
    enqueued_at: int
    received_at: int
    forwarded_at: int | None
    settled_at: int
    size: int
    delivery_count: int
    result: Result
    reason: str = ""
    possible_duplicate: bool = False
    """The destination may have the message twice, under the same message id."""
    renamed_to: str | None = None
    """The entity it went to, or waits for, if the operator has renamed its destination."""
    ordered: bool = False
    """Its pair keeps the order of sessions."""


@dataclass(slots=True)
class Counters:
    """How many transfers ended in which way: received = forwarded + dead_lettered + left + without_outcome."""

    received: int = 0
    forwarded: int = 0
    """The destination accepted the message, and it is completed on the backlog."""
    dead_lettered: int = 0
    left: int = 0
    """The message stays in the backlog."""
    outside: int = 0
    """Messages counted in `left` because the filter did not match them."""
    possible_duplicates: int = 0
    """The destination may have the message twice, under the same message id."""
    bytes_forwarded: int = 0

    @property
    def moved(self) -> int:
        """Messages that are no longer in the backlog."""
        return self.forwarded + self.dead_lettered

    @property
    def without_outcome(self) -> int:
        """Received, and either still in flight or lost with a task that was killed."""
        return self.received - self.forwarded - self.dead_lettered - self.left

    def __add__(self, other: Self) -> Self:
        return type(self).total((self, other))

    @classmethod
    def total(cls, parts: Iterable[Counters]) -> Self:
        """The sum of all fields that this class has."""
        values = _values_of(cls)  # type: ignore[arg-type]  # the class can be hashed, although its values cannot
        return cls(*map(sum, zip(*map(values, parts), strict=True)))

    def counters(self) -> Counters:
        """These fields alone, as a new value without the fields that a subclass adds."""
        return Counters.total([self])


@cache
def _values_of(kind: type[Counters]) -> attrgetter[tuple[int, ...]]:
    """What reads the fields of this class, in their order. Every report of every slot is added up with it."""
    return attrgetter(*(field.name for field in fields(kind)))


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

    def count(self, seconds: float, times: int = 1) -> None:
        self.counts[bisect_left(SECONDS_BUCKETS, seconds)] += times
        self.seconds += seconds * times

    def count_all(self, millis: Iterable[int]) -> None:
        """Adds many durations, in milliseconds: those of one second have few different values."""
        for value, times in Counter(millis).items():
            self.count(value / 1000, times)

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
    """Messages left in the backlog since the destination last accepted one. Each counts once, however often it is
    redelivered."""
    oldest_left: int | None = None
    """When the oldest message in `left` came into the backlog, in milliseconds since 1970."""
    first_left: int | None = None
    """The sequence number of the first message in `left`. When that is redelivered, all are: the count restarts."""

    def count_forwarded(self, messages: int = 1) -> None:
        """Counts accepted messages. The destination accepts again: those that were left will be redelivered."""
        self.forwarded += messages
        self._forget_left()

    def count_dead_lettered(self) -> None:
        """Counts a dead letter, which may be one of the messages that were left."""
        self.dead_lettered += 1
        self.left = max(0, self.left - 1)
        if not self.left:
            self._forget_left()

    def count_left(self, outcome: Outcome) -> None:
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

    def count_all(self, outcomes: Sequence[Outcome]) -> None:
        """Adds outcomes, in their order.

        Messages that were forwarded in a row, nearly always all, are counted together: that takes a quarter of the
        microsecond that each would take alone, and a transfer takes thirty.
        """
        for result, run in groupby(outcomes, attrgetter("result")):
            if result is Result.FORWARDED:
                self._count_forwarded(list(run))
            else:
                for outcome in run:
                    self.count(outcome)

    def _count_forwarded(self, outcomes: list[Outcome]) -> None:
        self.front = outcomes[-1].enqueued_at
        self.process.count_all(outcome.settled_at - outcome.received_at for outcome in outcomes)
        self.settle.count_all(
            outcome.settled_at - outcome.forwarded_at for outcome in outcomes if outcome.forwarded_at is not None
        )
        for destination, messages in Counter(outcome.renamed_to or outcome.destination for outcome in outcomes).items():
            if destination:
                self._of(destination).count_forwarded(messages)

    def count(self, outcome: Outcome) -> None:
        """Adds an outcome."""
        result, reason = outcome.result, ""
        self.front = outcome.enqueued_at
        if result is Result.DEAD_LETTERED:
            reason = outcome.reason.partition(":")[0]
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if result is not Result.LEFT:
            self.process.count((outcome.settled_at - outcome.received_at) / 1000)
        if outcome.forwarded_at is not None:
            self.settle.count((outcome.settled_at - outcome.forwarded_at) / 1000)
        if not outcome.destination or reason == DESTINATION_NOT_ALLOWED:
            return  # a name that the operator has not allowed must not become a label of a metric
        stats = self._of(outcome.renamed_to or outcome.destination)
        if result is Result.FORWARDED:
            stats.count_forwarded()
        elif result is Result.DEAD_LETTERED:
            stats.count_dead_lettered()
        else:
            stats.count_left(outcome)

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


class AttemptKey(NamedTuple):
    """One attempt of a task: it makes reports and the rows of the ledger."""

    pair: str
    job: str
    slot: int
    attempt: int


def earliest(*times: int | None) -> int | None:
    """The earliest of some times, each of which may be unknown."""
    return min((time for time in times if time is not None), default=None)


class SessionOrder(StrEnum):
    """What may let a message of a session overtake an earlier one."""

    KEPT = "kept"
    """Only the end of the earlier one in the dead letters."""
    STRICT = "strict"
    """Nothing: a message with a session is not dead-lettered, and holds up its session."""


class TimeToLive(StrEnum):
    """The time to live of a restored message: as the sender wrote it, or what remains of it (M5)."""

    RESTORE = "restore"
    """As it was; its clock starts again at the primary. This is the documented behaviour."""
    REMAINING = "remaining"
    """Without the time spent in the backlog; an expired message is not forwarded."""
