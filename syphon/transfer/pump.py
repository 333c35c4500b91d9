"""The pump: it moves the messages of one backlog queue to their destinations, and settles each when it has arrived.

One thread, no waiting but for traffic. Receiving, sending and settling overlap, so that a long round trip costs little.
What is in hand is bounded by count and by bytes. The order of the last steps is the promise: sent, accepted, completed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from syphon.backlog import Unrestorable, destination_of, restore, stamps_of
from syphon.bus import Arrival, Connection, LinkState, Namespace, Settled, wait_for_traffic
from syphon.model import EntityPath, Faulted, Interrupted, Outcome, Result, SyphonError, Waits

from .batches import Transfer
from .clock import wall_clock
from .completions import Completions
from .destination import Destination, Progress
from .destinations import DestinationBackoff, Destinations
from .in_hand import Ended, InHand, PumpCounters
from .intake import Intake
from .locks import LockKeeper
from .options import PERMANENT, PumpOptions
from .traces import Traces

__all__ = ["PERMANENT", "Ended", "Pump", "PumpOptions", "PumpCounters", "DestinationBackoff"]

TICK = 0.5
"""Seconds between looks at heartbeats, tokens and locks."""
TURN = 0.2
"""Seconds the pump waits for traffic at the most, before it looks around."""
OPENING_TURN = 0.02
"""The same while a connection is still being opened: nothing on a socket will tell that it is there."""
LOCK_MARGIN = 0.1
"""The share of a lock that must be left for a message to be sent: a completion must still find it locked."""
SETTLED_AS = {"accepted": Result.FORWARDED, "rejected": Result.DEAD_LETTERED, "released": Result.LEFT}


class Pump:
    """Carries one backlog queue home."""

    def __init__(
        self,
        queue: str,
        secondary: Namespace,
        primary: Namespace,
        record: Callable[[Outcome], None],
        options: PumpOptions | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queue = queue
        self.rate: float | None = None
        """Messages a second; None is as many as can be, 0 is a pause. Another thread may set it at any time."""
        self.stopping = False
        self._options = options or PumpOptions()
        self._secondary = secondary
        self._primary = primary
        self._now = now
        self.traces = Traces()
        self._account = InHand(queue, record, now, self.traces)
        self.tally = self._account.tally
        self.destinations = Destinations(self._options, self.traces)
        self._intake = Intake(queue, secondary, self._options, self.tally, now)
        self._locks = LockKeeper(queue, self._options.lock)
        self._completions = Completions(queue, self._account, self._locks, now)
        self._started = now()
        self._ended_at: float | None = None
        self._stopped_at: float | None = None
        self._ticked_at = 0.0
        self._fault: Faulted | None = None

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> PumpCounters:
        """Moves messages until the queue is quiet, the lease or limit is reached, or we are told to stop."""
        for _ in self.turns():
            pass
        return self.tally

    def turns(self) -> Iterator[None]:
        """The same, a turn at a time: for who has something to do in between."""
        try:
            while not self._done():
                self._wait_for_traffic()
                self._take_settlements()
                self._route_arrivals()
                self._forward()
                self._grant()
                yield
        finally:
            self._close()
        if self._fault is not None:
            raise self._fault

    def stop(self) -> None:
        """Takes no more messages; finishes or gives back what is in hand."""
        self.stopping = True

    def limit_rate(self, rate: float | None) -> None:
        """Takes at most so many messages a second; None is no limit, 0 is a pause. Another thread may call it."""
        self.rate = rate

    def leave_alone(self, known: DestinationBackoff) -> None:
        """An earlier pump has found that a destination takes nothing now. To be said before this one begins."""
        self.destinations.leave_alone(known, self._now())

    def pause(self, paths: frozenset[EntityPath]) -> None:
        """The operator wants these destinations left alone, and no others. For the pump's own thread."""
        self.destinations.pause(paths)

    def waiting(self) -> list[DestinationBackoff]:
        """The destinations that are left alone now, and why. Another thread may ask."""
        return self.destinations.waiting(self._now())

    def closed(self) -> list[DestinationBackoff]:
        """The destinations whose messages go to the dead letters now, and why. Another thread may ask."""
        return self.destinations.closed(self._now())

    def _done(self) -> bool:
        now = self._now()
        if self.tally.ended is None:
            self.tally.ended = self._reason_to_end(now)
            self._ended_at = now if self.tally.ended is not None else None
        if self._stopped_at is None and (self.stopping or self._lease_is_over(now)):
            self._stopped_at = now
            self._give_back_unsent()
        if self._ended_at is None:
            return False
        self._intake.drain()
        if self._stopped_at is not None and now - self._stopped_at > self._options.grace:
            return True
        drained = self._intake.is_drained or now - self._ended_at > self._options.grace
        return drained and not self._account.in_hand

    def _reason_to_end(self, now: float) -> Ended | None:
        options = self._options
        if self.stopping:
            return Ended.STOPPED
        if self._lease_is_over(now):
            self.tally.busy = bool(self._account.in_hand) or now - self._intake.last_arrival < options.quiet
            return Ended.LEASE
        if options.limit is not None and self.tally.received >= options.limit:
            return Ended.LIMIT
        return Ended.QUIET if not self._account.in_hand and self._intake.is_quiet(now) else None

    def _lease_is_over(self, now: float) -> bool:
        return self._options.lease is not None and now - self._started > self._options.lease

    # --- traffic -------------------------------------------------------------------------------------------------

    def _wait_for_traffic(self) -> None:
        connections = self._connections()
        turn = TURN if len(connections) == 2 else OPENING_TURN
        if connections:
            wait_for_traffic([connection.wire for connection in connections], turn)
        else:
            time.sleep(turn)
        for connection in connections:
            if connection.wire.failure is None:
                connection.read()
        now = self._now()
        if now - self._ticked_at >= TICK:
            self._ticked_at = now
            for connection in connections:
                connection.tick()
            self._see_to_locks(now)

    def _connections(self) -> list[Connection]:
        found = (self._secondary.connection(), self._home())
        return [connection for connection in found if connection is not None]

    def _home(self) -> Connection | None:
        """The primary's connection. Without a primary there is nothing left to do but to give back what is in hand."""
        try:
            return self._primary.connection()
        except Faulted as fault:
            self._fault = fault
            self.stop()
            return None

    def _see_to_locks(self, now: float) -> None:
        self._leave_old(now)
        self._completions.give_up_late(now)
        connection = self._secondary.connection()
        if connection is None:
            return
        self._locks.keep(connection, self._account.in_hand, now)
        due = self._completions.due(now)
        if due and self._intake.is_allowed(connection):
            self._completions.ask(connection, due)

    def _leave_old(self, now: float) -> None:
        """A message whose lock is about to run out is not sent any more: it could not be completed afterwards."""
        limit = self._locks.seconds * (1 - LOCK_MARGIN) - TICK  # the next look may be too late
        for transfer in self.destinations.unsent(locked_before=now - limit):
            self._leave(transfer, Interrupted("The lock was about to run out before it could be sent."))

    def _grant(self) -> None:
        if self._intake.is_lost:
            self._lose_link()
        if self._ended_at is None and not self.stopping:
            self._intake.grant(self.rate)

    def _lose_link(self) -> None:
        """What was not sent is left, and returns when its lock ends; what has arrived is completed in another way."""
        self._take_settlements()
        link = self._intake.let_go()
        error = link.error if link is not None else None
        for transfer in self.destinations.unsent():
            self._leave(transfer, error or Interrupted())
        if error is not None and not isinstance(error, Interrupted | Waits):
            raise error

    # --- the way of a message ------------------------------------------------------------------------------------

    def _route_arrivals(self) -> None:
        wall = wall_clock()
        while (arrival := self._intake.next_arrival()) is not None:
            self._account.receive(arrival)
            if self._ended_at is not None:
                self._give_back(arrival)
            else:
                self._route(arrival, wall)

    def _route(self, arrival: Arrival, wall: int) -> None:
        """Restored → its destination, or → dead letters with a reason."""
        restored = restore(arrival.payload, enqueued_at=None, now=wall, ttl=self._options.ttl)
        if isinstance(restored, Unrestorable):
            if self._is_outside(arrival):
                self._leave_outside(arrival)
            else:
                self._dead_letter(arrival, restored.reason.value, restored.description)
            return
        self._locks.learn(restored.facts.locked_until, wall)
        transfer = self._account.in_hand[arrival] = Transfer(arrival, restored, len(arrival.payload))
        arrival.payload = b""  # it has been restored: once in memory is enough
        if not self._options.messages.matches(restored.destination, restored.facts.enqueued_at):
            self._leave_outside(arrival)
            return
        destination = self.destinations.find(restored.destination)
        if isinstance(destination, str):
            description = f"x-ms-path names {restored.destination.name!r} as the destination: {destination}."
            self._dead_letter(arrival, "DestinationNotAllowed", description)
            return
        self.destinations.offer(destination, transfer)

    def _is_outside(self, arrival: Arrival) -> bool:
        """Whether the filter leaves out a message that cannot be restored. Its destination may be readable still."""
        enqueued_at = stamps_of(arrival.payload).enqueued_at
        return not self._options.messages.matches(destination_of(arrival.payload), enqueued_at)

    def _forward(self) -> None:
        now = self._now()
        connection = self._home()
        for destination, progress in self.destinations.work(connection, now):
            self._note(destination, progress)
        if self._fault is not None:
            self._give_back_unsent()
        elif connection is None and self._primary.error is not None:
            for transfer in self.destinations.unsent():
                self._leave(transfer, self._primary.error)

    def _note(self, destination: Destination, progress: Progress) -> None:
        wall = wall_clock()
        for transfer in progress.accepted:
            transfer.forwarded_at = wall
            self._completions.begin(transfer.arrival)
        for transfer, error in progress.refused:
            reason = getattr(error, "reason", "Refused")
            self._dead_letter(transfer.arrival, reason, f"Destination '{destination.path}': {error}")
        for transfer, error in progress.left:
            destination.left += 1
            self._leave(transfer, error)

    # --- ends ----------------------------------------------------------------------------------------------------

    def _dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        if arrival.link.state is not LinkState.OPEN:
            self._account.finish(arrival, Result.LEFT, f"{reason}: {description}")
            return
        self._account.note(arrival, f"{reason}: {description}")
        arrival.link.dead_letter(arrival, reason, description[:4096])

    def _give_back(self, arrival: Arrival) -> None:
        if arrival.link.state is not LinkState.OPEN:
            self._account.finish(arrival, Result.LEFT, "Its link was lost.")
            return
        self._account.note(arrival, "The pump had stopped taking messages.")
        arrival.link.release(arrival)

    def _give_back_unsent(self) -> None:
        """First the credit goes back: the next to get these messages must not be ourselves."""
        self._intake.drain()
        for transfer in self.destinations.unsent():
            self._give_back(transfer.arrival)

    def _leave(self, transfer: Transfer, error: SyphonError) -> None:
        """Stays in the backlog, locked: it returns by itself when the lock runs out."""
        self._account.finish(transfer.arrival, Result.LEFT, str(error))

    def _leave_outside(self, arrival: Arrival) -> None:
        self.tally.outside += 1
        self._account.finish(arrival, Result.LEFT, "outside the filter")

    def _take_settlements(self) -> None:
        while (settled := self._intake.next_settled()) is not None:
            self._settled(settled)

    def _settled(self, settled: Settled) -> None:
        arrival = settled.arrival
        if arrival not in self._account.in_hand:
            return
        transfer = self._account.in_hand[arrival]
        forwarded = transfer is not None and transfer.forwarded_at is not None
        if settled.error is None:
            self._account.finish(arrival, SETTLED_AS[settled.outcome])
        elif forwarded:
            self._completions.refused(settled, settled.error)
        else:
            self._account.finish(arrival, Result.LEFT, str(settled.error))

    def _close(self) -> None:
        """Leaves with care: nothing is settled that did not arrive, and the account balances."""
        self._take_settlements()
        self.destinations.close()
        for arrival, transfer in list(self._account.in_hand.items()):
            forwarded = transfer is not None and transfer.forwarded_at is not None
            result = Result.FORWARDED if forwarded else Result.LEFT
            self._account.finish(arrival, result, "The pump ended before it was settled.", forwarded)
        link = self._intake.let_go()
        if link is not None:
            link.close()
        for namespace in (self._secondary, self._primary):
            try:
                connection = namespace.connection()
            except SyphonError:
                continue
            if connection is not None:
                connection.wire.flush()
