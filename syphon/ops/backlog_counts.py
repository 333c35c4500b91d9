"""How many messages each backlog queue still holds, as the namespace counts them: a hint, never a proof (D4).

A question to the administration API is not a receive, but it has a cost too. The worker therefore asks only about
queues that have work, once a minute, and sooner if it has moved more messages than the queue held at the last answer.
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

log = logging.getLogger(__name__)

ASK_EVERY = 60.0
"""Seconds between questions about the same queue."""
ASK_AGAIN_AFTER = 10.0
"""Seconds after which the worker asks again if newer messages have made the last answer wrong."""
LOOK_EVERY = 5.0
"""Seconds after which the thread notices that a queue has got work."""


class BacklogCount(NamedTuple):
    """The namespace's count of a queue, and how many messages the worker had moved when it asked."""

    left: int
    moved: int

    def after(self, moved: int) -> int | None:
        """How many are left now. None if more were moved than the count says: new messages have arrived."""
        left = self.left - (moved - self.moved)
        return left if left >= 0 else None


class BacklogCounts:
    """Asks the namespaces in a thread of its own, so that a namespace that does not answer delays nothing else."""

    def __init__(
        self,
        pairs: Collection[PairSettings],
        busy: Callable[[], dict[QueueKey, int]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`busy` returns the queues that are worth a question, and how many messages were moved of each so far."""
        self.counts: dict[QueueKey, BacklogCount] = {}
        self._pairs = {pair.name: pair for pair in pairs}
        self._busy = busy
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
        due = {key: moved for key, moved in self._busy().items() if self._is_due(key, moved, now)}
        self._asked_at.update(dict.fromkeys(due, now))
        for name, pair in self._pairs.items():
            asked = {key: moved for key, moved in due.items() if key.pair == name}
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

    def _is_due(self, key: QueueKey, moved: int, now: float) -> bool:
        if key not in self._asked_at:
            return True
        count = self.counts.get(key)
        is_outdated = count is not None and count.after(moved) is None
        return now - self._asked_at[key] >= (ASK_AGAIN_AFTER if is_outdated else ASK_EVERY)

    def _ask_about(self, pair: PairSettings, asked: dict[QueueKey, int]) -> None:
        administration = secondary_administration(pair)
        try:
            for key, moved in asked.items():
                left = administration.active_messages(key.queue)
                if left is None:
                    self.counts.pop(key, None)
                else:
                    self.counts[key] = BacklogCount(left, moved)
        finally:
            administration.close()
