"""The pending messages of one destination, and their batches: one key a batch, as large as the link allows (S8)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.amqp import Map, Properties, Section, Symbol, data_head, properties_bytes, section_bytes
from syphon.amqp.frames import BATCH_FORMAT
from syphon.backlog import Restored
from syphon.bus import Arrival, RawSender

from .suspicion import MessageKey

if TYPE_CHECKING:
    from .queue_transfer import QueueTransfer
    from .traces import BatchTrace

MOST = 100
"""Messages in a batch, at most."""
WORTH_SENDING = 25
"""Messages that are sent although others are under way. Fewer wait for more, or until nothing is under way."""
ENVELOPE = 512
"""Bytes that a batch may need beside its messages: the id and key of the first one."""
SECTION = 8
"""Bytes that a batch adds to each message."""


@dataclass(slots=True, eq=False)
class MessageTransfer:
    """One message on its way."""

    queue: QueueTransfer
    """The queue that it came from, and that settles it."""
    arrival: Arrival
    restored: Restored
    size: int
    """Bytes of the message as it was received."""
    possible_duplicate: bool = False
    came_again: bool = False
    """The queue has delivered the message again: the lock of this delivery has ended, whatever the clocks say."""
    forwarded_at: int | None = None
    renamed_to: str | None = None
    """The entity it goes to, if that is not the one that it names."""
    trace: BatchTrace | None = None
    """The trace of the batch it was accepted with, if that is traced."""

    @property
    def key(self) -> MessageKey:
        """What tells it from all other messages."""
        return self.arrival.link.path, self.restored.stamps.sequence_number

    @property
    def is_late(self) -> bool:
        """Whether its lock has run out, or is about to: its completion would come too late."""
        return self.came_again or self.arrival.locked_at < self.queue.locked_before


Batch = list[MessageTransfer]
Chosen = Callable[[MessageTransfer], bool] | None
"""Which messages are meant; None means all."""
Key = tuple[str | None, str | None]
"""Session and partition key."""
NO_KEY: Key = (None, None)


class PendingMessages:
    """The messages that wait to be sent: a queue for each key, served in turn."""

    def __init__(self) -> None:
        self.batch_limit = MOST
        """How many messages may share one batch."""
        self._queues: OrderedDict[Key, deque[MessageTransfer]] = OrderedDict()
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
        if key == NO_KEY and len(self._queues) == 1 and sender.under_way and self._is_small(queue, sender):
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


def split(transfers: Iterable[MessageTransfer], chosen: Chosen) -> tuple[Batch, Batch]:
    """The chosen messages, and the others."""
    found: Batch = []
    rest: Batch = []
    for transfer in transfers:
        (found if chosen is None or chosen(transfer) else rest).append(transfer)
    return found, rest


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
