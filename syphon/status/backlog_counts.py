"""How many messages each backlog queue and its dead letters hold, as the namespace counts them (D4).

The counts are hints, never a proof. A request to the administration API is not a receive, but it has a cost too. The
worker counts every queue once at the start. Later it counts once per minute the queues that have work, sooner if it
has moved more messages than the queue held at the last count, and every five minutes those that have dead letters.
Without the Manage claim the worker has no counts, and forwards without them.

While the primary is unreachable, no slot sees the messages that senders put into the queues. Then every queue is
counted every ten seconds, and its oldest message is peeked, which needs no Manage claim and is no receive: age, growth
and a destination are known, and the alerts about an old backlog can fire.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from syphon.backlog import destination_of, secondary_administration, stamps_of
from syphon.config import PairSettings
from syphon.model import DestinationMissing, NotAuthorized, QueueKey, SyphonError
from syphon.servicebus import Administration, Peeked, QueueCounts
from syphon.time_budget import (
    COUNT_AGAIN_AFTER,
    COUNT_DEAD_LETTERS_EVERY,
    COUNT_EVERY,
    COUNT_HELD_UP_EVERY,
    WORK_NOTICED_WITHIN,
)
from syphon.worker import EmptinessCheck

log = logging.getLogger(__name__)


class QueueActivity(NamedTuple):
    """What the worker has done with a queue, and whether a newer count is of interest."""

    moved: int
    """Messages that have left it: forwarded and dead-lettered."""
    dead_lettered: int
    is_busy: bool
    """It has work, or messages that wait."""
    is_held_up: bool = False
    """Nothing of it is received: its primary is unreachable, or it is paused."""


class BacklogCount(NamedTuple):
    """The namespace's counts of a queue, and what the worker had done with the queue by then."""

    counts: QueueCounts
    then: QueueActivity
    at: float
    """When it was counted, in seconds since 1970."""
    arriving: float | None = None
    """Messages per second that have come into the queue since the count before. None if there was none."""
    used: float | None = None
    """The share of the queue's room that its messages and dead letters take."""

    def remaining(self, now: QueueActivity) -> int | None:
        """How many remain. None if more were moved than the count says: new messages have arrived."""
        remaining = self.counts.active - (now.moved - self.then.moved)
        return remaining if remaining >= 0 else None

    def dead_letters(self, now: QueueActivity) -> int:
        """How many dead letters there are, unless a person has removed some of them since the count."""
        return self.counts.dead_letters + now.dead_lettered - self.then.dead_lettered


class OldestMessage(NamedTuple):
    """The oldest message of a queue, by peek."""

    enqueued_at: int
    """When it came into the backlog, in milliseconds since 1970; 0 if it does not say it."""
    destination: str | None
    """The path that it names, if it names one."""
    then: QueueActivity
    """What the worker had done with the queue by then. When it has moved more, this message is gone."""


