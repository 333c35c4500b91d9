"""What waits for one destination, and the batches it goes out in: of one key each, as large as the link allows (S8)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.amqp import Map, Properties, Section, Symbol, data_head, properties_bytes, section_bytes
from syphon.amqp.frames import BATCH_FORMAT
from syphon.backlog import Restored
from syphon.bus import Arrival, RawSender

if TYPE_CHECKING:
    from .traces import BatchTrace

MOST = 100
"""Messages in a batch."""
WORTH_SENDING = 25
"""Messages that go out although others are under way. Fewer wait for company, or until nothing is."""
ENVELOPE = 512
"""Bytes that a batch may need beside its messages: the first one's id and key."""
SECTION = 8
"""Bytes that a message costs in a batch beyond its own."""


@dataclass(slots=True, eq=False)
class Transfer:
    """One message on its way."""

    arrival: Arrival
    restored: Restored
    size: int
    """Of the message as it came."""
    possible_duplicate: bool = False
    forwarded_at: int | None = None
    trace: BatchTrace | None = None
    """Of the batch it was accepted with, if that is traced."""


Batch = list[Transfer]
Key = tuple[str | None, str | None]
"""Session and partition key."""
NO_KEY: Key = (None, None)


class Lines:
    """Messages that wait, a line for each key."""

    def __init__(self) -> None:
        self.together = MOST
        """How many may go in one batch."""
        self._lines: OrderedDict[Key, deque[Transfer]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, transfer: Transfer) -> None:
        key = transfer.restored.session_id, transfer.restored.partition_key
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = deque()
        line.append(transfer)
        self._count += 1

    def next_batch(self, sender: RawSender[Batch]) -> Batch:
        """Messages of one key that fit together, of each key in turn; nothing if they had better wait for company.

        A message that is too large for the link comes alone.
        """
        if not self._lines:
            return []
        key, line = next(iter(self._lines.items()))
        if key == NO_KEY and len(self._lines) == 1 and sender.under_way and self._is_small(line, sender):
            return []
        room = sender.max_batch - ENVELOPE
        batch: Batch = []
        while line and len(batch) < self.together:
            size = line[0].restored.size + SECTION
            if batch and size > room:
                break
            room -= size
            batch.append(line.popleft())
        self._count -= len(batch)
        if line:
            self._lines.move_to_end(key)
        else:
            del self._lines[key]
        return batch

    def _is_small(self, line: deque[Transfer], sender: RawSender[Batch]) -> bool:
        """Whether the next batch would be a small one: by count, and by size if all are like the first."""
        few = min(WORTH_SENDING, self.together)
        return len(line) < few and len(line) * line[0].restored.size < sender.max_batch

    def take(self, locked_before: float) -> list[Transfer]:
        """Those that were last locked before then, out of their lines."""
        taken: list[Transfer] = []
        for key, line in list(self._lines.items()):
            old, fresh = parted(line, locked_before)
            taken += old
            if not fresh:
                del self._lines[key]
            elif old:
                self._lines[key] = deque(fresh)
        self._count -= len(taken)
        return taken


def parted(transfers: Iterable[Transfer], locked_before: float) -> tuple[Batch, Batch]:
    """Those that were last locked before then, and the others."""
    old: Batch = []
    fresh: Batch = []
    for transfer in transfers:
        (old if transfer.arrival.locked_at < locked_before else fresh).append(transfer)
    return old, fresh


def encoded(batch: Batch) -> tuple[bytes, int]:
    """The bytes of a delivery, and its message format. A batch's envelope repeats the first one's id and key."""
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
