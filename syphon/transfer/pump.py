"""The pump: it moves the messages of its queues to their destinations, and settles each when it has arrived.

The pump has one thread and waits for nothing but traffic. Receiving, sending and settling overlap, so that a long round
trip costs little. Count and bytes bound the messages in flight. The order of the last steps is the promise: sent,
accepted, completed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from syphon.backlog import Unrestorable, destination_of, not_allowed_text, stamps_of
from syphon.model import (
    DESTINATION_NOT_ALLOWED,
    DestinationBusy,
    EntityPath,
    Faulted,
    Interrupted,
    Outcome,
    SyphonError,
    Waits,
)
from syphon.servicebus import (
    FIRST_OF_PARTITION,
    Arrival,
    Connection,
    Namespace,
    Peeked,
    Wait,
    wait_for_traffic,
)
from syphon.time_budget import (
    FIRST_OPENING_WITHIN,
    OPENING_TURN,
    PACED_TURN,
    PAUSED_BY_OS_AFTER,
    PUMP_TICK,
    PUMP_TURN,
    UNREACHABLE_AFTER,
)

from .congestion import Congestion
from .destination import LOCK_EXPIRES, Destination, SendResults
from .destinations import DestinationBackoff, Destinations
from .message_transfer import MessageTransfer
from .movable_messages import MovableMessages
from .moved_queue import MovedQueue
from .ordered_sessions import OrderedSessions, SessionKey
from .pump_options import PERMANENT, PumpOptions
from .queue_transfer import QueueTransfer
from .route import Route, from_backlog
from .settlement import Ended, PumpCounters, wall_clock
from .traces import Traces
from .window import RateLimiter, ReceiveLimit, SharedWindow

__all__ = ["PERMANENT", "Ended", "Pump", "PumpOptions", "PumpCounters", "DestinationBackoff"]

SECONDS_IN_FLIGHT = 2.0
"""Seconds of messages that may be in flight while the service throttles: the pump receives what it can send soon."""
LEAST_IN_FLIGHT = 100
"""Messages that may be in flight however much the service throttles: with fewer, the messages of a destination that
does not answer would keep all others in the backlog."""
PACED_AFTER_LEASE = 5.0
"""Seconds after the end of the lease in which messages are still sent that the congestion control holds back."""
HELD_PART = 4
"""One part in this many of the first window may be messages that wait for others of their session."""
PARTITIONED = "The queue is partitioned: its sequence numbers show no order, and session_order needs one."
STOPPED_TAKING = "The pump had stopped receiving messages."
NOT_CONNECTED = "The primary is not connected."


class PumpConnections:
    """The secondary, from which a pump receives, and the primary, to which it sends."""

    def __init__(self, secondary: Namespace, primary: Namespace, now: Callable[[], float], wait: Wait) -> None:
        self.secondary = secondary
        self.primary = primary
        self.fault: Faulted | None = None
        """Why the primary can no longer be used, if it cannot."""
        self.late_since: float | None = None
        """The time of the last read but one, if that was long ago: what was read last may have waited since then."""
        self._now = now
        self._wait = wait
        self._connected_at = self._read_at = now()

    def primary_connection(self) -> Connection | None:
        """The primary's connection. If the primary is faulted, the pump can only abandon the messages in flight."""
        try:
            connection = self.primary.connection()
        except Faulted as fault:
            self.fault = fault
            return None
        if connection is not None:
            self._connected_at = self._now()
        return connection

    def is_primary_unreachable(self, now: float) -> bool:
        """Whether the primary has not been connected for long. To open a connection may take half a minute."""
        if self.primary.is_connected:
            return False
        return now - self._connected_at > (
            UNREACHABLE_AFTER if self.primary.error is not None else FIRST_OPENING_WITHIN
        )

    def wait_for_traffic(self, at_most: float = PUMP_TURN) -> list[Connection]:
        """Waits until there is traffic, and reads it. Returns the open connections."""
        sides = self.secondary.connection(), self.primary_connection()
        turn = OPENING_TURN if None in sides else at_most
        # A replay into the backlog has one connection for both sides.
        connections = [connection for connection in dict.fromkeys(sides) if connection is not None]
        self._wait([connection.wire for connection in connections], turn)
        before, self._read_at = self._read_at, self._now()
        for connection in connections:
            if connection.wire.failure is None:
                connection.read()
        self.late_since = before if self._now() - before > PAUSED_BY_OS_AFTER else None
        return connections

    def flush(self) -> None:
        """Writes the last frames."""
        for namespace in (self.secondary, self.primary):
            try:
                connection = namespace.connection()
            except SyphonError:
                continue
            if connection is not None:
                connection.wire.flush()


