"""Totals over many slot reports, added so that they balance, also when attempts were killed (D9)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from syphon.model import Counters, Stats

from .control_protocol import SlotReport


@dataclass(slots=True)
class Totals(Counters):
    """The counters of many attempts: received = forwarded + dead_lettered + left + in_hand + unaccounted."""

    in_hand: int = 0
    killed: int = 0
    """Attempts that ended without a last report."""
    unaccounted: int = 0
    """Messages that killed attempts had in hand. They are not lost: a message that was not completed comes again."""

    def with_ended(self, ended: Iterable[SlotReport]) -> Totals:
        """Returns these totals plus attempts that have ended."""
        return Totals.total((self, *(_ended(report) for report in ended)))

    def with_live(self, live: Iterable[SlotReport]) -> Totals:
        """Returns these totals plus attempts that still run."""
        return Totals.total((self, *(_live(report) for report in live)))


def _live(report: SlotReport) -> Totals:
    return Totals(**asdict(report.counters), in_hand=report.in_hand)


def _ended(report: SlotReport) -> Totals:
    """An attempt that did not finish was killed: the messages it had in hand are still in the backlog, or forwarded."""
    lost = 0 if report.finished else report.counters.without_outcome
    return Totals(**asdict(report.counters), killed=int(not report.finished), unaccounted=lost)


@dataclass(slots=True)
class QueueTotals:
    """What has happened to the messages of one backlog queue since the driver started."""

    totals: Totals = field(default_factory=Totals)
    stats: Stats = field(default_factory=Stats)
    live: tuple[SlotReport, ...] = ()
    """The reports of the job that runs now."""
    last: tuple[SlotReport, ...] = ()
    """The reports of the job that ended last."""

    def end_job(self, reports: Iterable[SlotReport]) -> None:
        """Adds the last reports of a job that has ended."""
        self.last = tuple(reports)
        self.totals = self.totals.with_ended(self.last)
        for report in self.last:
            self.stats.add(report.stats)

    def including(self, live: Iterable[SlotReport]) -> QueueTotals:
        """Returns a copy of these totals that includes the job that runs now."""
        stats, reports = Stats(), tuple(live)
        for part in (self.stats, *(report.stats for report in reports)):
            stats.add(part)
        return QueueTotals(self.totals.with_live(reports), stats, reports, self.last)
