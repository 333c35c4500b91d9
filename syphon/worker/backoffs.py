"""Which destinations of a pair take nothing now, as the driver knows from its slots.

A slot learns that a destination is full or throttled, and ends. The next one must not try it at once, and a message for
it is no reason to start a job: this is the memory in between.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from syphon.backlog import destination_of, stamps_of
from syphon.model import EntityPath
from syphon.transfer import DestinationBackoff

from .pauses import Pauses

log = logging.getLogger(__name__)


MOST_REMEMBERED = 2000
"""Destinations that are known to have waited, so that it is said once. With more, only those that still wait are."""


class TurnedAway(NamedTuple):
    """Messages that were no reason for a job."""

    messages: int
    oldest: int
    """When the oldest of them came into the backlog, in milliseconds since 1970."""


class Backoffs:
    """The destinations of one pair that are left alone, each until a moment. Safe for threads."""

    def __init__(self, pair: str, pauses: Pauses | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._pair = pair
        self._pauses = pauses or Pauses()
        self._turned_away: dict[tuple[str, str], TurnedAway] = {}
        self._now = now
        self._until: dict[str, tuple[float, DestinationBackoff]] = {}
        self._lock = threading.Lock()

    def learn(self, found: Iterable[DestinationBackoff]) -> None:
        """What a slot has found out. Said to the operator when it is news."""
        for destination in found:
            with self._lock:
                known = self._until.get(EntityPath.of(destination.path).key)
                until = self._now() + destination.seconds
                if known is None or until > known[0]:
                    self._until[EntityPath.of(destination.path).key] = until, destination
                if len(self._until) > MOST_REMEMBERED:
                    self._until = {path: held for path, held in self._until.items() if held[0] > self._now()}
            if known is None or known[1].reason != destination.reason:
                log.warning(
                    "%s: destination %s takes no messages: %s; %d stay in the backlog, next try in %.0f s",
                    self._pair,
                    destination.path,
                    destination.reason,
                    destination.left,
                    destination.seconds,
                )

    def now(self) -> tuple[DestinationBackoff, ...]:
        """Those that still have to wait, and for how long."""
        with self._lock:
            moment = self._now()
            return tuple(
                known._replace(seconds=until - moment) for until, known in self._until.values() if until > moment
            )

    def forget(self, path: str) -> None:
        """It is to be tried again."""
        with self._lock:
            self._until.pop(EntityPath.of(path).key, None)

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:
        """Whether a message can be moved now. One that cannot be restored can: to the dead letters."""
        if not self._until and not self._pauses.destinations(self._pair):
            return True
        destination = destination_of(payload)
        if destination is None:
            return True
        path = destination.key
        with self._lock:
            known = self._until.get(path)
            waits = known is not None and known[0] > self._now()
            if not waits and not self._pauses.holds_destination(self._pair, path):
                return True
            enqueued_at = stamps_of(payload).enqueued_at
            count, oldest = self._turned_away.get((queue, path), TurnedAway(0, enqueued_at))
            self._turned_away[queue, path] = TurnedAway(count + 1, min(oldest, enqueued_at))
        return False

    def turned_away(self) -> dict[tuple[str, str], TurnedAway]:
        """What was no reason for a job since this was last asked, by queue and destination."""
        with self._lock:
            found, self._turned_away = self._turned_away, {}
        return found
