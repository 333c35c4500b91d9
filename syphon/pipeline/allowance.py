"""A limit on messages, shared by all queues of a drain, and kept to the message."""

from __future__ import annotations

import threading


class Allowance:
    """How many messages may still be moved, shared by all queues. Without a limit there is always more."""

    def __init__(self, limit: int | None, queues: int) -> None:
        self._left = limit
        self._queues = queues
        self._lent = 0
        self._changed = threading.Condition()

    def take(self) -> int | None:
        """A share of what is left; 0 when there is none, None when there is no limit."""
        with self._changed:
            if self._left is None:
                return None
            # What others have and do not use comes back to those who can.
            self._changed.wait_for(lambda: self._left or not self._lent)
            share = -(-self._left // max(1, self._queues))
            self._left -= share
            self._lent += share
            return share

    def give_back(self, share: int, unused: int) -> None:
        with self._changed:
            if self._left is not None:
                self._left += unused
                self._lent -= share
                self._changed.notify_all()

    def leave(self) -> None:
        """One queue less to share with."""
        with self._changed:
            self._queues -= 1
