"""How many messages each backlog queue and its dead letters hold, as the namespace counts them (D4).

The counts are hints, never a proof. A request to the administration API is not a receive, but it has a cost too. The
worker counts every queue once at the start. Later it counts once per minute the queues that have work, sooner if it
has moved more messages than the queue held at the last count, and every five minutes those that have dead letters.
Without the Manage claim the worker has no counts, and works all the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from syphon.backlog import secondary_administration
from syphon.config import PairSettings
from syphon.model import NotAuthorized, QueueKey, SyphonError
from syphon.servicebus import QueueCounts
from syphon.time_budget import COUNT_AGAIN_AFTER, COUNT_DEAD_LETTERS_EVERY, COUNT_EVERY, WORK_NOTICED_WITHIN

log = logging.getLogger(__name__)


class QueueActivity(NamedTuple):
    """What the worker has done with a queue, and whether a newer count is of interest."""

    moved: int
    """Messages that have left it: forwarded and dead-lettered."""
    dead_lettered: int
    is_busy: bool
    """It has work, or messages that wait."""


class BacklogCount(NamedTuple):
    """The namespace's counts of a queue, and what the worker had done with the queue by then."""

    counts: QueueCounts
    then: QueueActivity

    def left(self, now: QueueActivity) -> int | None:
        """How many are left. None if more were moved than the count says: new messages have arrived."""
        left = self.counts.active - (now.moved - self.then.moved)
        return left if left >= 0 else None

    def dead_letters(self, now: QueueActivity) -> int:
        """How many dead letters there are, unless a person has removed some of them since the count."""
        return self.counts.dead_letters + now.dead_lettered - self.then.dead_lettered


class BacklogCounts:
    """Counts in a thread of its own, so that a namespace that does not answer delays nothing else."""

    def __init__(
        self,
        pairs: Collection[PairSettings],
        activity: Callable[[], dict[QueueKey, QueueActivity]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: dict[QueueKey, BacklogCount] = {}
        self._pairs = {pair.name: pair for pair in pairs}
        self._activity = activity
        self._now = now
        self._counted_at: dict[QueueKey, float] = {}
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

    def count(self) -> None:
        """Count once each queue whose next count is due."""
        now = self._now()
        due = {key: activity for key, activity in self._activity().items() if self._is_due(key, activity, now)}
        self._counted_at.update(dict.fromkeys(due, now))
        for name, pair in self._pairs.items():
            ours = {key: activity for key, activity in due.items() if key.pair == name}
            if not ours or name in self._denied:
                continue
            try:
                self._count_queues(pair, ours)
            except NotAuthorized:
                self._denied.add(name)
                log.info("%s: the worker cannot count the messages in its queues: that needs the Manage claim", name)
            except SyphonError as error:
                log.debug("%s: the worker cannot count the messages in its queues: %s", name, error)
                for key in ours:
                    self.counts.pop(key, None)

    def _is_due(self, key: QueueKey, activity: QueueActivity, now: float) -> bool:
        if key not in self._counted_at:
            return True
        count, passed = self.counts.get(key), now - self._counted_at[key]
        if count is not None and count.left(activity) is None:
            return passed >= COUNT_AGAIN_AFTER
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
                    self.counts[key] = BacklogCount(counts, activity)
        finally:
            administration.close()
