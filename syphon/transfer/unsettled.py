"""The unsettled messages of one queue: each message that a pump receives leaves it once, with one outcome.

At every moment: received = forwarded + dead-lettered + left + in hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from syphon.backlog import stamps_of
from syphon.model import Counters, Outcome, Result
from syphon.servicebus import Arrival

from .batches import MessageTransfer
from .traces import Traces


class Ended(StrEnum):
    """Why a pump stopped receiving the messages of a queue."""

    QUIET = "quiet"
    LEASE = "lease"
    STOPPED = "stopped"
    LIMIT = "limit"
    PRIMARY_UNREACHABLE = "primary away"


@dataclass(slots=True)
class PumpCounters(Counters):
    """What a pump has done so far, and what it has in hand."""

    in_flight: int = 0
    bytes_in_flight: int = 0


class Unsettled:
    """Keeps the messages that are received and not settled, counts them, and records the outcome of each."""

    def __init__(
        self,
        queue: str,
        record: Callable[[Outcome], None],
        now: Callable[[], float],
        traces: Traces,
        wall: Callable[[], int],
    ) -> None:
        self.counters = PumpCounters()
        self.transfers: dict[Arrival, MessageTransfer | None] = {}
        """The messages in hand, oldest first. None: the message cannot be forwarded and only waits to be settled."""
        self._by_number: dict[int, MessageTransfer] = {}
        """The last delivery of each message that is to be forwarded, by the number that its queue has given it."""
        self._queue = queue
        self._record = record
        self._now = now
        self._wall = wall
        self._traces = traces
        self._reasons: dict[Arrival, str] = {}

    def receive(self, arrival: Arrival) -> None:
        """Adds a message that has just arrived."""
        self.transfers[arrival] = None
        self.counters.received += 1
        self.counters.bytes_in_flight += len(arrival.payload)
        self.counters.in_flight = len(self.transfers)

    def add(self, transfer: MessageTransfer) -> None:
        """Adds the transfer of a message that was received and can be forwarded.

        A message comes again while it is in hand if the network held up its first delivery for longer than the lock.
        Then only the last delivery has a lock.
        """
        self.transfers[transfer.arrival] = transfer
        number = transfer.restored.stamps.sequence_number
        if number:  # 0: the queue has given it none
            older = self._by_number.get(number)
            if older is not None:
                older.redelivered = True
            self._by_number[number] = transfer

    def note(self, arrival: Arrival, reason: str) -> None:
        """Keeps the reason of a settlement until the service has confirmed the settlement."""
        self._reasons[arrival] = reason

    def finish(
        self, arrival: Arrival, result: Result, reason: str | None = None, possible_duplicate: bool = False
    ) -> None:
        """Removes a message and records its outcome."""
        transfer = self.transfers.pop(arrival)
        noted = self._reasons.pop(arrival, "")
        size = len(arrival.payload) if transfer is None else transfer.size
        duplicate = possible_duplicate or (transfer is not None and transfer.possible_duplicate)
        if transfer is not None:
            number = transfer.restored.stamps.sequence_number
            if self._by_number.get(number) is transfer:
                del self._by_number[number]
            if transfer.trace is not None:
                self._traces.settle(transfer.trace)
        counters = self.counters
        counters.in_flight = len(self.transfers)
        counters.bytes_in_flight -= size
        counters.possible_duplicates += duplicate
        if result is Result.FORWARDED:
            counters.forwarded += 1
            counters.bytes_forwarded += size
        elif result is Result.DEAD_LETTERED:
            counters.dead_lettered += 1
        else:
            counters.left += 1
        self._record(self._outcome(arrival, transfer, size, result, noted if reason is None else reason, duplicate))

    def _outcome(
        self,
        arrival: Arrival,
        transfer: MessageTransfer | None,
        size: int,
        result: Result,
        reason: str,
        duplicate: bool,
    ) -> Outcome:
        wall = self._wall()
        received_at = wall - round((self._now() - arrival.received_at) * 1000)
        if transfer is None:
            stamps = stamps_of(arrival.payload)
            message_id, destination, session_id, forwarded_at, renamed_to = "", "", None, None, None
        else:
            _, path, found_id, session_id, _, _, stamps = transfer.restored
            message_id, destination = "" if found_id is None else str(found_id), path.name
            forwarded_at, renamed_to = transfer.forwarded_at, transfer.renamed_to
        # By position, because this runs for every message: keywords would cost as much as the rest of the function.
        return Outcome(
            self._queue,
            stamps.sequence_number,
            message_id,
            destination,
            session_id,
            stamps.enqueued_at,
            received_at,
            forwarded_at,
            wall,
            size,
            stamps.delivery_count,
            result,
            reason,
            duplicate,
            renamed_to,
        )


def wall_clock() -> int:
    """The wall clock, for what is recorded: milliseconds since 1970. Waits and deadlines use a monotonic clock."""
    return time.time_ns() // 1_000_000
