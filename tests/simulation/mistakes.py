"""Deliberate mistakes in the product, to show that the simulation finds such mistakes.

Each is a context manager: inside it the product makes the mistake.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from typing import Any, NamedTuple

import syphon.control.reporter
import syphon.servicebus.pair
import syphon.servicebus.wire_session
import syphon.transfer.congestion
import syphon.transfer.destination
import syphon.transfer.doorbell
import syphon.transfer.pump
import syphon.worker.pair_worker
from syphon.control.slot_control import SlotControl
from syphon.control.totals import QueueAttempt, Totals
from syphon.model import Faulted, Outcome, Result, SyphonError
from syphon.sender.entity_state import PrimaryEntity
from syphon.sender.send_flow import SendFlow
from syphon.sender.shared_failover import Failover
from syphon.servicebus import LinkState, MessageState, Namespace, Peeked, RawSender, Sent
from syphon.servicebus.frame_socket import FrameSocket
from syphon.transfer import Congestion, DuplicateWindows, Listener, Replay
from syphon.transfer.breaker import Breaker, State
from syphon.transfer.connection_suspects import Isolation, MessageKey, Suspicion, Verdict
from syphon.transfer.deferred_intake import DeferredIntake
from syphon.transfer.destination import Destination, SendResults
from syphon.transfer.destinations import Destinations
from syphon.transfer.doorbell import Doorbell
from syphon.transfer.intake import Intake
from syphon.transfer.locks import LockKeeper
from syphon.transfer.message_transfer import MessageTransfer
from syphon.transfer.movable_messages import MovableMessages
from syphon.transfer.ordered_messages import OrderedUnsent
from syphon.transfer.ordered_sessions import OrderedSessions, SessionKey
from syphon.transfer.queue_transfer import QueueTransfer
from syphon.transfer.settlement import Unsettled
from syphon.transfer.window import Demand, RateLimiter, SharedWindow
from syphon.worker import Worker
from syphon.worker.dispatcher import Dispatcher
from syphon.worker.drain.emptiness import EmptinessCheck, PeekCount
from syphon.worker.drain.pair_drain import PairDrain
from syphon.worker.drain.queue_drain import QueueDrain
from syphon.worker.drain.queue_state import DrainState
from syphon.worker.pair_worker import PairWorker
from syphon.worker.pausable_gate import PausableGate
from syphon.worker.slots import SlotBudget

from .incident import Kind, Mode

Mistake = Callable[[], AbstractContextManager[None]]


class Known(NamedTuple):
    """A mistake, and the incidents that must find it."""

    make: Mistake
    mode: Mode
    first: int
    """The seed of the first incident. It is not 0 for mistakes that few incidents show: the test should be quick."""
    kind: Kind | None = None
    """The fault whose own generator makes the incidents; None: the usual generator."""
    check: str = ""
    """How the text of the check begins that must find it; empty: any check."""


MISTAKES: dict[str, Known] = {}


def mistake_in(
    mode: Mode, first: int = 0, kind: Kind | None = None, check: str = ""
) -> Callable[[Callable[[], Iterator[None]]], Mistake]:
    def register(make: Callable[[], Iterator[None]]) -> Mistake:
        """Registers a mistake under its name."""
        made = contextmanager(make)
        MISTAKES[make.__name__.replace("_", " ")] = Known(made, mode, first, kind, check)
        return made

    return register


mistake = mistake_in(Mode.PUMP)


@contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Replaces a method or a constant for a while."""
    original = vars(owner)[name]
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _ignore_unknown_deliveries() -> Callable[[RawSender[Any], int, object], None]:
    original = RawSender.on_outcome

    def on_outcome(self: RawSender[Any], delivery_id: int, state: object) -> None:
        if delivery_id in self._in_flight:
            original(self, delivery_id, state)

    return on_outcome


@mistake
def completes_before_the_destination_has_accepted() -> Iterator[None]:
    original = RawSender.send

    def send(self: RawSender[Any], payload: bytes, message_format: int, ticket: Any) -> None:
        original(self, payload, message_format, ticket)
        self._in_flight.popitem()
        self.results.append(Sent(ticket))

    with replaced(RawSender, "send", send), replaced(RawSender, "on_outcome", _ignore_unknown_deliveries()):
        yield