class BacklogCounts:
    """Counts in a thread of its own, so that a namespace that does not answer delays nothing else."""

    def __init__(
        self,
        pairs: Collection[PairSettings],
        activity: Callable[[], dict[QueueKey, QueueActivity]],
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.counts: dict[QueueKey, BacklogCount] = {}
        self.oldest: dict[QueueKey, OldestMessage] = {}
        """Only of queues that are held up and have messages."""
        self._pairs = {pair.name: pair for pair in pairs}
        self._activity = activity
        self._now = now
        self._wall = wall
        self._peeks = {pair.name: EmptinessCheck(pair.secondary) for pair in pairs}
        self._counted_at: dict[QueueKey, float] = {}
        self._room: dict[QueueKey, int] = {}
        """The bytes that each queue can hold."""
        self._denied: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backlog-counts", daemon=True)

    def __enter__(self) -> BacklogCounts:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(WORK_NOTICED_WITHIN):
            try:
                self.count()
            except Exception:  # the last counts stay until a later round succeeds
                log.debug("counting the backlog's messages failed", exc_info=True)
        for peeks in self._peeks.values():
            peeks.close()

    def count(self) -> None:
        """Count once each queue whose next count is due."""
        now = self._now()
        due = {key: activity for key, activity in self._activity().items() if self._is_due(key, activity, now)}
        self._counted_at.update(dict.fromkeys(due, now))
        for name, pair in self._pairs.items():
            ours = {key: activity for key, activity in due.items() if key.pair == name}
            if ours and name not in self._denied:
                self._try_to_count(pair, ours)
            self._peek_oldest(name, ours)

    def _try_to_count(self, pair: PairSettings, ours: dict[QueueKey, QueueActivity]) -> None:
        try:
            self._count_queues(pair, ours)
        except NotAuthorized:
            self._denied.add(pair.name)
            log.info("%s: the worker cannot count the messages in its queues: that needs the Manage claim", pair.name)
        except SyphonError as error:
            log.debug("%s: the worker cannot count the messages in its queues: %s", pair.name, error)
            for key in ours:
                self.counts.pop(key, None)

    def _peek_oldest(self, pair: str, ours: dict[QueueKey, QueueActivity]) -> None:
        """Peeks at the oldest message of each queue that is held up, and forgets those of queues that are not."""
        if not any(activity.is_held_up for activity in ours.values()):
            self._peeks[pair].close()
        for key, activity in ours.items():
            oldest: Peeked | None = None
            try:
                if activity.is_held_up:
                    oldest = self._peeks[pair].oldest(key.queue)
            except SyphonError as error:
                log.debug("%s: the worker cannot peek into %s: %s", pair, key.queue, error)
                if not isinstance(error, DestinationMissing):
                    return  # the other queues would have the same; what was seen last counts
            if oldest is None:
                self.oldest.pop(key, None)
            else:
                named = destination_of(oldest.payload)
                enqueued_at = stamps_of(oldest.payload).enqueued_at
                self.oldest[key] = OldestMessage(enqueued_at, None if named is None else named.name, activity)

    def _is_due(self, key: QueueKey, activity: QueueActivity, now: float) -> bool:
        if key not in self._counted_at:
            return True
        count, passed = self.counts.get(key), now - self._counted_at[key]
        if count is not None and count.remaining(activity) is None:
            return passed >= COUNT_AGAIN_AFTER
        if activity.is_held_up or key in self.oldest:
            return passed >= COUNT_HELD_UP_EVERY
        if activity.is_busy:
            return passed >= COUNT_EVERY
        return count is not None and count.dead_letters(activity) > 0 and passed >= COUNT_DEAD_LETTERS_EVERY

    def _count_queues(self, pair: PairSettings, ours: dict[QueueKey, QueueActivity]) -> None:
        administration = secondary_administration(pair)
        try:
            for key, activity in ours.items():
                counts = administration.queue_counts(key.queue)
                if counts is None:
                    self.counts.pop(key, None)
                else:
                    at = self._wall()
                    arriving = _arriving(self.counts.get(key), counts, activity, at)
                    used = self._used(administration, key, counts)
                    self.counts[key] = BacklogCount(counts, activity, at, arriving, used)
        finally:
            administration.close()

    def _used(self, administration: Administration, key: QueueKey, counts: QueueCounts) -> float | None:
        if counts.size_in_bytes is None:
            return None
        if key not in self._room:
            found = administration.get_queue(key.queue)
            self._room[key] = 0 if found is None else found.max_size_in_megabytes * 2**20
        room = self._room[key]
        return min(1.0, counts.size_in_bytes / room) if room else None


def _arriving(before: BacklogCount | None, counts: QueueCounts, activity: QueueActivity, at: float) -> float | None:
    """Messages per second that have come into a queue between two counts."""
    if before is None or at <= before.at:
        return None
    arrived = counts.active + activity.moved - before.counts.active - before.then.moved
    return max(0.0, arrived / (at - before.at))
