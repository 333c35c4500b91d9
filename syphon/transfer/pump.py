"""The pump: it moves the messages of one backlog queue to their destinations, and settles each when it has arrived.

One thread, no waiting but for traffic. Receiving, sending and settling overlap, so that a long round trip costs little.
What is in hand is bounded by count and by bytes. The order of the last steps is the promise: sent, accepted, completed.
"""

from __future__ import annotations

import fnmatch
import logging
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from syphon.backlog import Facts, Restored, Ttl, Unrestorable, facts_of, never_a_destination, restore

from ..bus.connection import Connection
from ..bus.links import Arrival, LinkState, RawReceiver, Settled
from ..errors import (
    DestinationDisabled,
    DestinationMissing,
    Interrupted,
    MessageTooLarge,
    NotAllowedByEntity,
    SyphonError,
)
from .destination import Destination, Progress, Transfer
from .locks import LockKeeper
from .outcomes import Outcome, Result
from .reach import Reach

log = logging.getLogger(__name__)

PERMANENT: frozenset[type[SyphonError]] = frozenset(
    (DestinationMissing, DestinationDisabled, MessageTooLarge, NotAllowedByEntity)
)
"""What S4 sends to the dead letters unless the operator says otherwise."""
TICK = 0.5
"""Seconds between looks at heartbeats, tokens and locks."""
TURN = 0.2
"""Seconds the pump waits for traffic at the most, before it looks around."""
OPENING_TURN = 0.02
"""The same while a connection is still being opened: nothing on a socket will tell that it is there."""
LOCK_MARGIN = 0.1
"""The share of a lock that must be left for a message to be sent: a completion must still find it locked."""


@dataclass(frozen=True, slots=True)
class PumpOptions:
    """How a pump works."""

    window: int = 2000
    window_bytes: int = 32 * 1024 * 1024
    max_links: int = 200
    quiet: float = 3.0
    """Seconds without a message after which the queue counts as quiet."""
    lease: float | None = 60.0
    """Seconds after which the pump stops taking messages, even if there are more."""
    grace: float = 20.0
    """Seconds to finish what is in hand once it stops."""
    lock: float = 60.0
    ttl: Ttl = Ttl.RESTORE
    allow: tuple[str, ...] = ("*",)
    permanent: frozenset[type[SyphonError]] = PERMANENT
    limit: int | None = None


@dataclass(slots=True)
class Tally:
    """What a pump has done so far."""

    received: int = 0
    forwarded: int = 0
    dead_lettered: int = 0
    left: int = 0
    possible_duplicates: int = 0
    in_hand: int = 0
    bytes_in_hand: int = 0
    destinations: dict[str, Destination] = field(default_factory=dict)


