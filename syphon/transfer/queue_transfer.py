"""One queue that a pump serves: its link, its messages in flight, their locks, settlements, and why its service ended.

A pump serves many queues with one pair of connections (D15). All that belongs to one of them is here; the destinations
and the window belong to the pump.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from syphon.backlog import stamps_of
from syphon.model import DestinationBusy, Outcome, Result, SessionOrder, SyphonError
from syphon.servicebus import Arrival, Connection, LinkState, ManagementLinks, Namespace, Peeked, Settled
from syphon.time_budget import SETTLED_WITHIN

from .deferred_intake import DeferredIntake
from .intake import Intake
from .locks import LockKeeper
from .message_transfer import MessageTransfer
from .movable_messages import MovableMessages
from .ordered_sessions import OrderedSessions, SessionKey, session_key
from .pump_options import PumpOptions
from .settlement import Completions, Ended, PumpCounters, Unsettled
from .traces import Traces
from .window import Demand

LOCK_MARGIN = 0.1
"""The share of a lock that must be left for a message to be sent: the completion must still find it locked."""
SHALLOW, SHALLOW_FOR = 100, 1.0
"""With fewer messages in flight for this many seconds, the link delivers little: time to scan for deferred messages."""
SETTLED_AS = {
    "accepted": Result.FORWARDED,
    "rejected": Result.DEAD_LETTERED,
    "released": Result.LEFT,
    "modified": Result.LEFT,
}


class QueueTransfer:
    """The transfer of one queue. Its service can end and begin again; the counters go on."""

    def __init__(
        self,
        queue: str,
        *,
        source: str,
        namespace: Namespace,
        options: PumpOptions,
        record: Callable[[Outcome], None],
        traces: Traces,
        now: Callable[[], float],
        wall: Callable[[], int],
        movable: MovableMessages,
        session_of: Callable[[Peeked], SessionKey | None],
    ) -> None:
        self.queue = queue
        self.is_served = False
        """Whether the pump has work with it: it receives its messages, or finishes those in flight."""
        self.ended: Ended | None = None
        """Why the pump receives no more of its messages; None while it does."""
        self.error: SyphonError | None = None
        """Why it cannot be received from, if that ended its service."""
        self.unsettled = Unsettled(queue, record, now, traces, wall)
        self.intake = Intake(source, namespace, options.quiet, now, self._record_busy)
        node = ManagementLinks(source)
        self.deferred = DeferredIntake(node, now, movable)
        self.locks = LockKeeper(node, options.lock, self._locked(), self._record_refused_request)
        self.order: OrderedSessions | None = None
        """Which message of each session is next, if the order of sessions is kept."""
        if options.session_order is not None:
            self.order = self.unsettled.order = OrderedSessions(node, session_of, self.unsettled.by_number, now)
        self.completions = Completions(source, self.unsettled, self.locks, now)
        self._was_busy = self._was_request_refused = False
        """The service has answered busy since the pump last asked: to the queue's link, or to a request about locks."""
        self.locked_before = 0.0
        """A message that was last locked before then must no longer be sent."""
        self._namespace = namespace
        self._options = options
        self._now = now
        self._wall = wall
        self._deep_at = 0.0
        """When it last had many messages in flight."""
        self._ended_at = 0.0
        self._most = 0
        self._moved = self._received = 0
        """The counters when the window was last shared."""

    @property
    def counters(self) -> PumpCounters:
        return self.unsettled.counters

    def _locked(self) -> Collection[Arrival]:
        """The messages whose locks are kept."""
        return self.unsettled.transfers

    @property
    def counted_by_limit(self) -> int:
        """How many of its messages use up the limit of the pump."""
        return self.counters.received

    # --- its service ---------------------------------------------------------------------------------------------

    def begin(self, deferred: bool, waiting: Iterable[str]) -> None:
        """Begins a service. With `deferred` it scans for deferred messages at once; otherwise when one of the
        destinations `waiting` is available."""
        self.is_served, self.ended, self.error = True, None, None
        self.intake.last_arrival = self._deep_at = self._now()
        self.deferred.begin(deferred, waiting)
        if self.order is not None and not self.unsettled.transfers:
            self.order.reset()
        self.slow_start()

    def slow_start(self) -> None:
        """Slow start: it is not known whether the destinations accept messages."""
        self._most, self._moved = self._options.first_window, self.counters.moved

    def end(self, reason: Ended) -> None:
        """Receives no more messages. The service is over when those in flight are settled."""
        if self.ended is None:
            self.ended, self._ended_at = reason, self._now()
        self.deferred.stop()
        self.intake.drain()

    def reason_to_end(self, now: float) -> Ended | None:
        """Why the service ends now, as far as this queue can tell."""
        if self.unsettled.transfers:
            return None
        return Ended.QUIET if self.deferred.is_idle and self.intake.is_quiet(now) else None

    def is_finished(self, now: float) -> bool:
        """Whether the service has ended, and no message is in flight or on the way to it."""
        if self.ended is None:
            return False
        is_drained = (self.intake.is_drained and self.deferred.is_drained) or now - self._ended_at > self._options.grace
        return is_drained and not self.unsettled.transfers

    def close(self) -> None:
        """Closes all links. Each message still in flight gets an outcome; none is settled that did not arrive."""
        self.take_settlements()
        for arrival, transfer in list(self.unsettled.transfers.items()):
            forwarded = transfer is not None and transfer.forwarded_at is not None
            result = Result.FORWARDED if forwarded else Result.LEFT
            self.unsettled.finish(arrival, result, "The pump ended before it was settled.", forwarded)
        self.intake.close()
        self.deferred.close()
        self.locks.close()
        self.is_served = False

    def take_busy(self, is_receiving_much: bool) -> bool:
        """Whether what is received has made the service answer busy since the last call.

        A refused request about locks counts only with `is_receiving_much`: otherwise other clients, or requests like
        it, have used up the credits, and receiving less would change nothing.
        """
        was_busy = self._was_busy or (self._was_request_refused and is_receiving_much)
        self._was_busy = self._was_request_refused = False
        return was_busy

    def _record_busy(self) -> None:
        self._was_busy = True

    def _record_refused_request(self) -> None:
        self._was_request_refused = True

    # --- its part of the window ----------------------------------------------------------------------------------

    def demand(self) -> Demand:
        """What it has of the window, and could have. What it could have doubles while messages move."""
        counters = self.counters
        if counters.moved > self._moved:
            self._moved = counters.moved
            self._most = min(2 * self._most, self._options.window)
        arrived, self._received = counters.received - self._received, counters.received
        intake = self.intake
        return Demand(counters.in_flight, counters.bytes_in_flight, arrived, intake.credit, self._most, intake.largest)

    def next_arrival(self) -> Arrival | None:
        """The next message that has arrived, over the link or by its sequence number."""
        return self.intake.next_arrival() or self.deferred.next_arrival()

    def grant(self, credit: int) -> None:
        """Receives at most `credit` messages, deferred ones first."""
        now, connection = self._now(), self._namespace.connection()
        if self.counters.in_flight >= SHALLOW:
            self._deep_at = now
        elif now - self._deep_at >= SHALLOW_FOR:
            self.deferred.begin_scan()
        if self.order is not None and connection is not None:
            self._work_on_order(self.order, connection)
        if connection is not None and credit > 0 and not self.deferred.is_idle and self.intake.is_allowed(connection):
            if self._options.limit is not None and not self.intake.is_drained:
                self.intake.drain()  # a limit is exact: nothing may arrive beside the requested messages
                return
            self.deferred.work(connection, credit)
            if self._options.limit is not None:
                return
        self.intake.grant(max(0, credit - self.deferred.requested))

    def _work_on_order(self, order: OrderedSessions, connection: Connection) -> None:
        if self.intake.is_allowed(connection):
            order.work(connection)
        if order.wants_deferred:
            order.wants_deferred = False
            self.deferred.scan_if_idle()

    # --- locks ---------------------------------------------------------------------------------------------------

    def allow_for_stall(self, since: float) -> None:
        """Corrects the age of the locks of messages that may have waited in the socket since then.

        First it learns from the messages how long a lock lasts. Otherwise a pump that is slow from its first turn would
        mistake one-minute locks for short ones, and keep releasing everything.
        """
        wall = self._wall()
        for payload in self.intake.payloads():
            self.locks.raise_duration(stamps_of(payload).locked_until, wall)
        self.intake.allow_for_stall(since, self.locks.shortest)

    def check_locks(self, connection: Connection | None, now: float, next_check: float) -> None:
        """Renews locks, and completes the messages over the management node that their link did not complete."""
        self.locked_before = now - self.locks.seconds * (1 - LOCK_MARGIN) + next_check
        self.intake.stop_awaiting(now - SETTLED_WITHIN)
        self.deferred.stop_awaiting(now - SETTLED_WITHIN)
        self.completions.finish_expired(now)
        if connection is None:
            return
        self.locks.keep(connection, now)
        due = self.completions.due(now)
        if due and self.intake.is_allowed(connection):
            self.completions.ask(connection, due)

    # --- settling ------------------------------------------------------------------------------------------------

    def complete(self, arrival: Arrival) -> None:
        """Completes a message that its destination has accepted."""
        self.completions.begin(arrival)

    def dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        transfer = self.unsettled.transfers[arrival]
        if self._options.session_order is SessionOrder.STRICT and transfer is not None and session_key(transfer):
            self.unsettled.finish(arrival, Result.LEFT, f"It holds up its session. {reason}: {description}")
            return
        if arrival.link.state is not LinkState.OPEN:
            self.unsettled.finish(arrival, Result.LEFT, f"{reason}: {description}")
            return
        self.unsettled.remember_reason(arrival, f"{reason}: {description}")
        arrival.link.dead_letter(arrival, reason, description[:4096])

    def abandon(self, arrival: Arrival, why: str) -> None:
        """Abandons a message. The credit is drained first, or the service would redeliver it to this link."""
        if arrival.link.state is not LinkState.OPEN:
            self.unsettled.finish(arrival, Result.LEFT, f"{why} Its link was lost.")
            return
        self.intake.drain()
        self.unsettled.remember_reason(arrival, why)
        arrival.link.release(arrival)

    def leave(self, transfer: MessageTransfer, error: SyphonError) -> None:
        """Leaves a message locked in the queue: it is redelivered when the lock expires, and not before."""
        self.unsettled.finish(transfer.arrival, Result.LEFT, str(error))

    def defer(self, transfer: MessageTransfer, error: SyphonError) -> None:
        """Defers a message, because its destination is unavailable: it is not received again before that is over,
        and the messages behind it can be received (S7)."""
        arrival = transfer.arrival
        if arrival.link.state is not LinkState.OPEN:
            self.unsettled.finish(arrival, Result.LEFT, str(error))
            return
        self.deferred.waiting.add(transfer.restored.destination.key)
        self.unsettled.remember_reason(arrival, str(error))
        arrival.link.defer(arrival)

    def skip(self, arrival: Arrival) -> None:
        self.counters.outside += 1
        self.unsettled.finish(arrival, Result.LEFT, "outside the filter")

    def take_settlements(self) -> None:
        """Notes the answers of the service to settlements."""
        while (settled := self.intake.next_settled() or self.deferred.next_settled()) is not None:
            self._settled(settled)

    def _settled(self, settled: Settled) -> None:
        arrival = settled.arrival
        if arrival not in self.unsettled.transfers:
            return
        transfer = self.unsettled.transfers[arrival]
        forwarded = transfer is not None and transfer.forwarded_at is not None
        if settled.error is None:
            self.unsettled.finish(arrival, SETTLED_AS[settled.outcome])
        elif forwarded:
            self._was_busy = self._was_busy or isinstance(settled.error, DestinationBusy)
            self.completions.refused(settled, settled.error)
        else:
            self.unsettled.finish(arrival, Result.LEFT, str(settled.error))
