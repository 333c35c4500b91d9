"""The slots that all pairs of a worker share: Spark runs a limited number of tasks at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable


class SlotBudget:
    """How many slots may still start, and which pair gives one up for a pair that has none. Safe for threads."""

    def __init__(self, most: Callable[[], int]) -> None:
        """`most` is how many slots Spark runs at once. It is asked when the first slot starts."""
        self._most = most
        self._taken: Counter[str] = Counter()
        """The slots of each pair."""
        self._leaving = 0
        """Slots that end so that a pair without one gets their place."""
        self._waiting: set[str] = set()
        self._lock = threading.Lock()

    def take(self, pair: str) -> bool:
        """Takes a slot for a pair, if one is free."""
        with self._lock:
            if not self._is_free_for(pair):
                return False
            self._taken[pair] += 1
            self._waiting.discard(pair)
            return True

    def give_back(self, pair: str, made_room: bool = False) -> None:
        """A slot has ended. `made_room`: because `makes_room` said so."""
        with self._lock:
            self._taken[pair] -= 1
            self._leaving -= made_room

    def _is_free_for(self, pair: str) -> bool:
        """A free slot is kept for each pair that waits for one."""
        return self._free > (0 if pair in self._waiting else len(self._waiting))

    @property
    def _free(self) -> int:
        return self._most() - self._taken.total()

    # --- pairs without a slot ------------------------------------------------------------------------------------

    def ask(self, pair: str) -> None:
        """A pair has messages and no slot: a slot of another pair makes room for it."""
        with self._lock:
            self._waiting.add(pair)

    def withdraw(self, pair: str) -> None:
        """A pair needs no slot any more."""
        with self._lock:
            self._waiting.discard(pair)

    def makes_room(self, pair: str) -> bool:
        """Whether a slot of this pair must end now for a pair that has none; the caller ends it then.

        One slot ends for each pair that waits, of the pairs that have the most: the others go on as they are.
        """
        with self._lock:
            if len(self._waiting) <= self._leaving + self._free or self._taken[pair] < max(self._taken.values()):
                return False
            self._leaving += 1
            return True
