"""The pending messages of one destination while the order of sessions is kept (D21).

Messages of one session are sent in the order of their sequence numbers, one batch at a time. `OrderedSessions` knows
which one is next; a session whose next message is not here is set aside until that changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from syphon.servicebus import RawSender

from .message_transfer import Batch, Chosen, MessageTransfer
from .unsent import ENVELOPE, SECTION, PendingMessages, Unsent


class OrderedMessages(PendingMessages):
    """The messages that wait to be sent: a queue for each session of each backlog queue."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[tuple[str | None, ...], deque[MessageTransfer]] = {}
        """The sessions that wait for a message, which may be in flight."""

    def add(self, transfer: MessageTransfer) -> None:
        if transfer.restored.session_id is None:
            super().add(transfer)
            return
        key = _key(transfer)
        queue = self._held.get(key)
        if queue is None:
            queue = self._queues.setdefault(key, deque())
        if not queue or _number(queue[-1]) <= _number(transfer):
            queue.append(transfer)
        else:
            queue.insert(bisect_left(queue, _number(transfer), key=_number), transfer)
            self._wake(key)
        self._count += 1

    def has_next(self) -> bool:
        """Whether a message can be sent now. Sets aside the sessions that wait."""
        while self._queues:
            key, queue = next(iter(self._queues.items()))
            if next_of(queue, 1):
                return True
            self._held[key] = self._queues.pop(key)
        return False

    def next_batch(self, sender: RawSender[Batch], most: int) -> Batch:
        if not self.has_next():
            return []
        key, queue = next(iter(self._queues.items()))
        if queue[0].restored.session_id is None:
            return super().next_batch(sender, most)
        room, count, partition = sender.max_batch - ENVELOPE, 0, queue[0].restored.partition_key
        for transfer in queue:
            room -= transfer.restored.size + SECTION
            if count and (room < 0 or transfer.restored.partition_key != partition):
                break
            count += 1
            if count >= min(most, self.batch_limit):
                break
        batch = [queue.popleft() for _ in range(next_of(queue, count))]
        self._count -= len(batch)
        if queue:
            self._queues.move_to_end(key)
        else:
            del self._queues[key]
        return batch

    def heads(self) -> Batch:
        """The first message of each session that can be sent."""
        return [queue[0] for queue in self._queues.values() if next_of(queue, 1)]

    def wake(self, transfer: MessageTransfer | None = None) -> None:
        """The next message of a session, or of any, may be here."""
        for key in list(self._held) if transfer is None else [_key(transfer)]:
            self._wake(key)

    def _wake(self, key: tuple[str | None, ...]) -> None:
        queue = self._held.pop(key, None)
        if queue is not None:
            self._queues[key] = queue

    def take(self, chosen: Chosen) -> list[MessageTransfer]:
        self.wake()
        return super().take(chosen)


class OrderedUnsent(Unsent):
    """What a destination has to send. What cannot be sent again at once waits with the rest of its session."""

    def __init__(self) -> None:
        self.pending: OrderedMessages = OrderedMessages()
        self.again = deque()

    def has_next(self) -> bool:
        return any(next_of(batch, 1) for batch in self.again) or self.pending.has_next()

    def next_batch(self, sender: RawSender[Batch], most: int, from_the_middle: bool = False) -> Batch:
        while self.again:
            batch = self.again.popleft()
            count = next_of(batch, len(batch))
            for transfer in batch[count:]:
                self.pending.add(transfer)
            if count:
                return self.first_part(batch[:count], 1 if from_the_middle else most)
        return self.pending.next_batch(sender, 1 if from_the_middle else most)

    def take_number(self, number: int) -> Batch:
        heads = [batch[0] for batch in self.again if next_of(batch, 1)] + self.pending.heads()
        if not heads:
            return []
        chosen = heads[number % len(heads)]
        return self.take(lambda transfer: transfer is chosen)

    def may_skip(self, rest: Batch) -> bool:
        if rest:
            self.again.appendleft(rest)
        return False

    def wake(self) -> None:
        self.pending.wake()

    def accepted(self, batch: Batch) -> None:
        if not batch:
            return  # a ping
        for transfer in batch:
            order = transfer.queue.order
            if order is not None:
                order.accepted(transfer)
        self.pending.wake(batch[0])


def next_of(transfers: deque[MessageTransfer] | Batch, most: int) -> int:
    """How many of these messages, which have one session or none, can be sent together now."""
    order = transfers[0].queue.order
    return min(most, len(transfers)) if order is None else order.next_of(transfers, most)


def _key(transfer: MessageTransfer) -> tuple[str | None, ...]:
    """Messages of several backlog queues, or that name several destinations, are not ordered among each other."""
    return transfer.restored.session_id, transfer.restored.destination.key, transfer.queue.queue


def _number(transfer: MessageTransfer) -> int:
    return transfer.restored.stamps.sequence_number
