"""Which destinations of a pair cannot take messages now: they back off, or the operator has paused them.

It is the gate of the worker's listener, and counts the messages that it turned away.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from syphon.backlog import Unrestorable, restore
from syphon.transfer import BackoffGate

from .pauses import Pauses

MOST_TURNED_AWAY = 10_000
"""Messages that started no job and are remembered. The listener looks at each of them once, by peeking, and says how
many still wait (`Listener.waiting`)."""


class TurnedAway(NamedTuple):
    """Messages of one queue and destination that started no job."""

    messages: int
    oldest: int
    """When the oldest of them came into the backlog, in milliseconds since 1970."""


class Backoffs(BackoffGate):
    """The destinations of one pair that back off or are paused. Safe for threads."""

    def __init__(self, pair: str, pauses: Pauses | None = None, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(pair, now)
        self._pauses = pauses or Pauses()
        self.turned_away_count = 0
        """Messages that started no job since the start."""
        self._turned_away: deque[tuple[int, str, str, int]] = deque(maxlen=MOST_TURNED_AWAY)
        """Their number, queue, destination, and when they came into the backlog."""

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:
        """Whether a message can be moved now. A message that cannot be restored can: to the dead letters."""
        if not self._until and not self._pauses.destinations(self._name):
            return True
        destination = self.destination_of(payload)
        if destination is None:
            return True
        path = destination.key
        if self.can_move(path):
            return True
        with self._lock:
            restored = restore(payload, enqueued_at=None, now=0)
            if isinstance(restored, Unrestorable):
                return True
            self._turned_away.append((self.turned_away_count, queue, path, restored.stamps.enqueued_at))
            self.turned_away_count += 1
        return False

    def can_move(self, destination: str) -> bool:
        """Whether a destination (the key of its path) neither backs off nor is paused."""
        return super().can_move(destination) and not self._pauses.holds_destination(self._name, destination)

    def turned_away(self, first: int, end: int) -> dict[tuple[str, str], TurnedAway]:
        """The messages with these numbers (`end` excluded) that started no job, by queue and destination.

        A reader keeps the `turned_away_count` up to which it has read. Reading changes nothing here.
        """
        if first >= end:
            return {}
        with self._lock:
            chosen = [entry for entry in self._turned_away if first <= entry[0] < end]
        found: dict[tuple[str, str], TurnedAway] = {}
        for _, queue, path, enqueued_at in chosen:
            count, oldest = found.get((queue, path), TurnedAway(0, enqueued_at))
            found[queue, path] = TurnedAway(count + 1, min(oldest, enqueued_at))
        return found