@mistake
def takes_an_unknown_outcome_for_accepted() -> Iterator[None]:
    original = Destination._handle

    def handle(self: Destination, sent: Sent[Any], results: SendResults, now: float) -> None:
        original(self, Sent(sent.ticket) if sent.unknown else sent, results, now)

    with replaced(Destination, "_handle", handle):
        yield


@mistake
def forgets_to_send_again_what_was_under_way() -> Iterator[None]:
    original = Destination._handle

    def handle(self: Destination, sent: Sent[Any], results: SendResults, now: float) -> None:
        if not (sent.unknown and self._has_lost_its_link()):
            original(self, sent, results, now)

    with replaced(Destination, "_handle", handle):
        yield


@mistake
def sends_every_fortieth_batch_twice() -> Iterator[None]:
    original, count = RawSender.send, iter(range(10**9))

    def send(self: RawSender[Any], payload: bytes, message_format: int, ticket: Any) -> None:
        if ticket and next(count) % 40 == 39:
            self.wire.transfer(self, message_format, payload)
            self._count += 1
        original(self, payload, message_format, ticket)

    with replaced(RawSender, "send", send), replaced(RawSender, "on_outcome", _ignore_unknown_deliveries()):
        yield


@mistake
def gives_messages_back_and_sends_them_too() -> Iterator[None]:
    def take(self: Destination, chosen: Any = None) -> list[MessageTransfer]:
        unsent = self._unsent
        again = [t for batch in unsent.again for t in batch if chosen is None or chosen(t)]
        return again + unsent.pending.take(chosen)

    with replaced(Destination, "take_unsent", take):
        yield


@mistake
def never_tries_a_destination_again() -> Iterator[None]:
    def state_at(self: Breaker, now: float) -> State:
        return self.state

    with replaced(Breaker, "state_at", state_at):
        yield


@mistake
def takes_every_error_for_permanent() -> Iterator[None]:
    def is_permanent(self: Breaker, error: SyphonError) -> bool:
        return True

    with replaced(Breaker, "is_permanent", is_permanent):
        yield


@mistake
def blames_no_destination_for_a_lost_connection() -> Iterator[None]:
    def lost(self: Suspicion, keys: Sequence[MessageKey], now: float, has_failed: bool) -> Verdict:
        return Verdict.NOTHING

    with replaced(Suspicion, "lost", lost):
        yield


@mistake
def lets_others_send_during_a_trial() -> Iterator[None]:
    def may_send(self: Isolation, destination: Destination) -> bool:
        return True

    with replaced(Isolation, "may_send", may_send):
        yield


@mistake
def grants_more_credit_than_the_window() -> Iterator[None]:
    original = SharedWindow.credits

    def credits(self: SharedWindow, demands: Sequence[Demand], allowed: int | None) -> list[int]:
        return [credit + 5 for credit in original(self, demands, allowed)]

    with replaced(SharedWindow, "credits", credits):
        yield


@mistake
def forgets_to_count_what_is_left() -> Iterator[None]:
    original = Unsettled.finish

    def finish(self: Unsettled, arrival: Any, result: Result, *rest: Any, **more: Any) -> None:
        original(self, arrival, result, *rest, **more)
        if result is Result.LEFT:
            self.counters.left -= 1

    with replaced(Unsettled, "finish", finish):
        yield


@mistake
def releases_messages_that_it_should_leave_locked() -> Iterator[None]:
    original = QueueTransfer.leave

    def leave(self: QueueTransfer, transfer: MessageTransfer, error: SyphonError) -> None:
        if transfer.arrival.link.state is LinkState.OPEN:
            transfer.arrival.link.release(transfer.arrival)
        original(self, transfer, error)

    with replaced(QueueTransfer, "leave", leave):
        yield


@mistake
def sends_messages_to_a_wrong_destination() -> Iterator[None]:
    original = Destinations.find

    def find(self: Destinations, path: Any) -> Destination | str:
        found = original(self, path)
        return next(iter(self._known.values())) if len(self._known) > 2 else found

    with replaced(Destinations, "find", find):
        yield


@mistake
def never_reopens_a_lost_receiver() -> Iterator[None]:
    original = Intake.detach

    def detach(self: Intake) -> Any:
        receiver = original(self)
        self._again_at = math.inf
        return receiver

    with replaced(Intake, "detach", detach):
        yield


