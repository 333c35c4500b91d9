"""Which destinations of a pair back off now, as the driver knows from its slots.

A slot learns that a destination is full or throttled, and ends. The next slot must not try that destination at once,
and a message for it is no reason to start a job. So the driver remembers it between the jobs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from syphon.backlog import Unrestorable, destination_of, restore
from syphon.model import EntityPath
from syphon.transfer import DestinationBackoff

from .pauses import Pauses

log = logging.getLogger(__name__)


MOST_REMEMBERED = 2000
"""Destinations that are remembered, so that each back-off is logged once. With more, only those that still back off."""
MOST_TURNED_AWAY = 10_000
"""Messages that started no job and are remembered. The listener looks at each of them once, by peeking, and says how
many still wait (`Listener.waiting`)."""


LONGEST_PAUSE = 120.0
"""Seconds between two tries of a destination, at most (S9)."""


class TurnedAway(NamedTuple):
    """Messages of one queue and destination that started no job."""

    messages: int
    oldest: int
    """When the oldest of them came into the backlog, in milliseconds since 1970."""


class Backoffs:
    """The destinations of one pair that back off, each until a moment: the `Gate` of its listener. Safe for threads."""

    def __init__(self, pair: str, pauses: Pauses | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._pair = pair
        self._pauses = pauses or Pauses()
        self.turned_away_count = 0
        """Messages that started no job since the start."""
        self._turned_away: deque[tuple[int, str, str, int]] = deque(maxlen=MOST_TURNED_AWAY)
        """Their number, queue, destination, and when they came into the backlog."""
        self._now = now
        self._until: dict[str, tuple[float, DestinationBackoff]] = {}
        self._lock = threading.Lock()

    def learn(self, found: Iterable[DestinationBackoff]) -> None:
        """Remembers back-offs that a slot has reported. Logs those that are new.

        Each failure in a row doubles the pause (S9), and a new slot does not know of the failures before it. So a
        failure after the end of a back-off counts as the next one, unless the destination has worked in between
        (`forget`).
        """
        for reported in found:
            if reported.seconds <= 0:
                continue  # it is over
            with self._lock:
                now = self._now()
                known = self._until.get(EntityPath.of(reported.path).key)
                is_next = known is not None and known[0] <= now
                destination = _next_failure(known[1], reported) if known is not None and is_next else reported
                until = now + destination.seconds
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
        """The destinations that still back off, and for how long."""
        with self._lock:
            moment = self._now()
            return tuple(
                known._replace(seconds=until - moment) for until, known in self._until.values() if until > moment
            )

    def known(self) -> tuple[DestinationBackoff, ...]:
        """The destinations that back off, or did when a slot last tried them. The time may be over: 0 seconds."""
        with self._lock:
            moment = self._now()
            return tuple(known._replace(seconds=max(0.0, until - moment)) for until, known in self._until.values())

    def forget(self, path: str) -> None:
        """The destination has accepted a message."""
        with self._lock:
            self._until.pop(EntityPath.of(path).key, None)

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:
        """Whether a message can be moved now. A message that cannot be restored can: to the dead letters."""
        if not self._until and not self._pauses.destinations(self._pair):
            return True
        destination = destination_of(payload)
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
        with self._lock:
            known = self._until.get(destination)
            backs_off = known is not None and known[0] > self._now()
        return not backs_off and not self._pauses.holds_destination(self._pair, destination)

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


def _next_failure(known: DestinationBackoff, reported: DestinationBackoff) -> DestinationBackoff:
    """The report of a slot that may not know how often the destination has failed before."""
    if reported.failures > known.failures:
        return reported
    missing = known.failures + 1 - reported.failures
    seconds = max(reported.seconds, min(reported.seconds * 2.0 ** min(missing, 10), LONGEST_PAUSE))
    return reported._replace(failures=known.failures + 1, seconds=seconds)
