"""A limit on messages that all pairs of a drain share, exact to the message."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class LimitShare:
    """How many messages one pair may move: 0 if the limit is used up, None if there is no limit."""

    most: int | None
    used: int = 0


class SharedLimit:
    """How many messages all pairs together may still move; any number without a limit."""

    def __init__(self, limit: int | None, pairs: int) -> None:
        self._left = limit
        self._pairs = pairs
        self._lent = 0
        self._changed = threading.Condition()

    @contextmanager
    def share(self) -> Iterator[LimitShare]:
        """Lends a share of the rest. The unused part is returned however the block ends: other pairs wait for it."""
        share = LimitShare(self._take())
        try:
            yield share
        finally:
            if share.most is not None:
                self._return(share.most, share.most - share.used)

    def _take(self) -> int | None:
        with self._changed:
            if self._left is None:
                return None
            # Another pair may return an unused part: wait for it before saying that nothing is left.
            self._changed.wait_for(lambda: self._left or not self._lent)
            share = -(-self._left // max(1, self._pairs))
            self._left -= share
            self._lent += share
            return share

    def _return(self, share: int, unused: int) -> None:
        with self._changed:
            if self._left is not None:
                self._left += unused
                self._lent -= share
                self._changed.notify_all()

    def leave(self) -> None:
        """Removes a pair that has ended: the others share the rest."""
        with self._changed:
            self._pairs -= 1