@mistake
def never_reopens_a_lost_connection() -> Iterator[None]:
    original = Namespace._notice_break

    def notice(self: Namespace) -> None:
        had = self._connection is not None
        original(self)
        if had and self._connection is None:
            self._next_try = math.inf

    with replaced(Namespace, "_notice_break", notice):
        yield


@mistake
def drops_the_first_part_of_a_frame_that_arrives_in_two() -> Iterator[None]:
    original = FrameSocket.read

    def read(self: FrameSocket) -> None:
        original(self)
        self._rest = b""

    with replaced(FrameSocket, "read", read):
        yield


@mistake
def renews_no_lock() -> Iterator[None]:
    def keep(self: LockKeeper, *arguments: Any) -> None:
        self._check_link()

    with replaced(LockKeeper, "keep", keep):
        yield


@mistake_in(Mode.PUMP, first=700)
def sends_messages_whose_lock_has_ended() -> Iterator[None]:
    original = QueueTransfer.check_locks

    def check_locks(self: QueueTransfer, *arguments: Any) -> None:
        original(self, *arguments)
        self.locked_before = -math.inf

    with replaced(QueueTransfer, "check_locks", check_locks):
        yield


@mistake
def forwards_each_delivery_of_a_message_that_came_again() -> Iterator[None]:
    def add(self: Unsettled, transfer: MessageTransfer) -> None:
        self.transfers[transfer.arrival] = transfer

    with replaced(Unsettled, "add", add):
        yield


@mistake
def waits_without_end_for_an_answer() -> Iterator[None]:
    with (
        replaced(syphon.servicebus.wire_session, "WIRE_SILENCE", math.inf),
        replaced(syphon.servicebus.wire_session, "LATEST_ANSWER", math.inf),
        replaced(syphon.transfer.destination, "SEND_ANSWER_WITHIN", math.inf),
    ):
        yield


# --- the worker -------------------------------------------------------------------------------------------------------

mistake_of_the_worker = mistake_in(Mode.WORKER)


@mistake_of_the_worker
def takes_six_seconds_for_five() -> Iterator[None]:
    with replaced(syphon.servicebus.pair, "OTHER_SIDE_ENDS_WITHIN", 6.0):
        yield


@mistake_in(Mode.WORKER, first=280)
def takes_a_lost_report_for_the_last_one() -> Iterator[None]:
    def with_ended(self: Totals, ended: Iterable[QueueAttempt]) -> Totals:
        return Totals.total((self, *(Totals(**asdict(attempt.queue.counters)) for attempt in ended)))

    with replaced(Totals, "with_ended", with_ended):
        yield


@mistake_of_the_worker
def goes_on_without_its_driver() -> Iterator[None]:
    with replaced(syphon.control.reporter, "DRIVER_SILENCE", math.inf):
        yield


@mistake_of_the_worker
def never_listens_again_after_a_service() -> Iterator[None]:
    with replaced(Listener, "arm", lambda *_, **__: None):
        yield


@mistake_of_the_worker
def stays_silent_after_the_primary_was_away() -> Iterator[None]:
    original = Doorbell.hold

    def hold(self: Doorbell) -> None:
        original(self)
        self.silence()

    with replaced(Doorbell, "hold", hold):
        yield


@mistake_in(Mode.WORKER, first=2200)
def never_asks_whether_it_has_credit() -> Iterator[None]:
    with replaced(syphon.transfer.doorbell, "DOORBELL_CHECK_EVERY", math.inf):
        yield


@mistake_of_the_worker
def keeps_the_message_that_rang() -> Iterator[None]:
    with replaced(Doorbell, "_release", lambda *_: None):
        yield


@mistake_of_the_worker
def gives_a_slot_back_twice() -> Iterator[None]:
    original = SlotBudget.release

    def release(self: SlotBudget, *pair: Any) -> None:
        original(self, *pair)
        original(self, *pair)

    with replaced(SlotBudget, "release", release):
        yield


@mistake_of_the_worker
def forgets_a_queue_whose_slot_failed() -> Iterator[None]:
    with replaced(Dispatcher, "_fail", lambda *_: None):
        yield