class Pump:
    """Moves the messages of the queues that it serves, with one connection to each namespace.

    By default a queue is a backlog queue, its source its own path, and `route` the route of backlog messages. A replay
    of dead letters is a pump with another source and another route (`dead_letter_replay.Replay`). A move has
    another route, and queues that belong to somebody else.
    """

    queue_kind: type[QueueTransfer] = QueueTransfer
    """What it makes of each queue that it serves."""

    def __init__(
        self,
        secondary: Namespace,
        primary: Namespace,
        record: Callable[[Outcome], None],
        options: PumpOptions | None = None,
        now: Callable[[], float] = time.monotonic,
        *,
        route: Route | None = None,
        wait: Wait | None = None,
        wall: Callable[[], int] | None = None,
    ) -> None:
        """`wait` waits for traffic, as `wait_for_traffic` does; `wall` is the wall clock. A simulation has its own."""
        self.rate: float | None = None
        """Messages per second; None is no limit, 0 is a pause. Another thread may set it at any time."""
        self.stopping = False
        self.queues: dict[str, QueueTransfer] = {}
        """All queues that it has served so far. Another thread may read it: the pump replaces it, and changes none."""
        self._served: dict[str, QueueTransfer] = {}
        self._options = options or PumpOptions()
        self._sides = PumpConnections(secondary, primary, now, wait or wait_for_traffic)
        self._record_outcome = record
        self._now = now
        self._wall = wall or wall_clock
        self.traces = Traces()
        self._move = self._options.move
        if self._move is not None:
            self.queue_kind, route = MovedQueue, self._move.route()
        route = route or from_backlog(self._options.ttl, self._options.allow, self._options.rename)
        self._replaced_ids = route.replaced_ids
        self._restore, self._ttl, self._renames = route.restore, route.ttl, bool(route.rename.texts)
        self.destinations = Destinations(self._options, self.traces, route.objection, route.rename)
        self._movable = MovableMessages(self.destinations, self._options, now)
        self.source_congestion = Congestion(self._options.rate_share)
        """The congestion control of receiving; `destinations.congestion` is that of sending."""
        self._window = SharedWindow(self._options.window, self._options.window_bytes)
        self._limit = ReceiveLimit(self._options.limit)
        self._started = self._idle_since = now()
        self._limiter = RateLimiter(self._started)
        self._most, self._moved = self._options.first_window, 0
        """How many messages may be in flight while the pump starts, and how many had moved when that last grew."""
        self._stopped_at: float | None = None
        self._ticked_at = 0.0
        self._is_over = False

    # --- its queues ----------------------------------------------------------------------------------------------

    def serve(
        self, queue: str, *, source: str | None = None, deferred: bool = False, waiting: Iterable[str] = ()
    ) -> None:
        """Begins to move the messages of a queue. Only for the pump's own thread, before the first turn or between two.

        A queue whose service has ended may be served again. With `deferred` the pump scans for deferred messages at
        once; otherwise when one of the destinations `waiting`, which may have such messages, is available.
        """
        served = self.queues.get(queue)
        if served is None:
            served = self._new_queue(queue, source or queue)
            self.queues = {**self.queues, queue: served}
        self._served[queue] = served
        served.begin(deferred, waiting)

    def release(self, queue: str) -> None:
        """Ends the service of one queue: unsent messages are abandoned. Only for the pump's own thread."""
        served = self._served.get(queue)
        if served is not None and served.ended is None:
            self._end(served, Ended.STOPPED)

    def _new_queue(self, queue: str, source: str) -> QueueTransfer:
        return self.queue_kind(
            queue,
            source=source,
            namespace=self._sides.secondary,
            options=self._options,
            record=self._record_outcome,
            traces=self.traces,
            now=self._now,
            wall=self._wall,
            movable=self._movable,
            session_of=self._session_of,
        )

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self) -> PumpCounters:
        """Moves messages until the services of all queues have ended, or the pump is told to stop."""
        for _ in self.turns():
            pass
        return self.counters

    def turns(self) -> Iterator[None]:
        """Does the same one turn at a time, for a caller that has work of its own between the turns.

        Raises the fault of a namespace. An error of one queue ends only the service of that queue, and is in its
        `error`; it is raised at the end if every queue ended with one.
        """
        try:
            while not self._done():
                connections = self._wait_for_traffic()
                self._take_settlements()
                self._route_arrivals()
                self._tick(connections)
                self._forward()
                self._grant()
                yield
        finally:
            self._close()
        if self._sides.fault is not None:
            raise self._sides.fault
        errors = [queue.error for queue in self.queues.values() if queue.error is not None]
        if errors and len(errors) == len(self.queues):
            raise errors[0]

    def _done(self) -> bool:
        now = self._now()
        if not self.accepting:
            self._end_all(Ended.STOPPED if self.stopping else Ended.LEASE, now)
        for queue in list(self._served.values()):
            reason = self._reason_to_end(queue, now) if queue.ended is None else None
            if reason is not None:
                self._end(queue, reason)
            if queue.is_finished(now):
                self._finish(queue)
        if self._stopped_at is not None:
            # Messages that a throttled destination has refused since the stop: do not wait for it.
            for transfer in self.destinations.take_throttled():
                transfer.queue.abandon(transfer.arrival, STOPPED_TAKING)
            if self.is_paced and now - self._stopped_at > PACED_AFTER_LEASE:
                self._abandon_unsent(STOPPED_TAKING)
            return not self._served or now - self._stopped_at > self._options.grace
        if self._served:
            self._idle_since = now
        return now - self._idle_since >= self._options.linger and not self._served

    def _reason_to_end(self, queue: QueueTransfer, now: float) -> Ended | None:
        limit = self._options.limit
        if limit is not None and sum(each.counted_by_limit for each in self.queues.values()) >= limit:
            return Ended.LIMIT
        if self._sides.is_primary_unreachable(now):
            return Ended.PRIMARY_UNREACHABLE
        return queue.reason_to_end(now)

    def _end(self, queue: QueueTransfer, reason: Ended) -> None:
        """Ends the service of a queue. If only this queue ended, its unsent messages are still sent.

        So are those that are paced at the end of the lease: the next pump would have to receive them again.
        """
        queue.end(reason)
        if reason is Ended.STOPPED or (reason is Ended.LEASE and not self.is_paced):
            self._abandon_unsent(STOPPED_TAKING, queue)
        elif reason is Ended.PRIMARY_UNREACHABLE:
            self._abandon_unsent(str(self._sides.primary.error or NOT_CONNECTED), queue)

    def _end_all(self, reason: Ended, now: float) -> None:
        for queue in self._served.values():
            if self._stopped_at is None or queue.ended is None:
                self._end(queue, reason)
        if self._stopped_at is None:
            self._stopped_at = now

    def _finish(self, queue: QueueTransfer) -> None:
        queue.close()
        self._limit.return_unused(queue.queue, queue.counted_by_limit)
        del self._served[queue.queue]

    # --- for other threads ---------------------------------------------------------------------------------------

    def limit_rate(self, rate: float | None) -> None:
        """Receives at most this many messages per second; None is no limit, 0 a pause. Another thread may call it."""
        self.rate = rate

    def stop(self) -> None:
        """Receives no more messages; finishes the messages that are being sent and abandons the others."""
        self.stopping = True

    @property
    def accepting(self) -> bool:
        """Whether it can serve another queue: it is not told to stop, and its lease is not over."""
        options = self._options
        return not (
            self.stopping
            or self._is_over
            or (options.lease is not None and self._now() - self._started > options.lease)
            or (options.most_outcomes is not None and self._outcomes() >= options.most_outcomes)
        )

    def _outcomes(self) -> int:
        return sum(queue.counters.received - queue.counters.in_flight for queue in self.queues.values())

    @property
    def counters(self) -> PumpCounters:
        """The counters over all queues."""
        return PumpCounters.total(queue.counters for queue in self.queues.values())

    @property
    def is_primary_connected(self) -> bool:
        return self._sides.primary.is_connected

    @property
    def primary_error(self) -> SyphonError | None:
        """Why the primary is unreachable; None if it is connected, or if the first attempt has not ended."""
        return None if self.is_primary_connected else self._sides.primary.error

    @property
    def window_is_full(self) -> bool:
        """Whether a queue has used up its share of the window: more messages wait than this pump can take.

        Not while the service throttles: another pump would only get its share of the same limit.
        """
        return self._window.is_full and self.destinations.congestion.limit(self._now()) is None

    @property
    def is_paced(self) -> bool:
        """Whether messages wait for the congestion control: then the next turn comes soon."""
        return self.destinations.congestion.limit(self._now()) is not None and self.destinations.has_unsent

    def back_off(self, known: DestinationBackoff) -> None:
        """Makes a destination back off because another pump found that it is unavailable. Only between turns."""
        self.destinations.back_off(known, self._now())

    def pause(self, paths: frozenset[EntityPath]) -> None:
        """Pauses exactly these destinations, as the operator asked. Only for the pump's own thread."""
        self.destinations.pause(paths)

    def retry(self, path: EntityPath) -> None:
        """Ends the back-off of a destination, as the operator asked. Only for the pump's own thread."""
        self.destinations.retry(path)

    def backing_off(self) -> list[DestinationBackoff]:
        """The destinations that back off now, and why. Another thread may ask."""
        return self.destinations.backing_off(self._now())

    def rejecting(self) -> list[DestinationBackoff]:
        """The destinations whose messages are dead-lettered now, and why. Another thread may ask."""
        return self.destinations.rejecting(self._now())

    # --- traffic -------------------------------------------------------------------------------------------------

    def _wait_for_traffic(self) -> list[Connection]:
        connections = self._sides.wait_for_traffic(PACED_TURN if self.is_paced else PUMP_TURN)
        late_since = self._sides.late_since
        if late_since is not None:  # the process stalled, or was busy
            for queue in self._served.values():
                queue.allow_for_stall(late_since)
        return connections

    def _tick(self, connections: list[Connection]) -> None:
        """Checks heartbeats, tokens and locks. After a stall it must come before the next message is sent."""
        now = self._now()
        if now - self._ticked_at >= PUMP_TICK:
            self._ticked_at = now
            for connection in connections:
                connection.tick()
            self._check_locks(now)

    def _check_locks(self, now: float) -> None:
        connection, is_receiving_much = self._sides.secondary.connection(), self.source_congestion.is_used(now)
        for queue in self._served.values():
            try:
                queue.check_locks(connection, now, PUMP_TICK)
            except SyphonError as error:
                self._fail(queue, error)
            if queue.take_busy(is_receiving_much):
                self.source_congestion.busy(now)
            if queue.order is not None:
                self._leave_held(queue, queue.order)
        # Messages whose lock has expired, or is about to: they could not be completed after sending.
        for transfer in self.destinations.take_unsent(lambda transfer: transfer.is_late):
            self._leave(transfer, Interrupted(LOCK_EXPIRES))

    def _leave_held(self, queue: QueueTransfer, order: OrderedSessions) -> None:
        """Leaves messages that wait for others of their session which are not here, if they need much of the window.

        Without credit the others could not come.
        """
        part = min(self._options.first_window, self._options.window) // (HELD_PART * len(self._served))
        chosen = order.held(0 if queue.ended is not None else max(1, part))
        if chosen is not None:
            for transfer in self.destinations.take_unsent(lambda each: each.queue is queue and chosen(each)):
                self._leave(transfer, Waits("It waits for an earlier message of its session."))

    def _grant(self) -> None:
        for queue in self._served.values():
            queue.deferred.flush()
            if queue.intake.is_lost:
                self._lose_link(queue)
            if queue.order is not None and queue.order.has_changed:
                queue.order.has_changed = False
                self.destinations.wake()
        if self.stopping:
            return
        open_queues = [queue for queue in self._served.values() if queue.ended is None]
        if self.is_primary_connected and self._may_receive:
            demands = [queue.demand() for queue in open_queues]
            credits = self._window.credits(demands, self._room_to_receive())
        else:  # what is received now could not be sent (D16)
            credits = [0] * len(open_queues)
        for queue, credit in zip(open_queues, credits, strict=True):
            limit = self._limit.room(queue.queue, queue.counted_by_limit, len(open_queues))
            try:
                queue.grant(credit if limit is None else min(credit, limit))
            except SyphonError as error:
                self._fail(queue, error)

    @property
    def _may_receive(self) -> bool:
        """Whether messages can be sent: a move has one target, and its messages wait in their queue, not deferred."""
        if self._move is None:
            return True
        found = self.destinations.find(self._move.target)
        is_throttled = isinstance(found, Destination) and found.breaker.is_throttled
        return is_throttled or self._movable.can_move(self._move.target.key)

    def _room_to_receive(self) -> int | None:
        """How many messages may arrive now: what the rate allows, and what can be sent soon. None means any number."""
        now = self._now()
        found = self.source_congestion.limit(now)
        rate = min((each for each in (self.rate, found) if each is not None), default=None)
        room = self._limiter.room(rate, now)
        if found is not None and rate == found and not room:
            self.source_congestion.bound(now)
        limit = self.destinations.congestion.limit(now)
        if limit is not None:
            most = max(LEAST_IN_FLIGHT, int(SECONDS_IN_FLIGHT * limit))
            most += min(most, self.destinations.throttled())  # they must not keep the messages of others waiting
        elif self._most < self._options.window:
            most = self._slow_start()
        else:
            return room
        most = max(0, most - sum(queue.counters.in_flight for queue in self._served.values()))
        return most if room is None else min(room, most)

    def _slow_start(self) -> int:
        """How many messages may be in flight at the start of the pump: twice as many whenever messages have moved.

        Each queue has a slow start, but eighty together would fill the window before the first answer, which may be
        busy.
        """
        moved = sum(queue.counters.moved for queue in self._served.values())
        if moved > self._moved:
            self._moved, self._most = moved, min(2 * self._most, self._options.window)
        return self._most

    def _lose_link(self, queue: QueueTransfer) -> None:
        """Leaves the unsent messages: they are redelivered when their locks expire. `Completions` completes the others.

        If the link was lost because the service is busy, the messages stay in flight: their locks are kept, and they
        are completed over the management node.
        """
        queue.take_settlements()
        link = queue.intake.detach()
        error = link.error if link is not None else None
        if isinstance(error, DestinationBusy):
            return
        for transfer in self.destinations.take_unsent(lambda transfer: transfer.queue is queue):
            self._leave(transfer, error or Interrupted())
        if error is not None and not isinstance(error, Interrupted | Waits):
            self._fail(queue, error)

    def _fail(self, queue: QueueTransfer, error: SyphonError) -> None:
        """Ends the service of a queue that cannot be received from. A fault of the namespace ends the pump."""
        if isinstance(error, Faulted):
            raise error
        queue.error = error
        self._end(queue, Ended.STOPPED)

    # --- the way of a message ------------------------------------------------------------------------------------

    def _route_arrivals(self) -> None:
        wall, arrived = self._wall(), 0
        for queue in self._served.values():
            while (arrival := queue.next_arrival()) is not None:
                arrived += 1
                queue.unsettled.receive(arrival)
                if queue.ended is not None:
                    queue.abandon(arrival, STOPPED_TAKING)
                else:
                    self._route(queue, arrival, wall)
        self._limiter.spend(arrived)
        if arrived:
            self.source_congestion.accepted(arrived, self._now())

    def _route(self, queue: QueueTransfer, arrival: Arrival, wall: int) -> None:
        """Restored → its destination, or → dead letters with a reason."""
        restored = self._restore(arrival.payload, enqueued_at=None, now=wall, ttl=self._ttl)
        if isinstance(restored, Unrestorable):
            if queue.order is not None:
                queue.order.arrived(stamps_of(arrival.payload).sequence_number, None)
            if self._is_filtered_out(arrival):
                queue.skip(arrival)
            else:
                queue.dead_letter(arrival, restored.reason.value, restored.description)
            return
        queue.locks.update_duration(restored.stamps.locked_until, wall)
        transfer = MessageTransfer(queue, arrival, restored, len(arrival.payload))
        queue.unsettled.add(transfer)
        if queue.order is not None:
            if restored.stamps.sequence_number >= FIRST_OF_PARTITION:
                queue.abandon(arrival, PARTITIONED)
                self._fail(queue, SyphonError(PARTITIONED))
                return
            queue.order.arrived(restored.stamps.sequence_number, transfer)
        is_selected = self._options.messages.matches(restored.destination, restored.stamps.enqueued_at, arrival.payload)
        arrival.payload = b""  # it has been restored: once in memory is enough
        if not is_selected:
            queue.skip(arrival)
            return
        if self._move is not None and self._move.new_ids:
            old = self._replaced_ids.pop(str(restored.message_id), "")
            queue.unsettled.remember_reason(arrival, f"Its message id was {old}." if old else "")
        destination = self.destinations.find(restored.destination)
        if isinstance(destination, str):
            queue.dead_letter(arrival, DESTINATION_NOT_ALLOWED, not_allowed_text(restored.destination, destination))
            return
        if self._renames:
            transfer.renamed_to = self.destinations.renamed(restored.destination)
        self.destinations.offer(destination, transfer)

    def _is_filtered_out(self, arrival: Arrival) -> bool:
        """Whether the filter excludes a message that cannot be restored. Its destination may still be readable."""
        enqueued_at = stamps_of(arrival.payload).enqueued_at
        return not self._options.messages.matches(destination_of(arrival.payload), enqueued_at, arrival.payload)

    def _session_of(self, message: Peeked) -> SessionKey | None:
        """The session of a message that will be forwarded; None if it has none, or goes to the dead letters."""
        restored = self._restore(message.payload, enqueued_at=None, now=self._wall(), ttl=self._ttl)
        if isinstance(restored, Unrestorable) or restored.session_id is None:
            return None
        return restored.destination.key, restored.session_id

    # --- sending -------------------------------------------------------------------------------------------------

    def _forward(self) -> None:
        now = self._now()
        connection, error = self._sides.primary_connection(), self._sides.primary.error
        for destination, results in self.destinations.work(connection, now):
            self._settle_results(destination, results)
        if self._sides.fault is not None:
            self.stopping = True
            self._abandon_unsent(str(self._sides.fault))
        elif connection is None and error is not None:
            self._abandon_unsent(str(error))

    def _settle_results(self, destination: Destination, results: SendResults) -> None:
        wall = self._wall()
        for transfer in results.accepted:
            transfer.forwarded_at = wall
            transfer.queue.complete(transfer.arrival)
        for transfer, error in results.refused:
            reason = getattr(error, "reason", "Refused")
            transfer.queue.dead_letter(transfer.arrival, reason, f"Destination '{destination.path}': {error}")
        if results.left:
            defers = destination.defers(self._now())
            for transfer, error, may_defer in results.left:
                if defers and may_defer:
                    self._defer(transfer, error)
                else:
                    self._leave(transfer, error)

    # --- settling ------------------------------------------------------------------------------------------------

    def _abandon_unsent(self, why: str, queue: QueueTransfer | None = None) -> None:
        """Releases the unsent messages, of one queue or of all, with a slow start afterwards."""
        unsent = self.destinations.take_unsent(None if queue is None else lambda transfer: transfer.queue is queue)
        for transfer in unsent:
            transfer.queue.abandon(transfer.arrival, why)
            transfer.queue.slow_start()

    def _leave(self, transfer: MessageTransfer, error: SyphonError) -> None:
        transfer.queue.leave(transfer, error)

    def _defer(self, transfer: MessageTransfer, error: SyphonError) -> None:
        transfer.queue.defer(transfer, error)

    def _take_settlements(self) -> None:
        for queue in self._served.values():
            queue.take_settlements()

    def _close(self) -> None:
        """Closes all links. The pump settles no message that did not arrive, and records an outcome for each."""
        self._is_over = True
        self._take_settlements()
        self.destinations.close()
        for queue in list(self._served.values()):
            self._finish(queue)
        self._sides.flush()
