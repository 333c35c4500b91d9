"""One source of a move: a queue, a subscription or a dead-letter queue, which belongs to somebody else (X12).

A backlog queue is syphon's own; a source of a move is not. So nothing changes there but what is moved:

- Nothing is dead-lettered or deferred. A message that cannot be moved stays, and its outcome says why.
- A lock that expires counts as a delivery, and most queues dead-letter a message after ten. So a message that stays is
  kept under its lock, and released when the service of the queue ends: that counts as none.
- In a dead-letter queue no number of deliveries matters. There a message that the filter does not select is only left
  locked, so that any number of them may lie before a selected one.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from syphon.model import Result, SyphonError, dead_letter_owner
from syphon.servicebus import Arrival, LinkState
from syphon.time_budget import REPLAY_RELEASE_WITHIN

from .message_transfer import MessageTransfer
from .queue_transfer import QueueTransfer
from .settlement import Ended

MOST_KEPT = 2_000
"""Messages that are kept under their locks, at most: renewing more would need the requests that moving needs."""
FULL = (
    f"{MOST_KEPT:,} messages that stay lie before the others, and more cannot be kept locked. They stay because the "
    "filter does not select them, or because the target does not accept them."
)


class MovedQueue(QueueTransfer):
    """The transfer of one source. Its service can end and begin again; the counters go on."""

    def __init__(self, queue: str, **options: Any) -> None:
        self._kept: dict[Arrival, MessageTransfer | None] = {}
        """Messages that stay, until they are released. They have their outcomes."""
        super().__init__(queue, **options)
        self._counts_deliveries = dead_letter_owner(queue) is None

    def _locked(self) -> Collection[Arrival]:
        return ChainMap(self.unsettled.transfers, self._kept)

    def grant(self, credit: int) -> None:
        super().grant(0 if self._is_full else credit)

    def reason_to_end(self, now: float) -> Ended | None:
        if self._is_full and not self.unsettled.transfers:
            self.error = SyphonError(FULL)
            return Ended.QUIET
        return super().reason_to_end(now)

    @property
    def counted_by_limit(self) -> int:
        """Not what the filter does not select: it is released at the end, so the next job would receive it again."""
        return self.counters.received - self.counters.outside

    @property
    def _is_full(self) -> bool:
        return len(self._kept) >= MOST_KEPT

    # --- messages that are not moved ---------------------------------------------------------------------------------

    def dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        self._stay(arrival, f"{reason}: {description}")

    def leave(self, transfer: MessageTransfer, error: SyphonError) -> None:
        if transfer.is_late:
            super().leave(transfer, error)
        else:
            self._stay(transfer.arrival, str(error))

    def defer(self, transfer: MessageTransfer, error: SyphonError) -> None:
        """Releases a message: the pump receives no other until the target is available."""
        self.abandon(transfer.arrival, str(error))
        self.slow_start()

    def skip(self, arrival: Arrival) -> None:
        if self._counts_deliveries:
            self.counters.outside += 1
            self._stay(arrival, "outside the filter")
        else:
            super().skip(arrival)

    def _stay(self, arrival: Arrival, why: str) -> None:
        self.unsettled.finish(arrival, Result.LEFT, why)
        if arrival.link.state is LinkState.OPEN and not self._is_full:
            arrival.payload = b""  # only its lock is needed
            self._kept[arrival] = None

    def close(self) -> None:
        """Releases the messages that stay, then closes like every queue."""
        self.take_settlements()
        if self._kept:
            with suppress(SyphonError):  # without a connection the locks expire by themselves
                self.intake.release(self._kept, REPLAY_RELEASE_WITHIN)
            self._kept.clear()
        super().close()
