"""The account of a pump: each message that came in goes out once, with an outcome.

At every moment: received = forwarded + dead-lettered + left + in hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from syphon.backlog import stamps_of
from syphon.bus import Arrival
from syphon.model import Counters, Outcome, Result

from .batches import Transfer
from .clock import wall_clock
from .traces import Traces


class Ended(StrEnum):
    """Why a pump stopped taking messages."""

    QUIET = "quiet"
    LEASE = "lease"
    STOPPED = "stopped"
    LIMIT = "limit"


@dataclass(slots=True)
class PumpCounters(Counters):
    """What a pump has done so far, and what it has in hand."""

    in_hand: int = 0
    bytes_in_hand: int = 0
    ended: Ended | None = None
    busy: bool = False
    """Its lease was over while messages still came: there is more to do."""


class InHand:
    """What is in hand, and what became of the rest."""

    def __init__(self, queue: str, record: Callable[[Outcome], None], now: Callable[[], float], traces: Traces) -> None:
        self.tally = PumpCounters()
        self.in_hand: dict[Arrival, Transfer | None] = {}
        """Oldest first. None: it has no way to go, and is only being settled."""
        self._queue = queue
        self._record = record
        self._now = now
        self._traces = traces
        self._reasons: dict[Arrival, str] = {}

    def receive(self, arrival: Arrival) -> None:
        self.in_hand[arrival] = None
        self.tally.received += 1
        self.tally.bytes_in_hand += len(arrival.payload)
        self.tally.in_hand = len(self.in_hand)

    def note(self, arrival: Arrival, reason: str) -> None:
        """Why it is being settled as it is, for the time when it has been."""
        self._reasons[arrival] = reason

    def finish(
        self, arrival: Arrival, result: Result, reason: str | None = None, possible_duplicate: bool = False
    ) -> None:
        transfer = self.in_hand.pop(arrival)
        noted = self._reasons.pop(arrival, "")
        size = len(arrival.payload) if transfer is None else transfer.size
        duplicate = possible_duplicate or (transfer is not None and transfer.possible_duplicate)
        if transfer is not None and transfer.trace is not None:
            self._traces.settle(transfer.trace)
        tally = self.tally
        tally.in_hand = len(self.in_hand)
        tally.bytes_in_hand -= size
        tally.possible_duplicates += duplicate
        if result is Result.FORWARDED:
            tally.forwarded += 1
            tally.bytes_forwarded += size
        elif result is Result.DEAD_LETTERED:
            tally.dead_lettered += 1
        else:
            tally.left += 1
        self._record(self._outcome(arrival, transfer, size, result, noted if reason is None else reason, duplicate))

    def _outcome(
        self, arrival: Arrival, transfer: Transfer | None, size: int, result: Result, reason: str, duplicate: bool
    ) -> Outcome:
        wall = wall_clock()
        received_at = wall - round((self._now() - arrival.received_at) * 1000)
        if transfer is None:
            facts = stamps_of(arrival.payload)
            message_id, destination, session_id, forwarded_at = "", "", None, None
        else:
            _, path, found_id, session_id, _, _, facts = transfer.restored
            message_id, destination = "" if found_id is None else str(found_id), path.name
            forwarded_at = transfer.forwarded_at
        # By position, for every message comes here: names would cost as much as all else in it.
        return Outcome(
            self._queue,
            facts.sequence_number,
            message_id,
            destination,
            session_id,
            facts.enqueued_at,
            received_at,
            forwarded_at,
            wall,
            size,
            facts.delivery_count,
            result,
            reason,
            duplicate,
        )
