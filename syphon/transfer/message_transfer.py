"""One message on its way through a pump: where it comes from, what it was restored to, and what has become of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.backlog import Restored
from syphon.servicebus import Arrival

from .connection_suspects import MessageKey

if TYPE_CHECKING:
    from .queue_transfer import QueueTransfer
    from .traces import BatchTrace


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
    redelivered: bool = False
    """The queue has redelivered the message: the lock of this delivery has expired, whatever the clocks say."""
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
        """Whether its lock has expired, or is about to: its completion would come too late."""
        return self.redelivered or self.arrival.locked_at < self.queue.locked_before


Batch = list[MessageTransfer]
Chosen = Callable[[MessageTransfer], bool] | None
"""Which messages are meant; None means all."""


def split(transfers: Iterable[MessageTransfer], chosen: Chosen) -> tuple[Batch, Batch]:
    """The chosen messages, and the others."""
    found: Batch = []
    rest: Batch = []
    for transfer in transfers:
        (found if chosen is None or chosen(transfer) else rest).append(transfer)
    return found, rest
