"""The messages of one destination that are to be sent: batches to send again, and after them the pending messages."""

from __future__ import annotations

import itertools
from collections import deque

from syphon.bus import RawSender

from .batches import Batch, Chosen, MessageTransfer, PendingMessages, split


class Unsent:
    """What a destination has to send, in the order in which it is sent."""

    def __init__(self) -> None:
        self.pending = PendingMessages()
        self.again: deque[Batch] = deque()
        """Batches to send again."""

    def __bool__(self) -> bool:
        return bool(self.pending or self.again)

    def __len__(self) -> int:
        return len(self.pending) + sum(map(len, self.again))

    def next_batch(self, sender: RawSender[Batch], most: int, from_the_middle: bool = False) -> Batch:
        """The next messages to send together, at most so many; empty if waiting for more is better.

        With `from_the_middle` a batch to send again gives only one message, which is from the middle of the largest.
        """
        if not self.again:
            return self.pending.next_batch(sender, most)
        if not from_the_middle:
            return self.first_part(self.again.popleft(), most)
        largest = max(self.again, key=len)
        self.again.remove(largest)
        one = largest.pop(len(largest) // 2)
        if largest:
            self.again.appendleft(largest)
        return [one]

    def first_part(self, batch: Batch, limit: int) -> Batch:
        """The part of a batch that is sent now; the rest is sent next."""
        if len(batch) > limit:
            self.again.appendleft(batch[limit:])
        return batch[:limit]

    def take_number(self, number: int) -> Batch:
        """Removes and returns one message, by its place in the order."""
        turn = itertools.count()
        return self.take(lambda _: next(turn) == number)

    def take_pending_after(self, number: int) -> Batch:
        """Removes and returns all pending messages but the first `number`."""
        turn = itertools.count()
        return self.pending.take(lambda _: next(turn) >= number)

    def take(self, chosen: Chosen = None) -> list[MessageTransfer]:
        """Removes and returns all messages, or the chosen ones."""
        parts = [split(batch, chosen) for batch in self.again]
        self.again = deque(rest for _, rest in parts if rest)
        return [transfer for found, _ in parts for transfer in found] + self.pending.take(chosen)

    def again_in_halves_first(self, batch: Batch) -> None:
        """Sends a batch again in halves, the first half first, before all else."""
        middle = (len(batch) + 1) // 2
        self.again.extendleft((batch[middle:], batch[:middle]))

    def again_in_parts_last(self, batch: Batch) -> None:
        """Sends a batch again in halves (one by one if batches are not taken), after the batches that wait already."""
        size = 1 if self.pending.batch_limit == 1 else (len(batch) + 1) // 2
        self.again += (batch[start : start + size] for start in range(0, len(batch), size))
