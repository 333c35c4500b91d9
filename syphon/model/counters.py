"""How many transfers there were, by what became of them: the one declaration of these numbers.

The pump counts them, a slot reports them, the ledger records them, the drain, the report and `/status` show them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self


@dataclass(slots=True)
class Counters:
    """received = forwarded + dead_lettered + left + those without an outcome so far."""

    received: int = 0
    forwarded: int = 0
    """The destination accepted the message, and it is completed on the backlog."""
    dead_lettered: int = 0
    left: int = 0
    """The message stays in the backlog."""
    outside: int = 0
    """Those of `left` that the filter did not ask for."""
    possible_duplicates: int = 0
    """The destination may have the message twice, under the same message id."""
    bytes_forwarded: int = 0

    @property
    def moved(self) -> int:
        """Messages that are no longer in the backlog."""
        return self.forwarded + self.dead_lettered

    @property
    def without_outcome(self) -> int:
        """Received, and either still in hand or lost with a task that was killed."""
        return self.received - self.forwarded - self.dead_lettered - self.left

    def __add__(self, other: Self) -> Self:
        return type(self).total((self, other))

    @classmethod
    def total(cls, parts: Iterable[Counters]) -> Self:
        """The sum of all fields that this class has."""
        every = list(parts)
        return cls(**{field.name: sum(getattr(part, field.name) for part in every) for field in fields(cls)})

    def counters(self) -> Counters:
        """These fields alone, as a value of their own: what a subclass adds stays behind."""
        return Counters.total([self])
