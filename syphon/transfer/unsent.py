"""The unsent messages of one destination, and their batches: one key per batch, as large as the link allows (S8)."""

from __future__ import annotations

import itertools
from collections import OrderedDict, deque

from syphon.amqp import Map, Properties, Section, Symbol, data_head, properties_bytes, section_bytes
from syphon.amqp.frames import BATCH_FORMAT
from syphon.servicebus import RawSender

from .breaker import Key
from .message_transfer import Batch, Chosen, MessageTransfer, split

MOST_IN_BATCH = 100
"""Messages in a batch, at most."""
WORTH_SENDING = 25
"""Messages that are sent although others are in flight. Fewer wait for more, or until nothing is in flight."""
ENVELOPE = 512
"""Bytes that a batch may need beside its messages: the id and key of the first one."""
SECTION = 8
"""Bytes that a batch adds to each message."""


NO_KEY: Key = (None, None)


class PendingMessages:
    """The messages that wait to be sent: a queue for each key, served in turn."""

    def __init__(self) -> None:
        self.batch_limit = MOST_IN_BATCH
        """How many messages may share one batch."""
        self._queues: OrderedDict[tuple[str | None, ...], deque[MessageTransfer]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, transfer: MessageTransfer) -> None:
        key = transfer.restored.session_id, transfer.restored.partition_key
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        queue.append(transfer)
        self._count += 1

    def next_batch(self, sender: RawSender[Batch], most: int) -> Batch:
        """The next messages of one key that fit into a batch; the keys take turns. Empty if waiting for more is better.

        A message that is too large for the link comes alone.
        """
        if not self._queues:
            return []
        key, queue = next(iter(self._queues.items()))
        if key == NO_KEY and len(self._queues) == 1 and sender.in_flight and self._is_small(queue, sender):
            return []
        room = sender.max_batch - ENVELOPE
        batch: Batch = []
        most = min(most, self.batch_limit)
        while queue and len(batch) < most:
            size = queue[0].restored.size + SECTION
            if batch and size > room:
                break
            room -= size
            batch.append(queue.popleft())
        self._count -= len(batch)
        if queue:
            self._queues.move_to_end(key)
        else:
            del self._queues[key]
        return batch

    def _is_small(self, queue: deque[MessageTransfer], sender: RawSender[Batch]) -> bool:
        """Whether the next batch would be small: by count, and by bytes if all messages are as large as the first."""
        few = min(WORTH_SENDING, self.batch_limit)
        return len(queue) < few and len(queue) * queue[0].restored.size < sender.max_batch

    def take(self, chosen: Chosen) -> list[MessageTransfer]:
        """Removes and returns the chosen messages."""
        taken: list[MessageTransfer] = []
        for key, queue in list(self._queues.items()):
            found, rest = split(queue, chosen)
            taken += found
            if not rest:
                del self._queues[key]
            elif found:
                self._queues[key] = deque(rest)
        self._count -= len(taken)
        return taken


def encoded(batch: Batch) -> tuple[bytes, int]:
    """The bytes of a delivery, and its message format. A batch's envelope repeats the first message's id and key."""
    if len(batch) == 1:
        return batch[0].restored.payload, 0
    first = batch[0].restored
    parts = []
    key = first.partition_key
    if key is not None:
        parts.append(section_bytes(Section.MESSAGE_ANNOTATIONS, Map(((Symbol("x-opt-partition-key"), key),))))
    if first.message_id is not None or first.session_id is not None:
        parts.append(properties_bytes(Properties(message_id=first.message_id, group_id=first.session_id)))
    for transfer in batch:
        parts += (data_head(transfer.restored.payload), transfer.restored.payload)
    return b"".join(parts), BATCH_FORMAT


class Unsent:
    """What a destination has to send, in the order in which it is sent."""

    def __init__(self) -> None:
        self.pending = PendingMessages()
        self.again: deque[Batch] = deque()
        """Batches to send again."""

    def __bool__(self) -> bool:
        return bool(self.pending or self.again)

    def has_next(self) -> bool:
        """Whether a message may be sent now."""
        return bool(self)

    def __len__(self) -> int:
        return len(self.pending) + sum(map(len, self.again))

    def may_skip(self, rest: Batch) -> bool:
        """Whether the rest of a batch is sent without its late messages; otherwise it waits again, if there is any."""
        return bool(rest)

    def accepted(self, batch: Batch) -> None:
        """The destination has accepted a batch."""

    def wake(self) -> None:
        """Messages that had to wait for others may be sent."""

    def next_batch(self, sender: RawSender[Batch], most: int, from_the_middle: bool = False) -> Batch:
        """The next messages to send together, at most `most`; empty if waiting for more is better.

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
        """Sends a batch again in halves (one by one if batches are refused), after the batches that wait already."""
        size = 1 if self.pending.batch_limit == 1 else (len(batch) + 1) // 2
        self.again += (batch[start : start + size] for start in range(0, len(batch), size))
