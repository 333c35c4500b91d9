"""How many messages a backlog queue still has, asked of the namespace now and then: a hint, never a proof (D4).

Asking is no receive, and yet it is not free: only queues that have something to do are asked about, once a minute, and
sooner if more was moved than there was.
Who may not ask (it takes the Manage claim) goes without.
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

EVERY = 60.0
"""Seconds between questions about the same queue."""
SOON = 10.0
"""The same if the last answer has been overtaken by what came since."""
LOOK_EVERY = 5.0
"""Seconds after which a queue that has got something to do is noticed."""


class Count(NamedTuple):
    """So many messages, when so many had been moved."""

    left: int
    moved: int

    def after(self, moved: int) -> int | None:
        """What should be left now, if nothing came. None: something did, for more was moved than there was."""
        left = self.left - (moved - self.moved)
        return left if left >= 0 else None


class Counting:
    """Has a thread of its own: a namespace that does not answer holds up nobody."""

    def __init__(
        self,
        pairs: Collection[PairSettings],
        busy: Callable[[], dict[QueueKey, int]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`busy` says which queues are worth the question, and how much was moved of each so far."""
        self.counts: dict[QueueKey, Count] = {}
        self._pairs = {pair.name: pair for pair in pairs}
        self._busy = busy
        self._now = now
        self._asked_at: dict[QueueKey, float] = {}
        self._refused: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counting", daemon=True)

    def __enter__(self) -> Counting:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            try:
                self.ask()
            except Exception:  # what is left is told for as long as nobody knows better
                log.debug("counting", exc_info=True)

    def ask(self) -> None:
        """One round of questions, about queues that were not asked about for a while."""
        now = self._now()
        busy = {key: moved for key, moved in self._busy().items() if self._is_due(key, moved, now)}
        self._asked_at.update(dict.fromkeys(busy, now))
        for name, pair in self._pairs.items():
            asked = {key: moved for key, moved in busy.items() if key.pair == name}
            if not asked or name in self._refused:
                continue
            try:
                self._ask_about(pair, asked)
            except NotAuthorized:
                self._refused.add(name)
                log.info("%s: how many messages its queues have is not known: that takes the Manage claim", name)
            except SyphonError as error:
                log.debug("%s: its messages cannot be counted: %s", name, error)
                for key in asked:
                    self.counts.pop(key, None)

    def _is_due(self, key: QueueKey, moved: int, now: float) -> bool:
        if key not in self._asked_at:
            return True
        count = self.counts.get(key)
        is_overtaken = count is not None and count.after(moved) is None
        return now - self._asked_at[key] >= (SOON if is_overtaken else EVERY)

    def _ask_about(self, pair: PairSettings, asked: dict[QueueKey, int]) -> None:
        administration = secondary_administration(pair)
        try:
            for key, moved in asked.items():
                left = administration.active_messages(key.queue)
                if left is None:
                    self.counts.pop(key, None)
                else:
                    self.counts[key] = Count(left, moved)
        finally:
            administration.close()