class Pump:
    """Carries one backlog queue home."""

    def __init__(
        self,
        queue: str,
        secondary: Reach,
        primary: Reach,
        record: Callable[[Outcome], None],
        options: PumpOptions | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = queue
        self.tally = Tally()
        self.stopping = False
        self._options = options or PumpOptions()
        self._secondary = secondary
        self._primary = primary
        self._record = record
        self._now = now
        self._receiver: RawReceiver | None = None
        self._in_hand: dict[Arrival, Transfer | None] = {}
        self._busy: dict[str, Destination] = {}
        self._locks = LockKeeper(queue, self._options.lock)
        self._reasons: dict[Arrival, str] = {}
        self._largest = 1024
        self._started = self._last_arrival = now()
        self._stopped_at: float | None = None
        self._ticked_at = 0.0

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> Tally:
        """Moves messages until the queue is quiet, the lease is over, or we are told to stop."""
        try:
            while not self._done():
                self._wait_for_traffic()
                self._take_settlements()
                self._route_arrivals()
                self._forward()
                self._grant()
        finally:
            self._close()
        return self.tally

    def stop(self) -> None:
        """Takes no more messages; finishes or gives back what is in hand."""
        self.stopping = True

    def _done(self) -> bool:
        now = self._now()
        options = self._options
        lease_over = options.lease is not None and now - self._started > options.lease
        if self._stopped_at is None and (self.stopping or lease_over):
            self._stop_receiving(now)
        if self._stopped_at is not None:
            return not self._in_hand or now - self._stopped_at > options.grace
        if options.limit is not None and self.tally.received >= options.limit:
            return not self._in_hand
        quiet_since = max(self._last_arrival, self._started)
        return not self._in_hand and self._receiver is not None and now - quiet_since > options.quiet

    def _stop_receiving(self, now: float) -> None:
        self._stopped_at = now
        if self._receiver is not None and self._receiver.state is LinkState.OPEN:
            self._receiver.grant(0)
        for destination in self.tally.destinations.values():
            for transfer in destination.give_up():
                self._give_back(transfer.arrival)

    # --- traffic -------------------------------------------------------------------------------------------------

    def _wait_for_traffic(self) -> None:
        connections = self._connections()
        for connection in connections:
            connection.wire.flush()
        wires = [connection.wire for connection in connections if connection.wire.failure is None]
        turn = TURN if len(wires) == 2 else OPENING_TURN
        if wires and not any(wire.has_unread() for wire in wires):
            select.select(wires, [wire for wire in wires if wire.wants_to_write()], [], turn)
        elif not wires:
            time.sleep(turn)
        for connection in connections:
            if connection.wire.failure is None:
                connection.read()
        now = self._now()
        if now - self._ticked_at > TICK:
            self._ticked_at = now
            for connection in connections:
                connection.tick()
            secondary = self._secondary.connection()
            if secondary is not None:
                self._locks.keep(secondary, self._in_hand, now)

    def _connections(self) -> list[Connection]:
        found = (self._secondary.connection(), self._primary.connection())
        return [connection for connection in found if connection is not None]

    def _grant(self) -> None:
        """Room for more: by count, and by bytes as large as messages have been lately."""
        receiver = self._open_receiver()
        if receiver is None or receiver.state is not LinkState.OPEN or self._stopped_at is not None:
            return
        options = self._options
        room = min(
            options.window - len(self._in_hand),
            max(1, (options.window_bytes - self.tally.bytes_in_hand) // self._largest),
        )
        if options.limit is not None:
            room = min(room, options.limit - self.tally.received)
        if room > 0 and receiver.credit < room - room // 8:
            receiver.grant(room)

    def _open_receiver(self) -> RawReceiver | None:
        connection = self._secondary.connection()
        if self._receiver is not None and self._receiver.state is LinkState.LOST:
            self._lose_receiver(self._receiver)
        if self._receiver is None and connection is not None and connection.tokens.allow(self.queue):
            self._receiver = RawReceiver(connection.wire, self.queue)
            self._last_arrival = self._now()
        return self._receiver

    def _lose_receiver(self, receiver: RawReceiver) -> None:
        """Its locks cannot be settled on another link: what was not sent is left, and returns when its lock ends."""
        self._take_settlements()
        self._receiver = None
        for destination in self._busy.values():
            for transfer in destination.give_up():
                self._leave(transfer, receiver.error or Interrupted())
        if receiver.error is not None and not isinstance(receiver.error, Interrupted):
            raise receiver.error

    # --- the way of a message ------------------------------------------------------------------------------------

    def _route_arrivals(self) -> None:
        if self._receiver is None:
            return
        arrivals = self._receiver.arrivals
        wall = _wall()
        while arrivals:
            arrival = arrivals.popleft()
            self._last_arrival = arrival.received_at
            self._largest = max(len(arrival.payload), self._largest * 99 // 100)
            self._count_in(arrival)
            if self._stopped_at is not None:
                self._give_back(arrival)
            else:
                self._route(arrival, wall)

    def _route(self, arrival: Arrival, wall: int) -> None:
        """Restored → its destination, or → dead letters with a reason."""
        restored = restore(arrival.payload, enqueued_at=None, now=wall, ttl=self._options.ttl)
        if isinstance(restored, Unrestorable):
            self._dead_letter(arrival, restored.reason.value, restored.description)
            return
        destination = self._destination(restored.destination)
        if isinstance(destination, str):
            description = f"x-ms-path names '{restored.destination}' as the destination: {destination}."
            self._dead_letter(arrival, "DestinationNotAllowed", description)
            return
        transfer = Transfer(arrival, restored)
        self._in_hand[arrival] = transfer
        destination.offer(transfer)
        self._busy[destination.path] = destination

    def _destination(self, path: str) -> Destination | str:
        """Where a message is to go, or why it must not go there (D13)."""
        key = path.strip("/").lower()
        destination = self.tally.destinations.get(key)
        if destination is None:
            forbidden = never_a_destination(path)
            if forbidden is not None:
                return forbidden
            if not any(fnmatch.fnmatchcase(key, pattern.lower()) for pattern in self._options.allow):
                return "the configuration does not allow it"
            destination = self.tally.destinations[key] = Destination(path.strip("/"), self._options.permanent)
        return destination

    def _forward(self) -> None:
        now = self._now()
        connection = self._primary.connection()
        room_for_links = self._room_for_links()
        for key, destination in list(self._busy.items()):
            if not destination.has_link():
                if room_for_links <= 0:
                    continue
                room_for_links -= 1
            self._note(destination, destination.work(connection, now))
            if not destination.has_work():
                del self._busy[key]
        if connection is None and self._primary.error is not None:
            self._leave_unreachable(self._primary.error)
        self._leave_old(now)

    def _room_for_links(self) -> int:
        """A thousand destinations do not mean a thousand links: who needs one gets that of one that does not."""
        linked = [destination for destination in self.tally.destinations.values() if destination.has_link()]
        room = self._options.max_links - len(linked)
        wanted = sum(not destination.has_link() for destination in self._busy.values())
        if wanted > room:
            idle = sorted((destination for destination in linked if destination.is_idle()), key=lambda d: d.used_at)
            for destination in idle[: wanted - room]:
                destination.close()
                room += 1
        return room

    def _note(self, destination: Destination, progress: Progress) -> None:
        wall = _wall()
        for transfer in progress.accepted:
            transfer.forwarded_at = wall
            if transfer.arrival.link.state is LinkState.OPEN:
                transfer.arrival.link.complete(transfer.arrival)
            else:
                self._finish(transfer.arrival, Result.FORWARDED, "Its lock was lost with its link.", True)
        for transfer, error in progress.refused:
            reason = getattr(error, "reason", "Refused")
            self._dead_letter(transfer.arrival, reason, f"Destination '{destination.path}': {error}")
        for transfer, error in progress.left:
            self._leave(transfer, error)

    def _leave_unreachable(self, error: SyphonError) -> None:
        for destination in self._busy.values():
            for transfer in destination.give_up():
                self._leave(transfer, error)

    def _leave_old(self, now: float) -> None:
        """A message whose lock is about to run out is not sent any more: it could not be completed afterwards."""
        limit = self._options.lock * (1 - LOCK_MARGIN)
        oldest = next(iter(self._in_hand), None)
        if oldest is None or now - oldest.locked_at < limit:
            return
        for destination in self._busy.values():
            for transfer in destination.give_up():
                if now - transfer.arrival.locked_at < limit:
                    destination.offer(transfer)
                else:
                    self._leave(transfer, Interrupted("The lock was about to run out before it could be sent."))

    # --- ends ----------------------------------------------------------------------------------------------------

    def _count_in(self, arrival: Arrival) -> None:
        self._in_hand[arrival] = None
        self.tally.received += 1
        self.tally.bytes_in_hand += len(arrival.payload)
        self.tally.in_hand = len(self._in_hand)

    def _dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        if arrival.link.state is not LinkState.OPEN:
            self._finish(arrival, Result.LEFT, f"{reason}: {description}", False)
            return
        self._reasons[arrival] = f"{reason}: {description}"
        arrival.link.dead_letter(arrival, reason, description[:4096])

    def _give_back(self, arrival: Arrival) -> None:
        if arrival.link.state is not LinkState.OPEN:
            self._finish(arrival, Result.LEFT, "Its link was lost.", False)
            return
        self._reasons[arrival] = "The pump was told to stop."
        arrival.link.release(arrival)

    def _leave(self, transfer: Transfer, error: SyphonError) -> None:
        """Stays in the backlog, locked: it returns by itself when the lock runs out."""
        self._finish(transfer.arrival, Result.LEFT, str(error), transfer.possible_duplicate)

    def _take_settlements(self) -> None:
        if self._receiver is None:
            return
        settled = self._receiver.settled
        while settled:
            self._settled(settled.popleft())

    def _settled(self, settled: Settled) -> None:
        arrival = settled.arrival
        if arrival not in self._in_hand:
            return
        transfer = self._in_hand[arrival]
        reason = self._reasons.pop(arrival, "")
        forwarded = transfer is not None and transfer.forwarded_at is not None
        if settled.error is not None:
            # Forwarded, but not known to be completed: it will come again, under the same message id (S6, D10).
            if forwarded:
                log.warning("a message of %s was forwarded and could not be completed: %s", self.queue, settled.error)
            self._finish(arrival, Result.FORWARDED if forwarded else Result.LEFT, str(settled.error), forwarded)
        elif settled.outcome == "accepted":
            self._finish(arrival, Result.FORWARDED, reason, transfer.possible_duplicate if transfer else False)
        elif settled.outcome == "rejected":
            self._finish(arrival, Result.DEAD_LETTERED, reason, transfer.possible_duplicate if transfer else False)
        else:
            self._finish(arrival, Result.LEFT, reason, transfer.possible_duplicate if transfer else False)

    def _finish(self, arrival: Arrival, result: Result, reason: str, possible_duplicate: bool) -> None:
        transfer = self._in_hand.pop(arrival)
        tally = self.tally
        tally.in_hand = len(self._in_hand)
        tally.bytes_in_hand -= len(arrival.payload)
        tally.possible_duplicates += possible_duplicate
        if result is Result.FORWARDED:
            tally.forwarded += 1
        elif result is Result.DEAD_LETTERED:
            tally.dead_lettered += 1
        else:
            tally.left += 1
        self._record(self._outcome(arrival, transfer, result, reason, possible_duplicate))

    def _outcome(
        self, arrival: Arrival, transfer: Transfer | None, result: Result, reason: str, possible_duplicate: bool
    ) -> Outcome:
        restored: Restored | None = transfer.restored if transfer is not None else None
        facts: Facts = restored.facts if restored is not None else facts_of(arrival.payload)
        wall = _wall()
        return Outcome(
            queue=self.queue,
            sequence_number=facts.sequence_number,
            message_id=str(restored.message_id) if restored is not None else "",
            destination=restored.destination if restored is not None else "",
            session_id=restored.session_id if restored is not None else None,
            enqueued_at=facts.enqueued_at,
            received_at=wall - round((self._now() - arrival.received_at) * 1000),
            forwarded_at=transfer.forwarded_at if transfer is not None else None,
            settled_at=wall,
            size=len(arrival.payload),
            delivery_count=facts.delivery_count,
            result=result,
            reason=reason,
            possible_duplicate=possible_duplicate,
        )

    def _close(self) -> None:
        """Leaves with care: nothing is settled that did not arrive, and the account balances."""
        self._take_settlements()
        for arrival, transfer in list(self._in_hand.items()):
            forwarded = transfer is not None and transfer.forwarded_at is not None
            result = Result.FORWARDED if forwarded else Result.LEFT
            self._finish(arrival, result, "The pump ended before it was settled.", forwarded)
        for destination in self.tally.destinations.values():
            destination.close()
        if self._receiver is not None:
            self._receiver.close()
        for connection in self._connections_now():
            connection.wire.flush()

    def _connections_now(self) -> list[Connection]:
        try:
            return self._connections()
        except SyphonError:
            return []


def _wall() -> int:
    return time.time_ns() // 1_000_000
