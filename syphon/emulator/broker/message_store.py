"""The messages of one queue: all of them by sequence number, and those that are ready to be received, in order."""

from __future__ import annotations

import bisect
import heapq
from collections import deque
from collections.abc import Callable

from .journal import Journal
from .message import ORDINAL_BITS, ORDINAL_MASK, BrokeredMessage, StoredState
from .refusals import TimedOut


class MessageStore:
    """Holds every message of a queue: ready, locked, deferred or scheduled. Numbers rise and are never used twice."""

    def __init__(self, path: str, journal: Journal) -> None:
        self.path = path
        self.size = 0
        self.down_fragments: set[int] = set()
        self._journal = journal
        self._messages: dict[int, BrokeredMessage] = {}
        self._order: dict[int, list[int]] = {}
        """The ordinals by fragment, each list ascending; removed ones stay for a while."""
        self._last_ordinal = 0

    # --- looking ---------------------------------------------------------------------------------------------------

    def peek(self, sequence: int, count: int, session_id: str | None = None) -> list[BrokeredMessage]:
        """Returns messages from a sequence number on, also locked, deferred and scheduled ones. Changes nothing.

        The order is that of the numbers, as the service documents it: one fragment after the other.
        """
        found: list[BrokeredMessage] = []
        sequence = max(0, sequence)
        for fragment in sorted(self._order):
            if fragment in self.down_fragments or fragment < sequence >> ORDINAL_BITS:
                continue
            order = self._order[fragment]
            begins_inside = fragment == sequence >> ORDINAL_BITS
            place = bisect.bisect_left(order, sequence & ORDINAL_MASK) if begins_inside else 0
            while place < len(order):
                if len(found) == count:
                    return found
                message = self._messages.get(order[place])
                place += 1
                if message is not None and (session_id is None or message.session_id == session_id):
                    found.append(message)
        return found

    def peek_page(self, sequence: int, count: int, session_id: str | None = None) -> list[BrokeredMessage]:
        """The same from one fragment: a partitioned entity may return fewer messages than requested, although it has
        more."""
        found = self.peek(sequence, count, session_id)
        return [message for message in found if message.fragment == found[0].fragment]

    def count(self, state: StoredState) -> int:
        return sum(1 for message in self._messages.values() if message.state is state)

    def __len__(self) -> int:
        return len(self._messages)

    def _find_message(self, sequence: int) -> BrokeredMessage | None:
        message = self._messages.get(sequence & ORDINAL_MASK)
        if message is None or message.sequence != sequence:
            return None
        if message.fragment in self.down_fragments:
            raise TimedOut(f"Fragment {message.fragment} of '{self.path}', with message {sequence}, is not available.")
        return message

    # --- coming and going ------------------------------------------------------------------------------------------

    def continue_after(self, ordinal: int) -> None:
        """Continues after the numbers that were used before a restart."""
        self._last_ordinal = max(self._last_ordinal, ordinal)

    def _keep(self, message: BrokeredMessage) -> None:
        self._messages[message.ordinal] = message
        self._order.setdefault(message.fragment, []).append(message.ordinal)
        self.size += message.size

    def _remove(self, message: BrokeredMessage) -> None:
        del self._messages[message.ordinal]
        self.size -= message.size
        self._journal.remove(self.path, message.ordinal)
        order = self._order[message.fragment]
        if len(order) > 2 * len(self._messages) + 1024:
            self._order[message.fragment] = [ordinal for ordinal in order if ordinal in self._messages]


class ReadyQueue:
    """The numbers of the messages that can be received now, lowest first.

    New messages are appended. Returned messages go back to their place: a heap makes that cheap in a long queue.
    """

    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()
        self._returned: list[int] = []

    def join(self, ordinal: int) -> None:
        self._fresh.append(ordinal)

    def put_back(self, ordinal: int) -> None:
        heapq.heappush(self._returned, ordinal)

    def pop(self) -> int | None:
        if self._returned and not (self._fresh and self._fresh[0] < self._returned[0]):
            return heapq.heappop(self._returned)
        return self._fresh.popleft() if self._fresh else None

    def trim(self, is_there: Callable[[int], bool]) -> None:
        """Removes deleted messages from the front. Without a receiver nothing else removes them."""
        while self._fresh and not is_there(self._fresh[0]):
            self._fresh.popleft()
        while self._returned and not is_there(self._returned[0]):
            heapq.heappop(self._returned)

    def __bool__(self) -> bool:
        return bool(self._fresh or self._returned)
