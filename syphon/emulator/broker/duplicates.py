"""Duplicate detection: which message ids were seen within the window."""

from __future__ import annotations

from collections import OrderedDict

from ..clock import Millis


class SeenIds:
    """Remembers message ids for a while, oldest first."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, Millis] = OrderedDict()

    def is_repeat(self, message_id: str, now: Millis, window: Millis) -> bool:
        """Whether the id came within the window. An id that is new counts as seen from now on."""
        while self._seen:
            oldest, at = next(iter(self._seen.items()))
            if now - at < window:
                break
            del self._seen[oldest]
        if message_id in self._seen:
            return True
        self._seen[message_id] = now
        return False

    def knows(self, message_id: str) -> bool:
        return message_id in self._seen

    def restore(self, message_id: str, at: Millis) -> None:
        self._seen[message_id] = at
