"""A limit on messages, shared by all queues of a drain, and kept to the message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class LimitShare:
    """What one queue may move now: 0 when nothing is left, None when there is no limit."""

    most: int | None
    used: int = 0


class SharedLimit:
    """How many messages may still be moved, shared by all queues. Without a limit there is always more."""

    def __init__(self, limit: int | None, queues: int) -> None:
        self._left = limit
        self._queues = queues
        self._lent = 0
        self._changed = threading.Condition()

    @contextmanager
    def share(self) -> Iterator[LimitShare]:
        """A share of what is left. What is not used of it comes back, however the block ends: others wait for it."""
        share = LimitShare(self._take())
        try:
            yield share
        finally:
            if share.most is not None:
                self._give_back(share.most, share.most - share.used)

    def _take(self) -> int | None:
        with self._changed:
            if self._left is None:
                return None
            # What others have and do not use comes back to those who can.
            self._changed.wait_for(lambda: self._left or not self._lent)
            share = -(-self._left // max(1, self._queues))
            self._left -= share
            self._lent += share
            return share

    def _give_back(self, share: int, unused: int) -> None:
        with self._changed:
            if self._left is not None:
                self._left += unused
                self._lent -= share
                self._changed.notify_all()

    def leave(self) -> None:
        """One queue less to share with."""
        with self._changed:
            self._queues -= 1
