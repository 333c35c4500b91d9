"""The gate of a pair for a worker or a drain: `BackoffGate`, and the destinations that the operator has paused.

It also counts the messages that it skipped.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from syphon.backlog import Unrestorable, restore
from syphon.transfer import BackoffGate, WaitingMessages

from .pauses import Pauses

MOST_SKIPPED = 10_000
"""Skipped messages that are remembered. The listener peeks each of them once, and counts those that still wait
(`Listener.waiting`)."""


class PausableGate(BackoffGate):
    """The destinations of one pair that back off or are paused. Thread-safe."""

    def __init__(self, pair: str, pauses: Pauses | None = None, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(pair, now)
        self._pauses = pauses or Pauses()
        self.skipped_count = 0
        """Messages that started no job since the start."""
        self._skipped: deque[tuple[int, str, str, int]] = deque(maxlen=MOST_SKIPPED)
        """The number, queue, destination and enqueued time of each."""

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:
        """Whether a message can be moved. An unrestorable message can: to the dead letters."""
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
            self._skipped.append((self.skipped_count, queue, path, restored.stamps.enqueued_at))
            self.skipped_count += 1
        return False

    def can_move(self, destination: str) -> bool:
        """Whether a destination (the key of its path) neither backs off nor is paused."""
        return super().can_move(destination) and not self._pauses.holds_destination(self._name, destination)

    def skipped(self, first: int, end: int) -> dict[tuple[str, str], WaitingMessages]:
        """The skipped messages with these numbers (`end` excluded), by queue and destination.

        A reader keeps the `skipped_count` up to which it has read. Reading changes nothing here.
        """
        if first >= end:
            return {}
        with self._lock:
            chosen = [entry for entry in self._skipped if first <= entry[0] < end]
        found: dict[tuple[str, str], WaitingMessages] = {}
        for _, queue, path, enqueued_at in chosen:
            count, oldest = found.get((queue, path), WaitingMessages(0, enqueued_at))
            found[queue, path] = WaitingMessages(count + 1, min(oldest, enqueued_at))
        return found
