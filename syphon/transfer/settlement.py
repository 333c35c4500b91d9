"""What becomes of the messages of one queue: each leaves the pump once, with one outcome, and completed if forwarded.

At every moment: received = forwarded + dead-lettered + left + in flight.

A message that was forwarded and is not completed is redelivered. So the pump repeats a completion as long as the lock
lasts when its link was lost, the service did not answer, or a busy service refused it. Later the message is a possible
duplicate (S6, D10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from syphon.backlog import stamps_of
from syphon.model import Counters, LockLost, Outcome, Result, SyphonError, Waits
from syphon.servicebus import RUNTIME, Arrival, Connection, LinkState, Settled

from .locks import LockKeeper
from .message_transfer import MessageTransfer
from .ordered_sessions import OrderedSessions
from .traces import Traces

log = logging.getLogger(__name__)

wall_clock = RUNTIME.wall
"""The wall clock, for what is recorded: milliseconds since 1970. Waits and deadlines use a monotonic clock."""


class Ended(StrEnum):
    """Why a pump stopped receiving the messages of a queue."""

    QUIET = "quiet"
    LEASE = "lease"
    STOPPED = "stopped"
    LIMIT = "limit"
    PRIMARY_UNREACHABLE = "primary unreachable"


@dataclass(slots=True)
class PumpCounters(Counters):
    """What a pump has done so far, and what it has in flight."""

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
        self.follows_a_kill = False
        """Whether a slot of the queue was killed. The killed slot may already have forwarded redelivered messages."""
        self.transfers: dict[Arrival, MessageTransfer | None] = {}
        """The messages in flight, oldest first. None: the message cannot be forwarded and only waits to be settled."""
        self.order: OrderedSessions | None = None
        """Told what becomes of the messages, if the order of sessions is kept."""
        self.by_number: dict[int, MessageTransfer] = {}
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

        A message is redelivered while it is in flight if the network held up its first delivery for longer than the
        lock. Then only the last delivery has a lock.
        """
        self.transfers[transfer.arrival] = transfer
        number = transfer.restored.stamps.sequence_number
        if number:  # 0: the queue has given it none
            older = self.by_number.get(number)
            if older is not None:
                older.redelivered = True
            self.by_number[number] = transfer

    def remember_reason(self, arrival: Arrival, reason: str) -> None:
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
            if self.by_number.get(number) is transfer:
                del self.by_number[number]
            if transfer.trace is not None:
                self._traces.settle(transfer.trace)
            if self.order is not None:
                self.order.finished(transfer, result)
            if self.follows_a_kill and result is Result.FORWARDED and transfer.restored.stamps.delivery_count:
                duplicate = True
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
            self.order is not None,
        )


class Completions:
    """The completions of one queue."""

    def __init__(self, queue: str, unsettled: Unsettled, locks: LockKeeper, now: Callable[[], float]) -> None:
        self._queue = queue
        self._unsettled = unsettled
        self._locks = locks
        self._now = now
        self._orphans: dict[Arrival, float] = {}
        """Messages that their link did not complete, and when to complete each over the management node."""

    def begin(self, arrival: Arrival) -> None:
        """Completes a message that has just been forwarded."""
        if arrival.link.state is LinkState.OPEN:
            arrival.link.complete(arrival)
        else:
            self._orphans[arrival] = self._now()

    def refused(self, settled: Settled, error: SyphonError) -> None:
        """Schedules another attempt at a completion that was refused or has no answer, or finishes the message."""
        if settled.unknown:
            self._orphans[settled.arrival] = self._now()
        elif isinstance(error, Waits):
            self._orphans[settled.arrival] = self._now() + error.retry_after
        else:
            self._finish_uncompleted(settled.arrival, str(error))

    def finish_expired(self, now: float) -> None:
        """Finishes the messages whose lock has expired: they can no longer be completed."""
        for arrival in [orphan for orphan in self._orphans if now - orphan.locked_at > self._locks.seconds]:
            self._answered(arrival, LockLost())

    def due(self, now: float) -> list[Arrival]:
        """The messages to complete over the management node now."""
        return [orphan for orphan, at in self._orphans.items() if now >= at]

    def ask(self, connection: Connection, due: list[Arrival]) -> None:
        """Asks the management node to complete these messages."""
        self._locks.complete(connection, due, self._answered)

    def _answered(self, arrival: Arrival, error: SyphonError | None) -> None:
        if arrival not in self._orphans:
            return
        if isinstance(error, Waits):
            self._orphans[arrival] = self._now() + error.retry_after
            return
        del self._orphans[arrival]
        if error is None:
            self._unsettled.finish(arrival, Result.FORWARDED)
        else:
            self._finish_uncompleted(arrival, f"Its completion was not confirmed, and then its lock was lost. {error}")

    def _finish_uncompleted(self, arrival: Arrival, why: str) -> None:
        log.warning("a message of %s was forwarded but not completed, and may arrive twice: %s", self._queue, why)
        self._unsettled.finish(arrival, Result.FORWARDED, why, possible_duplicate=True)