@mistake_of_the_worker
def never_ends_a_back_off() -> Iterator[None]:
    with replaced(PausableGate, "can_move", lambda self, path: path not in self._until):
        yield


@mistake_in(Mode.WORKER, first=880)
def hands_a_queue_to_no_slot_after_a_lost_order() -> Iterator[None]:
    original = SlotControl.order_for
    handed = set[tuple[str, str, int]]()

    def order_for(self: SlotControl, report: Any) -> Any:
        """Says each order once: an answer that is lost is not said again."""
        order = original(self, report)
        new = tuple(each for each in order.queues if (report.job, each.queue, each.number) not in handed)
        handed.update((report.job, each.queue, each.number) for each in new)
        return order.model_copy(update={"queues": new})

    with replaced(SlotControl, "order_for", order_for):
        yield


# --- the drain --------------------------------------------------------------------------------------------------------


@mistake_in(Mode.DRAIN)
def takes_a_failed_peek_for_an_empty_queue() -> Iterator[None]:
    original = EmptinessCheck.count

    def count(self: EmptinessCheck, *arguments: Any) -> PeekCount:
        try:
            return original(self, *arguments)
        except SyphonError:
            return PeekCount(0, 0)

    with replaced(EmptinessCheck, "count", count):
        yield


@mistake_in(Mode.DRAIN)
def takes_a_quiet_queue_for_an_empty_one() -> Iterator[None]:
    original = QueueDrain.peek

    def peek(self: QueueDrain, emptiness: EmptinessCheck) -> None:
        if self.attempts:
            self.state = DrainState.EMPTY
        else:
            original(self, emptiness)

    with replaced(QueueDrain, "peek", peek):
        yield


@mistake_in(Mode.DRAIN)
def takes_an_empty_queue_for_a_stuck_one() -> Iterator[None]:
    original = QueueDrain.peek

    def peek(self: QueueDrain, emptiness: EmptinessCheck) -> None:
        original(self, emptiness)
        if self.state is DrainState.EMPTY:
            self.state = DrainState.STUCK

    with replaced(QueueDrain, "peek", peek):
        yield


@mistake_in(Mode.DRAIN)
def does_not_peek_again_into_queues_that_were_empty() -> Iterator[None]:
    with replaced(PairDrain, "_peek_empty_queues", lambda _: None):
        yield


# --- the senders ------------------------------------------------------------------------------------------------------


@mistake_in(Mode.SENDER)
def says_sent_and_puts_nothing_into_the_backlog() -> Iterator[None]:
    def send(*_: Any) -> Iterator[None]:
        yield from ()

    with replaced(SendFlow, "_send_to_backlog", send):
        yield


@mistake_in(Mode.SENDER)
def stays_failed_over_although_a_ping_arrived() -> Iterator[None]:
    original = PrimaryEntity.pinged

    def pinged(self: PrimaryEntity, error: Exception | None, *times: float) -> Iterator[Any]:
        return original(self, error or OSError("taken for failed"), *times)

    with replaced(PrimaryEntity, "pinged", pinged):
        yield


# --- a throttled service ----------------------------------------------------------------------------------------------


@mistake_in(Mode.PUMP, kind=Kind.THROTTLE)
def does_not_lower_the_rate_when_the_service_is_busy() -> Iterator[None]:
    with replaced(Congestion, "busy", lambda *_: None):
        yield


@mistake_in(Mode.WORKER, first=20, kind=Kind.THROTTLE, check="slow")
def hardly_raises_the_limit_after_a_busy_answer() -> Iterator[None]:
    with (
        replaced(syphon.transfer.congestion, "START", 0.005),
        replaced(syphon.transfer.congestion, "GROWTH", 0.02),
    ):
        yield


@mistake_in(Mode.WORKER, kind=Kind.THROTTLE)
def leaves_the_messages_of_a_throttled_destination_to_their_locks() -> Iterator[None]:
    with replaced(Breaker, "is_throttled", property(lambda _: False)):
        yield


@mistake_in(Mode.DRAIN, kind=Kind.THROTTLE, check="received again")
def receives_at_full_speed_while_it_sends_slowly() -> Iterator[None]:
    """And then releases everything at the end of each lease."""
    with replaced(syphon.transfer.pump, "SECONDS_IN_FLIGHT", 1e6):
        yield


