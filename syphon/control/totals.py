"""Totals over many slot reports, added so that they balance, also when attempts were killed (D9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from syphon.model import Counters, Stats

from .protocol import QueueReport, SlotReport


@dataclass(frozen=True, slots=True)
class QueueAttempt:
    """What one attempt of a slot has done with one of its queues."""

    slot: SlotReport
    queue: QueueReport

    @property
    def is_running(self) -> bool:
        """Whether the attempt serves the queue."""
        return self.queue.is_served and not self.slot.finished


@dataclass(slots=True)
class Account(Counters):
    """The counters of attempts that have ended: received = forwarded + dead_lettered + left + unaccounted."""

    killed: int = 0
    """Attempts that ended without a last report."""
    unaccounted: int = 0
    """Messages in flight in killed attempts. They are not lost: a message that was not completed is redelivered."""

    def __str__(self) -> str:
        return self.text("the backlog")

    def text(self, place: str) -> str:
        """The counters as an equation; `place` is where messages were left."""
        return (
            f"{self.received:,} received = {self.forwarded:,} forwarded + {self.dead_lettered:,} "
            f"dead-lettered + {self.left:,} left in {place} + {self.unaccounted:,} unaccounted; "
            f"{self.possible_duplicates:,} possible duplicates"
        )


@dataclass(slots=True)
class Totals(Account):
    """The counters of many attempts: received = forwarded + dead_lettered + left + in_flight + unaccounted."""

    in_flight: int = 0

    def with_ended(self, ended: Iterable[QueueAttempt]) -> Totals:
        """Returns these totals plus attempts that have ended."""
        return Totals.total((self, *(_ended(attempt) for attempt in ended)))

    def with_live(self, live: Iterable[QueueAttempt]) -> Totals:
        """Returns these totals plus attempts that still run."""
        return Totals.total((self, *(_live(attempt) for attempt in live)))


def _live(attempt: QueueAttempt) -> Totals:
    return Totals(**asdict(attempt.queue.counters), in_flight=attempt.queue.in_flight)


def _ended(attempt: QueueAttempt) -> Totals:
    """An attempt that did not finish was killed: its messages in flight are still in the backlog, or forwarded."""
    counters, finished = attempt.queue.counters, attempt.slot.finished
    lost = 0 if finished else counters.without_outcome
    return Totals(**asdict(counters), killed=int(not finished), unaccounted=lost)


@dataclass(slots=True)
class QueueTotals:
    """What has happened to the messages of one backlog queue since the driver started."""

    totals: Totals = field(default_factory=Totals)
    stats: Stats = field(default_factory=Stats)
    live: tuple[QueueAttempt, ...] = ()
    """The attempts of running jobs."""
    last: tuple[QueueAttempt, ...] = ()
    """The attempts of the job that ended last."""

    def end_job(self, attempts: Iterable[QueueAttempt]) -> None:
        """Adds the last reports of a job that has ended."""
        self.last = tuple(attempts)
        self.totals = self.totals.with_ended(self.last)
        for attempt in self.last:
            self.stats.add(attempt.queue.stats)

    def including(self, live: Iterable[QueueAttempt]) -> QueueTotals:
        """Returns a copy of these totals that includes running jobs."""
        stats, attempts = Stats(), tuple(live)
        for part in (self.stats, *(attempt.queue.stats for attempt in attempts)):
            stats.add(part)
        return QueueTotals(self.totals.with_live(attempts), stats, attempts, self.last)
