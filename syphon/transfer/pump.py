"""The pump: it moves the messages of one queue to their destinations, and settles each message when it has arrived.

The pump has one thread and waits for nothing but traffic. Receiving, sending and settling overlap, so that a long round
trip costs little. Count and bytes bound the messages in hand. The order of the last steps is the promise: sent,
accepted, completed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from syphon.backlog import Unrestorable, destination_of, not_allowed_text, stamps_of
from syphon.bus import Arrival, Connection, LinkState, Namespace, Settled, wait_for_traffic
from syphon.model import DESTINATION_NOT_ALLOWED, EntityPath, Faulted, Interrupted, Outcome, Result, SyphonError, Waits

from .batches import MessageTransfer
from .completions import Completions
from .destination import Destination, SendResults
from .destinations import DestinationBackoff, Destinations
from .intake import Intake
from .locks import LockKeeper
from .options import PERMANENT, PumpOptions
from .route import Route, from_backlog
from .traces import Traces
from .unsettled import Ended, PumpCounters, Unsettled, wall_clock

__all__ = ["PERMANENT", "Ended", "Pump", "PumpOptions", "PumpCounters", "DestinationBackoff"]

TICK = 0.5
"""Seconds between looks at heartbeats, tokens and locks."""
TURN = 0.2
"""Seconds for which the pump waits for traffic at most."""
OPENING_TURN = 0.02
"""The same while a connection is being opened: no socket announces that it is there."""
LOCK_MARGIN = 0.1
"""The share of a lock that must be left for a message to be sent: the completion must still find it locked."""
SETTLED_AS = {"accepted": Result.FORWARDED, "rejected": Result.DEAD_LETTERED, "released": Result.LEFT}


class Pump:
    """Moves the messages of one queue.

    By default the queue is a backlog queue, `source` its own path and `route` the route of backlog messages. A replay
    of dead letters is a pump with another source and another route (`replay.Replay`).
    """

    def __init__(
        self,
        queue: str,
        secondary: Namespace,
        primary: Namespace,
        record: Callable[[Outcome], None],
        options: PumpOptions | None = None,
        now: Callable[[], float] = time.monotonic,
        *,
        source: str | None = None,
        route: Route | None = None,
    ) -> None:
        self.queue = queue
        self.rate: float | None = None
        """Messages a second; None is no limit, 0 is a pause. Another thread may set it at any time."""
        self.stopping = False
        self._options = options or PumpOptions()
        self._secondary = secondary
        self._primary = primary
        self._now = now
        self.traces = Traces()
        self._unsettled = Unsettled(queue, record, now, self.traces)
        self.counters = self._unsettled.counters
        route = route or from_backlog(self._options.ttl, self._options.allow)
        self._restore, self._ttl = route.restore, route.ttl
        self.destinations = Destinations(self._options, self.traces, route.objection)
        path = source or queue
        self._intake = Intake(path, secondary, self._options, self.counters, now)
        self._locks = LockKeeper(path, self._options.lock)
        self._completions = Completions(path, self._unsettled, self._locks, now)
        self._started = now()
        self._ended_at: float | None = None
        self._stopped_at: float | None = None
        self._ticked_at = 0.0
        self._fault: Faulted | None = None

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> PumpCounters:
        """Moves messages until the queue is quiet, the lease or limit is reached, or the pump is told to stop."""
        for _ in self.turns():
            pass
        return self.counters

    def turns(self) -> Iterator[None]:
        """Does the same one turn at a time, for a caller that has work of its own between the turns."""
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

    def limit_rate(self, rate: float | None) -> None:
        """Takes at most so many messages a second; None is no limit, 0 is a pause. Another thread may call it."""
        self.rate = rate

    def stop(self) -> None:
        """Receives no more messages; finishes the messages that are being sent and gives the others back."""
        self.stopping = True

    def back_off(self, known: DestinationBackoff) -> None:
        """Makes a destination back off because an earlier pump found that it takes nothing. Call it before `turns`."""
        self.destinations.back_off(known, self._now())

    def pause(self, paths: frozenset[EntityPath]) -> None:
        """Pauses exactly these destinations, as the operator asked. Only for the pump's own thread."""
        self.destinations.pause(paths)

    def backing_off(self) -> list[DestinationBackoff]:
        """The destinations that back off now, and why. Another thread may ask."""
        return self.destinations.backing_off(self._now())

    def rejecting(self) -> list[DestinationBackoff]:
        """The destinations whose messages are dead-lettered now, and why. Another thread may ask."""
        return self.destinations.rejecting(self._now())

    def _done(self) -> bool:
        now = self._now()
        if self.counters.ended is None:
            self.counters.ended = self._reason_to_end(now)
            self._ended_at = now if self.counters.ended is not None else None
        if self._stopped_at is None and (self.stopping or self._lease_is_over(now)):
            self._stopped_at = now
            self._give_back_unsent()
        if self._ended_at is None:
            return False
        self._intake.drain()
        if self._stopped_at is not None and now - self._stopped_at > self._options.grace:
            return True
        drained = self._intake.is_drained or now - self._ended_at > self._options.grace
        return drained and not self._unsettled.transfers

    def _reason_to_end(self, now: float) -> Ended | None:
        options, in_hand = self._options, bool(self._unsettled.transfers)
        if self.stopping:
            return Ended.STOPPED
        if self._lease_is_over(now):
            self.counters.busy = in_hand or now - self._intake.last_arrival < options.quiet
            return Ended.LEASE
        if options.limit is not None and self.counters.received >= options.limit:
            return Ended.LIMIT
        return Ended.QUIET if not in_hand and self._intake.is_quiet(now) else None

    def _lease_is_over(self, now: float) -> bool:
        return self._options.lease is not None and now - self._started > self._options.lease

    # --- traffic -------------------------------------------------------------------------------------------------

    def _wait_for_traffic(self) -> None:
        sides = self._secondary.connection(), self._primary_connection()
        turn = OPENING_TURN if None in sides else TURN
        # A replay into the backlog has one connection for both sides.
        connections = [connection for connection in dict.fromkeys(sides) if connection is not None]
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
            self._check_locks(now)

    def _primary_connection(self) -> Connection | None:
        """The primary's connection. If the primary is faulted, the pump can only give back what it has in hand."""
        try:
            return self._primary.connection()
        except Faulted as fault:
            self._fault = fault
            self.stopping = True
            return None

    def _check_locks(self, now: float) -> None:
        self._leave_old(now)
        self._completions.finish_expired(now)
        connection = self._secondary.connection()
        if connection is None:
            return
        self._locks.keep(connection, self._unsettled.transfers, now)
        due = self._completions.due(now)
        if due and self._intake.is_allowed(connection):
            self._completions.ask(connection, due)

    def _leave_old(self, now: float) -> None:
        """Leaves unsent messages whose lock is about to run out: they could not be completed after sending."""
        limit = self._locks.seconds * (1 - LOCK_MARGIN) - TICK  # the next look may be too late
        for transfer in self.destinations.take_unsent(locked_before=now - limit):
            self._leave(transfer, Interrupted("The lock was about to run out before it could be sent."))

    def _grant(self) -> None:
        if self._intake.is_lost:
            self._lose_link()
        if self._ended_at is None and not self.stopping:
            self._intake.grant(self.rate)

    def _lose_link(self) -> None:
        """Leaves the unsent messages, which return when their locks end. `Completions` completes the others."""
        self._take_settlements()
        link = self._intake.detach()
        error = link.error if link is not None else None
        for transfer in self.destinations.take_unsent():
            self._leave(transfer, error or Interrupted())
        if error is not None and not isinstance(error, Interrupted | Waits):
            raise error

    # --- the way of a message ------------------------------------------------------------------------------------

    def _route_arrivals(self) -> None:
        wall = wall_clock()
        while (arrival := self._intake.next_arrival()) is not None:
            self._unsettled.receive(arrival)
            if self._ended_at is not None:
                self._give_back(arrival)
            else:
                self._route(arrival, wall)

    def _route(self, arrival: Arrival, wall: int) -> None:
        """Restored → its destination, or → dead letters with a reason."""
        restored = self._restore(arrival.payload, enqueued_at=None, now=wall, ttl=self._ttl)
        if isinstance(restored, Unrestorable):
            if self._is_outside(arrival):
                self._leave_outside(arrival)
            else:
                self._dead_letter(arrival, restored.reason.value, restored.description)
            return
        self._locks.learn(restored.stamps.locked_until, wall)
        transfer = self._unsettled.transfers[arrival] = MessageTransfer(arrival, restored, len(arrival.payload))
        arrival.payload = b""  # it has been restored: once in memory is enough
        if not self._options.messages.matches(restored.destination, restored.stamps.enqueued_at):
            self._leave_outside(arrival)
            return
        destination = self.destinations.find(restored.destination)
        if isinstance(destination, str):
            self._dead_letter(arrival, DESTINATION_NOT_ALLOWED, not_allowed_text(restored.destination, destination))
            return
        self.destinations.offer(destination, transfer)

    def _is_outside(self, arrival: Arrival) -> bool:
        """Whether the filter excludes a message that cannot be restored. Its destination may still be readable."""
        enqueued_at = stamps_of(arrival.payload).enqueued_at
        return not self._options.messages.matches(destination_of(arrival.payload), enqueued_at)

    def _forward(self) -> None:
        now = self._now()
        connection = self._primary_connection()
        for destination, results in self.destinations.work(connection, now):
            self._note(destination, results)
        if self._fault is not None:
            self._give_back_unsent()
        elif connection is None and self._primary.error is not None:
            for transfer in self.destinations.take_unsent():
                self._leave(transfer, self._primary.error)

    def _note(self, destination: Destination, results: SendResults) -> None:
        wall = wall_clock()
        for transfer in results.accepted:
            transfer.forwarded_at = wall
            self._completions.begin(transfer.arrival)
        for transfer, error in results.refused:
            reason = getattr(error, "reason", "Refused")
            self._dead_letter(transfer.arrival, reason, f"Destination '{destination.path}': {error}")
        for transfer, error in results.left:
            self._leave(transfer, error)

    # --- settling ------------------------------------------------------------------------------------------------

    def _dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        if arrival.link.state is not LinkState.OPEN:
            self._unsettled.finish(arrival, Result.LEFT, f"{reason}: {description}")
            return
        self._unsettled.note(arrival, f"{reason}: {description}")
        arrival.link.dead_letter(arrival, reason, description[:4096])

    def _give_back(self, arrival: Arrival) -> None:
        """Releases a message: another receiver can have it at once."""
        if arrival.link.state is not LinkState.OPEN:
            self._unsettled.finish(arrival, Result.LEFT, "Its link was lost.")
            return
        self._unsettled.note(arrival, "The pump had stopped taking messages.")
        arrival.link.release(arrival)

    def _give_back_unsent(self) -> None:
        """Releases the unsent messages. The credit goes first, or the service would deliver them to this pump again."""
        self._intake.drain()
        for transfer in self.destinations.take_unsent():
            self._give_back(transfer.arrival)

    def _leave(self, transfer: MessageTransfer, error: SyphonError) -> None:
        """Leaves a message locked in the queue: it returns by itself when the lock runs out."""
        self._unsettled.finish(transfer.arrival, Result.LEFT, str(error))

    def _leave_outside(self, arrival: Arrival) -> None:
        self.counters.outside += 1
        self._unsettled.finish(arrival, Result.LEFT, "outside the filter")

    def _take_settlements(self) -> None:
        while (settled := self._intake.next_settled()) is not None:
            self._settled(settled)

    def _settled(self, settled: Settled) -> None:
        arrival = settled.arrival
        if arrival not in self._unsettled.transfers:
            return
        transfer = self._unsettled.transfers[arrival]
        forwarded = transfer is not None and transfer.forwarded_at is not None
        if settled.error is None:
            self._unsettled.finish(arrival, SETTLED_AS[settled.outcome])
        elif forwarded:
            self._completions.refused(settled, settled.error)
        else:
            self._unsettled.finish(arrival, Result.LEFT, str(settled.error))

    def _close(self) -> None:
        """Closes all links. The pump settles no message that did not arrive, and records an outcome for each."""
        self._take_settlements()
        self.destinations.close()
        for arrival, transfer in list(self._unsettled.transfers.items()):
            forwarded = transfer is not None and transfer.forwarded_at is not None
            result = Result.FORWARDED if forwarded else Result.LEFT
            self._unsettled.finish(arrival, result, "The pump ended before it was settled.", forwarded)
        link = self._intake.detach()
        if link is not None:
            link.close()
        _flush((self._secondary, self._primary))


def _flush(namespaces: Iterable[Namespace]) -> None:
    for namespace in namespaces:
        try:
            connection = namespace.connection()
        except SyphonError:
            continue
        if connection is not None:
            connection.wire.flush()
