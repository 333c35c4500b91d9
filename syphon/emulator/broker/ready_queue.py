"""The messages that can be had now, lowest number first."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable


class Line:
    """New messages join at the end; returned ones go back to where they were. Both cost the same in a long line."""

    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()
        self._returned: list[int] = []

    def join(self, ordinal: int) -> None:
        self._fresh.append(ordinal)

    def go_back(self, ordinal: int) -> None:
        heapq.heappush(self._returned, ordinal)

    def pop(self) -> int | None:
        if self._returned and not (self._fresh and self._fresh[0] < self._returned[0]):
            return heapq.heappop(self._returned)
        return self._fresh.popleft() if self._fresh else None

    def trim(self, is_there: Callable[[int], bool]) -> None:
        """Forgets those at the front that are no longer there: where nobody receives, nobody else would."""
        while self._fresh and not is_there(self._fresh[0]):
            self._fresh.popleft()
        while self._returned and not is_there(self._returned[0]):
            heapq.heappop(self._returned)

    def __bool__(self) -> bool:
        return bool(self._fresh or self._returned)
