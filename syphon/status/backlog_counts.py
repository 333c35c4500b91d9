"""How many messages each backlog queue and its dead letters hold, as the namespace counts them (D4).

The counts are hints, never a proof. A question to the administration API is not a receive, but it has a cost too. The
worker asks about every queue once at the start. Later it asks once a minute about queues that have work, sooner if it
has moved more messages than the queue held at the last answer, and now and then about queues that have dead letters.
Without the right to ask (the Manage claim), the worker works without these counts.
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

log = logging.getLogger(__name__)

ASK_EVERY = 60.0
"""Seconds between questions about the same queue."""
ASK_ABOUT_DEAD_LETTERS_EVERY = 300.0
"""Seconds between questions about a queue without work that has dead letters: a person may have put them back."""
ASK_AGAIN_AFTER = 10.0
"""Seconds after which the worker asks again if newer messages have made the last answer wrong."""
LOOK_EVERY = 5.0
"""Seconds after which the thread notices that a queue has got work."""


class QueueActivity(NamedTuple):
    """What the worker has done with a queue, and whether a newer count is of interest."""

    moved: int
    """Messages that have left it: forwarded and dead-lettered."""
    dead_lettered: int
    is_busy: bool
    """It has work, or messages that wait."""


class BacklogCount(NamedTuple):
    """The namespace's counts of a queue, and what the worker had done with it when it asked."""

    counts: QueueCounts
    then: QueueActivity

    def left(self, now: QueueActivity) -> int | None:
        """How many are left now. None if more were moved than the count says: new messages have arrived."""
        left = self.counts.active - (now.moved - self.then.moved)
        return left if left >= 0 else None

    def dead_letters(self, now: QueueActivity) -> int:
        """How many dead letters there are now, unless a person has taken some of them since the count."""
        return self.counts.dead_letters + now.dead_lettered - self.then.dead_lettered


class BacklogCounts:
    """Asks the namespaces in a thread of its own, so that a namespace that does not answer delays nothing else."""

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
        self._asked_at: dict[QueueKey, float] = {}
        self._denied: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backlog-counts", daemon=True)

    def __enter__(self) -> BacklogCounts:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            try:
                self.ask()
            except Exception:  # the last counts stay until a later round succeeds
                log.debug("counting the backlog's messages failed", exc_info=True)

    def ask(self) -> None:
        """Asks once about each queue whose next question is due."""
        now = self._now()
        due = {key: activity for key, activity in self._activity().items() if self._is_due(key, activity, now)}
        self._asked_at.update(dict.fromkeys(due, now))
        for name, pair in self._pairs.items():
            asked = {key: activity for key, activity in due.items() if key.pair == name}
            if not asked or name in self._denied:
                continue
            try:
                self._ask_about(pair, asked)
            except NotAuthorized:
                self._denied.add(name)
                log.info("%s: the worker cannot count the messages in its queues: that needs the Manage claim", name)
            except SyphonError as error:
                log.debug("%s: the worker cannot count the messages in its queues: %s", name, error)
                for key in asked:
                    self.counts.pop(key, None)

    def _is_due(self, key: QueueKey, activity: QueueActivity, now: float) -> bool:
        if key not in self._asked_at:
            return True
        count, passed = self.counts.get(key), now - self._asked_at[key]
        if count is not None and count.left(activity) is None:
            return passed >= ASK_AGAIN_AFTER
        if activity.is_busy:
            return passed >= ASK_EVERY
        return count is not None and count.dead_letters(activity) > 0 and passed >= ASK_ABOUT_DEAD_LETTERS_EVERY

    def _ask_about(self, pair: PairSettings, asked: dict[QueueKey, QueueActivity]) -> None:
        administration = secondary_administration(pair)
        try:
            for key, activity in asked.items():
                counts = administration.queue_counts(key.queue)
                if counts is None:
                    self.counts.pop(key, None)
                else:
                    self.counts[key] = BacklogCount(counts, activity)
        finally:
            administration.close()