@mistake_in(Mode.DRAIN, kind=Kind.THROTTLE)
def forgets_after_each_turn_what_it_was_allowed_to_send() -> Iterator[None]:
    """At a low limit a turn is worth less than one message."""

    def room(self: RateLimiter, rate: float | None, now: float) -> int | None:
        self._tokens, self._at = 0.0, self._at if rate else now
        return original(self, rate, now)

    original = RateLimiter.room
    with replaced(RateLimiter, "room", room):
        yield


@mistake_in(Mode.WORKER, kind=Kind.MISSING, check="received again")
def leaves_messages_for_dead_destinations_to_their_locks() -> Iterator[None]:
    with replaced(Destination, "defers", lambda *_: False):
        yield


@mistake_in(Mode.PUMP, first=25, kind=Kind.FRAGMENT, check="not isolated")
def backs_off_from_a_destination_because_of_one_key() -> Iterator[None]:
    with replaced(Destination, "_is_one_key_to_blame", lambda *_: False):
        yield


# --- several pairs ----------------------------------------------------------------------------------------------------


@mistake_in(Mode.PAIRS, kind=Kind.GONE, check="not isolated")
def ends_all_pairs_because_of_a_bad_one() -> Iterator[None]:
    def check_faults(self: Worker) -> Faulted | None:
        return next((pair.fault.cause.error() for pair in self.pairs if pair.fault is not None), None)

    with replaced(Worker, "_check_faults", check_faults):
        yield


@mistake_in(Mode.PAIRS, kind=Kind.GONE)
def sets_a_bad_pair_up_again_without_a_pause() -> Iterator[None]:
    with replaced(syphon.worker.pair_worker, "FIRST_SET_UP_DELAY", 0.5):
        yield


@mistake_in(Mode.PAIRS, kind=Kind.GONE)
def never_sets_a_bad_pair_up_again() -> Iterator[None]:
    with replaced(PairWorker, "_wait_for_set_up", lambda self: self._over.wait()):
        yield


# --- replays of dead letters ------------------------------------------------------------------------------------------


@mistake_in(Mode.REPLAY, kind=Kind.KNOWN_ID)
def sends_what_the_target_may_drop() -> Iterator[None]:
    with replaced(DuplicateWindows, "of", lambda *_: 0):
        yield


@mistake_in(Mode.REPLAY, kind=Kind.KNOWN_ID)
def takes_no_answer_about_duplicate_detection_for_a_no() -> Iterator[None]:
    original = DuplicateWindows.of

    with replaced(DuplicateWindows, "of", lambda self, entity: original(self, entity) or 0):
        yield


@mistake_in(Mode.REPLAY, kind=Kind.KNOWN_ID)
def tells_no_new_id() -> Iterator[None]:
    original = Replay._record

    def record(self: Replay, outcome: Outcome) -> None:
        original(self, outcome)
        self.result.new_ids.clear()

    with replaced(Replay, "_record", record):
        yield


# --- the order of sessions -------------------------------------------------------------------------------------------


def of_order(mode: Mode, first: int) -> Callable[[Callable[[], Iterator[None]]], Mistake]:
    """A mistake that the incidents with ordered sessions find."""
    return mistake_in(mode, first, Kind.ORDER)


@of_order(Mode.PUMP, 160)
def takes_gaps_between_numbers_for_nothing() -> Iterator[None]:
    original = OrderedSessions.arrived

    def arrived(self: OrderedSessions, number: int, transfer: MessageTransfer | None) -> None:
        self._covered = max(self._covered, number - 1)
        original(self, number, transfer)

    with replaced(OrderedSessions, "arrived", arrived):
        yield


@of_order(Mode.WORKER, 20)
def takes_gaps_between_numbers_for_nothing_when_slots_change() -> Iterator[None]:
    with takes_gaps_between_numbers_for_nothing():
        yield


@of_order(Mode.PUMP, 0)
def forgets_messages_of_a_session_that_it_has_left() -> Iterator[None]:
    original = OrderedSessions.finished

    def finished(self: OrderedSessions, transfer: MessageTransfer, _: Result) -> None:
        original(self, transfer, Result.FORWARDED)

    with replaced(OrderedSessions, "finished", finished):
        yield


