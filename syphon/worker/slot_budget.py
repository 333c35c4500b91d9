"""The slots that all pairs of a worker share: Spark runs a limited number of tasks at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable


class SlotBudget:
    """How many slots may still start, and which pair ends one for a pair that has none. Thread-safe."""

    def __init__(self, most: Callable[[], int]) -> None:
        """`most` returns how many slots Spark runs at once. It is called when the first slot starts."""
        self._most = most
        self._taken: Counter[str] = Counter()
        """The slots of each pair."""
        self._leaving = 0
        """Slots that are ending for pairs without a slot."""
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

    def release(self, pair: str, made_room: bool = False) -> None:
        """Returns the place of a slot that has ended. `made_room`: it ended because of `makes_room`."""
        with self._lock:
            self._taken[pair] -= 1
            self._leaving -= made_room

    def _is_free_for(self, pair: str) -> bool:
        """Whether a slot is free beyond those reserved for waiting pairs."""
        return self._free > (0 if pair in self._waiting else len(self._waiting))

    @property
    def _free(self) -> int:
        return self._most() - self._taken.total()

    # --- pairs without a slot ------------------------------------------------------------------------------------

    def ask(self, pair: str) -> None:
        """Reserves the next free slot for a pair that has messages and no slot."""
        with self._lock:
            self._waiting.add(pair)

    def withdraw(self, pair: str) -> None:
        """Drops the reservation of a pair that no longer needs a slot."""
        with self._lock:
            self._waiting.discard(pair)

    def makes_room(self, pair: str) -> bool:
        """Whether a slot of this pair must end for a pair that has none; the caller then ends it.

        For each waiting pair, one slot ends, of a pair that has the most slots. The others continue.
        """
        with self._lock:
            if len(self._waiting) <= self._leaving + self._free or self._taken[pair] < max(self._taken.values()):
                return False
            self._leaving += 1
            return True
