"""The slots that all pairs of a worker share: Spark runs a limited number of tasks at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SlotBudget:
    """How many slots may still start. Safe for threads."""

    def __init__(self, most: Callable[[], int]) -> None:
        """`most` is how many slots Spark runs at once. It is asked when the first slot starts."""
        self._most = most
        self._taken = 0
        self._waiting: set[str] = set()
        self._lock = threading.Lock()

    def take(self, pair: str) -> bool:
        """Takes a slot for a pair, if one is free."""
        with self._lock:
            free = self._most() - self._taken
            if free <= 0:
                return False
            if self._waiting and pair not in self._waiting and free <= len(self._waiting):
                return False  # it is meant for a pair that has none
            self._taken += 1
            self._waiting.discard(pair)
            return True

    def give_back(self) -> None:
        with self._lock:
            self._taken -= 1

    def ask(self, pair: str) -> None:
        """A pair has messages and no slot: slots of other pairs make room for it."""
        with self._lock:
            self._waiting.add(pair)

    def withdraw(self, pair: str) -> None:
        """A pair needs no slot any more."""
        with self._lock:
            self._waiting.discard(pair)

    @property
    def has_room(self) -> bool:
        return self._taken < self._most()

    @property
    def is_short(self) -> bool:
        """A pair has messages and no slot."""
        return bool(self._waiting)