@of_order(Mode.PUMP, 100)
def sends_the_next_batch_of_a_session_before_the_answer() -> Iterator[None]:
    original = RawSender.send

    def send(self: RawSender[Any], payload: bytes, message_format: int, ticket: Any) -> None:
        original(self, payload, message_format, ticket)
        for transfer in ticket:
            if transfer.queue.order is not None:
                transfer.queue.order.accepted(transfer)
                transfer.queue.order.has_changed = True

    with replaced(RawSender, "send", send):
        yield


@of_order(Mode.PUMP, 0)
def takes_locked_messages_for_gone() -> Iterator[None]:
    original = OrderedSessions._forget_gone

    def forget(self: OrderedSessions, key: SessionKey, start: int, last: int | None, _: set[int]) -> None:
        original(self, key, start, last, set())

    with replaced(OrderedSessions, "_forget_gone", forget):
        yield


@of_order(Mode.PUMP, 250)
def lets_a_session_overtake_its_deferred_messages() -> Iterator[None]:
    original = OrderedSessions._read

    def read(self: OrderedSessions, start: int, page: list[Peeked]) -> None:
        session_of = self._session_of
        self._session_of = lambda message: None if message.state is MessageState.DEFERRED else session_of(message)
        original(self, start, page)
        self._session_of = session_of

    with replaced(OrderedSessions, "_read", read):
        yield


@of_order(Mode.PUMP, 235)
def sends_the_parts_of_a_refused_batch_in_any_order() -> Iterator[None]:
    def next_batch(
        self: OrderedUnsent, sender: RawSender[Any], most: int, from_the_middle: bool = False
    ) -> list[MessageTransfer]:
        if self.again:
            return self.first_part(self.again.popleft(), most)
        return self.pending.next_batch(sender, most)

    with replaced(OrderedUnsent, "next_batch", next_batch):
        yield


@of_order(Mode.PUMP, 1055)
def waits_for_a_deferred_message_and_does_not_fetch_it() -> Iterator[None]:
    with replaced(DeferredIntake, "scan_if_idle", lambda _: None):
        yield


@of_order(Mode.WORKER, 100385)
def tries_a_destination_with_a_message_that_has_to_wait() -> Iterator[None]:
    original = MovableMessages.prove

    def prove(self: MovableMessages, destination: str) -> bool:
        found = self._destinations.by_key(destination)
        return found is not None and bool(found.breaker.failures) and original(self, destination)

    with replaced(MovableMessages, "prove", prove):
        yield


@of_order(Mode.PUMP, 360)
def fills_the_window_with_messages_that_wait() -> Iterator[None]:
    with replaced(OrderedSessions, "held", lambda *_: None):
        yield


# --- the order of sessions, from the sender on ------------------------------------------------------------------------


@mistake_in(Mode.SENDER, kind=Kind.ORDER_OF_SENDS)
def returns_to_the_primary_before_the_backlog_is_empty() -> Iterator[None]:
    original = Failover.return_in_order

    def return_in_order(self: Failover, entity: PrimaryEntity, _: int | None, ping_began: float) -> bool:
        if entity.ordered is not None:
            entity.ordered.in_flight = 0
        return original(self, entity, self.sends_to_backlog(entity), ping_began)

    with replaced(Failover, "return_in_order", return_in_order):
        yield


@mistake_in(Mode.SENDER, kind=Kind.ORDER_OF_SENDS)
def sends_a_session_to_several_backlog_queues() -> Iterator[None]:
    turns = itertools.count()
    with replaced(Failover, "queue_of", lambda self, *_: self._all_queues[next(turns) % len(self._all_queues)]):
        yield


@mistake_in(Mode.SENDER, first=150, kind=Kind.ORDER_OF_SENDS)
def overlooks_messages_that_were_sent_during_the_check_of_the_backlog() -> Iterator[None]:
    original = Failover.return_in_order

    def return_in_order(self: Failover, entity: PrimaryEntity, begun: int | None, ping_began: float) -> bool:
        if entity.ordered is not None and begun is not None:
            begun, entity.ordered.in_flight = entity.ordered.begun, 0
        return original(self, entity, begun, ping_began)

    with replaced(Failover, "return_in_order", return_in_order):
        yield
