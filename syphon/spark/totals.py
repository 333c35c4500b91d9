"""Counting: what slots say they have done, added up so that it balances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .control_protocol import SlotReport


@dataclass(slots=True)
class Totals:
    """Transfers, by what became of them: received = forwarded + dead-lettered + left + unaccounted."""

    received: int = 0
    forwarded: int = 0
    dead_lettered: int = 0
    left: int = 0
    outside: int = 0
    """Those of the left that were not asked for."""
    possible_duplicates: int = 0
    in_hand: int = 0
    bytes_forwarded: int = 0
    killed: int = 0
    """Attempts that were never heard of again."""
    unaccounted: int = 0
    """What they had in hand. It is not lost: what was not completed comes again."""

    @classmethod
    def together(cls, accounts: Iterable[Totals]) -> Totals:
        """Several as one."""
        all_of_them = list(accounts)
        return cls(*(sum(getattr(account, name) for account in all_of_them) for name in cls.__slots__))

    def add(self, sheets: Iterable[SlotReport]) -> Totals:
        """Adds attempts that have ended."""
        for sheet in sheets:
            self._count(sheet)
            if not sheet.finished:
                self.killed += 1
                self.unaccounted += sheet.received - sheet.forwarded - sheet.dead_lettered - sheet.left
        return self

    def plus(self, live: Iterable[SlotReport]) -> Totals:
        """This account and what is under way, as another one."""
        both = Totals.together([self])
        for sheet in live:
            both._count(sheet)
            both.in_hand += sheet.in_hand
        return both

    def _count(self, sheet: SlotReport) -> None:
        for name in (
            "received",
            "forwarded",
            "dead_lettered",
            "left",
            "outside",
            "possible_duplicates",
            "bytes_forwarded",
        ):
            setattr(self, name, getattr(self, name) + getattr(sheet, name))

    @property
    def moved(self) -> int:
        """What is not in the backlog any more."""
        return self.forwarded + self.dead_lettered
