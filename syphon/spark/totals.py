"""Counting: what slots say they have done, added up so that it balances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from syphon.model import Counters

from .control_protocol import SlotReport


@dataclass(slots=True)
class Totals(Counters):
    """The counters of many attempts: received = forwarded + dead_lettered + left + in_hand + unaccounted."""

    in_hand: int = 0
    killed: int = 0
    """Attempts that were never heard of again."""
    unaccounted: int = 0
    """What they had in hand. It is not lost: what was not completed comes again."""

    def add(self, ended: Iterable[SlotReport]) -> Totals:
        """These totals with attempts that have ended."""
        return Totals.total((self, *(_ended(report) for report in ended)))

    def plus(self, live: Iterable[SlotReport]) -> Totals:
        """These totals with attempts that are under way."""
        return Totals.total((self, *(_live(report) for report in live)))


def _live(report: SlotReport) -> Totals:
    return Totals(**asdict(report.counters), in_hand=report.in_hand)


def _ended(report: SlotReport) -> Totals:
    """An attempt that did not finish was killed: what it had in hand is still in the backlog, or was forwarded."""
    lost = 0 if report.finished else report.counters.without_outcome
    return Totals(**asdict(report.counters), killed=int(not report.finished), unaccounted=lost)
