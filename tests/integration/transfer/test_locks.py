"""Locks: the pump learns their duration, renews them for messages in flight, and completes until they expire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from syphon.amqp import Map
from syphon.emulator import Action, Fault, Operation, QueueDescription
from syphon.model.outcomes import Result
from syphon.servicebus import Arrival, ManagementLinks
from syphon.time_budget import LATEST_ANSWER, SETTLED_WITHIN
from syphon.transfer import Pump
from syphon.transfer.locks import LockKeeper
from tests.integration.transfer.conftest import BACKLOG, PATIENT, ManualTimeNamespaces, TwoNamespaces, aliased


def short_locks(namespaces: TwoNamespaces) -> str:
    """A backlog queue that its owner created with locks of five seconds: it is used as it is (P3)."""
    queue = QueueDescription("contoso/x-servicebus-transfer/1", lock_duration=5_000)
    namespaces.emulator.call(lambda: namespaces.secondary.create_queue(queue))
    return queue.name


def test_a_message_whose_lock_could_not_be_renewed_in_time_is_not_sent(manual: ManualTimeNamespaces) -> None:  # S6
    manual.queue("orders")
    short = short_locks(manual)
    manual.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(20)), queue=short)
    late = manual.fault(Fault(Action.DELAY, Operation.ATTACH, "orders", seconds=6))
    manual.fault(Fault(Action.ERROR, Operation.MANAGE, condition="com.microsoft:message-lock-lost"), "contoso-dr")
    with manual.running(queue=short) as (pump, outcomes, _):
        manual.wait(lambda: pump.counters.received == 20 and late.struck == 1)
        manual.advance(4.6)
        manual.wait(lambda: pump.counters.left == 20)
        manual.advance(0.5)
        manual.wait(lambda: pump.counters.received == 40)
        manual.advance(1)
        manual.wait(lambda: pump.counters.forwarded == 20)
    left = [outcome for outcome in outcomes if outcome.result is Result.LEFT]
    assert len(left) == 20
    assert all("lock had expired, or was about to" in outcome.reason for outcome in left)
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (20, 0)
    assert manual.active("orders") == 20


def test_a_lock_that_was_renewed_says_nothing_of_one_that_was_not(manual: ManualTimeNamespaces) -> None:  # S6
    manual.queue("orders")
    short = short_locks(manual)
    manual.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(2)), queue=short)
    manual.fault(Fault(Action.DELAY, Operation.ATTACH, "orders", seconds=6))
    line = manual.secondary.message_queue(short)
    lost = False
    with manual.pump(queue=short) as (pump, outcomes):
        for _ in manual.turns(pump):
            if pump.counters.in_flight == 2 and not lost:
                lost = True
                manual.emulator.call(lambda: line.lose_lock(line.peek(0, 2)[1].lock_token))  # type: ignore[arg-type]
            elif pump.counters.received == 3 and not pump.queues[short].locks._asked:  # the renewal was answered
                manual.advance(0.5)
    (left,) = (outcome for outcome in outcomes if outcome.result is Result.LEFT)
    assert (left.message_id, "lock had expired, or was about to" in left.reason) == ("1", True)
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (2, 0)
    assert manual.active("orders") == 2


def test_the_locks_of_all_messages_in_flight_are_renewed_however_short_they_are(
    manual: ManualTimeNamespaces,
) -> None:  # S6, P3
    manual.queue("slow")
    short = short_locks(manual)
    manual.put(*(aliased(f"{i}", "slow") for i in range(1400)), queue=short)
    manual.fault(Fault(Action.DELAY, Operation.SEND, "slow", seconds=8))
    with manual.pump(replace(PATIENT, first_window=1400), queue=short) as (pump, _):
        for _ in manual.turns(pump):
            if pump.counters.received == 1400 and not pump.queues[short].locks._asked:  # the renewal was answered
                manual.advance(0.5)
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (1400, 0)
    assert (manual.active(short, "contoso-dr"), manual.active("slow")) == (0, 1400)


def test_a_message_that_is_being_completed_does_not_spoil_the_renewal_of_the_others(
    manual: ManualTimeNamespaces,
) -> None:  # S6
    """It has no lock any more, which makes the service refuse a whole request: to ask in halves takes time."""
    manual.queue("orders")
    manual.queue("slow")
    short = short_locks(manual)
    manual.put(aliased("first", "orders"), *(aliased(f"{i}", "slow") for i in range(8)), queue=short)
    manual.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=2.4))
    manual.fault(Fault(Action.DELAY, Operation.SEND, "slow", seconds=4))
    settled = manual.fault(Fault(Action.LOSE_REPLY, Operation.SETTLE, short, times=1), "contoso-dr")
    requests = manual.fault(Fault(Action.DELAY, Operation.MANAGE, f"{short}*"), "contoso-dr")
    with manual.running(queue=short) as (pump, _, thread):
        manual.wait(
            lambda: pump.counters.received == 9 and awaits_answer(pump, "orders") and awaits_answer(pump, "slow")
        )
        manual.advance(2.4)
        manual.wait(lambda: settled.struck == 1)
        manual.advance(0.2)
        manual.wait(lambda: requests.struck == 1 and not pump.queues[short].locks._asked)
        locked, asked = locked_since(pump, short), requests.struck
        finish(manual, pump, thread)
    assert (sorted(locked.values()), asked) == ([1, 8], 1)


def test_what_was_completed_since_a_renewal_was_requested_is_skipped_when_it_is_retried(
    manual: ManualTimeNamespaces,
) -> None:  # S6
    manual.queue("orders")
    manual.queue("slow")
    short = short_locks(manual)
    manual.put(aliased("first", "orders"), *(aliased(f"{i}", "slow") for i in range(8)), queue=short)
    sends = [
        manual.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=2.7)),
        manual.fault(Fault(Action.DELAY, Operation.SEND, "slow", seconds=4)),
    ]
    late = manual.fault(Fault(Action.DELAY, Operation.MANAGE, f"{short}*", seconds=0.4, times=1), "contoso-dr")
    requests = manual.fault(Fault(Action.DELAY, Operation.MANAGE, f"{short}*"), "contoso-dr")
    with manual.running(queue=short) as (pump, _, thread):
        manual.wait(lambda: pump.counters.received == 9 and all(send.struck for send in sends))
        manual.advance(2.6)
        manual.wait(lambda: late.struck == 1)
        manual.advance(0.1)
        manual.wait(lambda: pump.counters.forwarded == 1)
        manual.advance(0.3)
        manual.wait(lambda: requests.struck == 1 and not pump.queues[short].locks._asked)
        locked, asked = locked_since(pump, short), requests.struck
        finish(manual, pump, thread)
    assert (sorted(locked.values()), asked) == ([8], 1)


class ManagementNode:
    """The requests for locks that a keeper makes: how many locks each is for."""

    def __init__(self, locks: LockKeeper) -> None:
        self.error = None
        self.asked: list[int] = []
        self._answers: list[Callable[[SimpleNamespace], None]] = []
        locks._link = self  # type: ignore[assignment]

    def work(self) -> None: ...

    def ask(self, _: object, body: Map, answered: Callable[[SimpleNamespace], None]) -> None:
        self.asked.append(len(cast(Any, body.get("lock-tokens")).items))
        self._answers.append(answered)

    def answer(self, status: int = 200, condition: str = "") -> None:
        """Answers the oldest request that has no answer."""
        self._answers.pop(0)(SimpleNamespace(status=status, condition=condition, description=""))


def received(at: list[float], completing: set[Arrival] | None = None) -> list[Arrival]:
    """Messages that were received at these times."""
    receiver = SimpleNamespace(settling_since=lambda arrival: 1.0 if arrival in (completing or ()) else None)
    return [Arrival(receiver, number, bytes(16), b"", when, when) for number, when in enumerate(at)]


def keep(locks: LockKeeper, now: float) -> None:
    locks.keep(SimpleNamespace(), now)  # type: ignore[arg-type]


def test_what_is_being_completed_is_skipped_when_a_refused_renewal_is_retried() -> None:  # S6
    """On a slow network each new request would have another such message in it, until all locks have ended."""
    completing: set[Arrival] = set()
    arrivals = received([0.0] * 8, completing)
    locks = LockKeeper(ManagementLinks("backlog"), 5.0, arrivals)
    node = ManagementNode(locks)
    keep(locks, 2.6)
    completing.update(arrivals[:3])
    node.answer(410, "com.microsoft:message-lock-lost")
    assert node.asked == [8, 5]


def test_locks_are_renewed_together() -> None:  # S6
    """A message comes each second. A request each second would use up the credits of a throttled namespace."""
    arrivals = received([float(number) for number in range(120)])
    in_flight: list[Arrival] = []
    locks = LockKeeper(ManagementLinks("backlog"), 60.0, in_flight)
    node = ManagementNode(locks)
    for now in range(120):
        in_flight.append(arrivals[now])
        keep(locks, float(now))
        while len(node._answers):
            node.answer()
    assert all(119 - arrival.locked_at <= 31 for arrival in arrivals)
    assert len(node.asked) <= 7


def test_after_a_busy_answer_no_renewal_is_requested_within_ten_seconds() -> None:  # S5, S6
    arrivals = received([0.0, 3.0, 6.0])
    locks = LockKeeper(ManagementLinks("backlog"), 60.0, arrivals)
    node = ManagementNode(locks)
    keep(locks, 31.0)
    node.answer(503, "com.microsoft:server-busy")
    asked_at = []
    for tenth in range(310, 500):
        before = len(node.asked)
        keep(locks, tenth / 10)
        asked_at += [tenth / 10] * (len(node.asked) - before)
    assert asked_at == [pytest.approx(41.0, abs=0.2)]
    assert node.asked == [3, 3]


@pytest.mark.parametrize("first_window", [3, 200])
def test_a_message_whose_lock_expired_in_the_socket_while_the_process_was_paused_is_not_sent(
    manual: ManualTimeNamespaces, first_window: int
) -> None:  # S6
    """With credit left the broker has delivered it again, with a new lock; without credit it has not."""
    manual.queue("orders")
    short = short_locks(manual)
    with manual.pump(replace(PATIENT, first_window=first_window), queue=short) as (pump, outcomes):
        turns = pump.turns()
        while manual.credit(short) == 0 or not pump.is_primary_connected:
            next(turns)
        manual.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(3)), queue=short)
        manual.wait(lambda: manual.received(short) == 3)
        manual.advance(6)
        while pump.counters.forwarded < 3:
            next(turns)
        pump.stop()
        list(turns)
    assert [outcome.result for outcome in outcomes] == [Result.FORWARDED] * 3
    assert (pump.counters.possible_duplicates, manual.active("orders")) == (0, 3)
    assert manual.active(short, "contoso-dr") == 0


def test_the_age_of_a_lock_counts_from_before_a_short_standstill(manual: ManualTimeNamespaces) -> None:  # S6
    short = short_locks(manual)
    manual.queue("orders")
    manual.fault(Fault(Action.HANG, Operation.ATTACH, "orders"))
    with manual.pump(queue=short) as (pump, _):
        turns = pump.turns()
        while manual.credit(short) == 0 or not pump.is_primary_connected:
            next(turns)
        manual.put(aliased("x", "orders"), queue=short)
        manual.wait(lambda: manual.received(short) == 1)
        before = manual.now()
        manual.advance(2)
        while pump.counters.received == 0:
            next(turns)
        assert locked_since(pump, short) == {before: 1}
        turns.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not known yet"])
def test_a_slow_pump_releases_nothing_whose_lock_lasts_much_longer(
    manual: ManualTimeNamespaces, is_known: bool
) -> None:  # S6, S7
    """A process with little CPU may need seconds for each turn, from the first one on. It must go on all the same."""
    manual.queue("orders")
    with manual.pump() as (pump, outcomes):
        turns = pump.turns()
        if is_known:
            manual.put(aliased("x", "orders"))
        while pump.counters.forwarded < is_known or manual.credit(BACKLOG) == 0 or not pump.is_primary_connected:
            next(turns)
        manual.put(*(aliased("x", "orders") for _ in range(3)))
        manual.wait(lambda: manual.received(BACKLOG) == is_known + 3)
        manual.advance(6)
        while pump.counters.forwarded < is_known + 3:
            next(turns)
        pump.stop()
        list(turns)
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    assert manual.received(BACKLOG) == is_known + 3


def test_a_link_that_does_not_confirm_the_end_of_its_credit_is_replaced(manual: ManualTimeNamespaces) -> None:  # S6
    short = short_locks(manual)
    manual.queue("orders")
    with manual.pump(PATIENT, queue=short) as (pump, outcomes):
        turns = pump.turns()
        while manual.credit(short) == 0 or not pump.is_primary_connected:
            next(turns)
        (link,) = manual.secondary.entity(short).links
        manual.emulator.call(lambda: setattr(link, "on_flow", lambda _: None))  # it hears nothing any more
        manual.put(aliased("x", "orders"), queue=short)
        manual.wait(lambda: manual.received(short) == 1)
        manual.advance(6)
        while pump.counters.forwarded < 1:
            next(turns)
            manual.advance(1)
        pump.stop()
        list(turns)
    assert [outcome.result for outcome in outcomes][-1] is Result.FORWARDED


def awaits_answer(pump: Pump, destination: str) -> bool:
    sender = pump.destinations[destination]._sender
    return sender is not None and bool(sender.in_flight)


def finish(namespaces: ManualTimeNamespaces, pump: Pump, thread: Thread) -> None:
    """Stops a pump, and lets time pass until it has ended."""
    pump.stop()
    while thread.is_alive():
        namespaces.advance(1)
        thread.join(0.05)


def locked_since(pump: Pump, queue: str) -> Counter[float]:
    """How many messages are in flight, by the time when their lock last began."""
    return Counter(arrival.locked_at for arrival in pump.queues[queue].unsettled.transfers)


def test_a_completion_that_a_busy_service_refuses_is_retried_after_the_ten_seconds(  # S5, S6
    manual: ManualTimeNamespaces,
) -> None:
    manual.queue("orders")
    busy = "com.microsoft:server-busy"
    manual.fault(Fault(Action.ERROR, Operation.SETTLE, BACKLOG, condition=busy, times=3), "contoso-dr")
    again = manual.fault(Fault(Action.ERROR, Operation.MANAGE, f"{BACKLOG}*", condition=busy, times=1), "contoso-dr")
    manual.put(*(aliased(f"{i}", "orders") for i in range(10)))
    began, quiet = manual.now(), 0.0
    with manual.pump() as (pump, outcomes):
        for _ in manual.turns(pump):
            if again.struck and not quiet:
                quiet = manual.now() - began
            if pump.counters.forwarded == 7:
                manual.advance(1)
    assert quiet >= 10
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (10, 0)
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    assert manual.active(BACKLOG, "contoso-dr") == 0


def test_one_lost_lock_does_not_keep_the_others_from_being_completed(manual: ManualTimeNamespaces) -> None:  # D10
    """Completions that were sent before the connection broke are repeated together with those that were not sent."""
    manual.queue("orders")
    manual.put(*(aliased(f"{i}", "orders") for i in range(60)))
    slow = manual.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=1.0, times=1))
    is_lost = False
    with manual.pump() as (pump, _):
        for _ in manual.turns(pump):
            if is_lost:
                manual.advance(0.6)
            elif slow.struck:
                is_lost = True
                manual.emulator.call(lambda: lose_link_and_one_lock(manual))
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (61, 1)
    assert manual.active("orders") == 61
    assert manual.active(BACKLOG, "contoso-dr") == 0


def lose_link_and_one_lock(namespaces: TwoNamespaces) -> None:
    line = namespaces.secondary.message_queue(BACKLOG)
    for link in list(namespaces.secondary.entity(BACKLOG).links):
        link.end("amqp:link:detach-forced", "for a test")  # type: ignore[attr-defined]
    token = line.peek(0, 1)[0].lock_token
    assert token is not None
    line.lose_lock(token)


@pytest.mark.parametrize("action", [Action.LOSE_REPLY, Action.HANG])
def test_a_window_of_settlements_without_an_answer_stops_a_queue_for_seconds_only(
    manual: ManualTimeNamespaces, action: Action
) -> None:  # S6, D10
    """The connection is alive. Either the messages are completed and only the answers are lost, or they are not."""
    manual.queue("orders")
    manual.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(120)))
    fault = manual.fault(Fault(action, Operation.SETTLE, BACKLOG, times=50), "contoso-dr")
    began = manual.now()
    with manual.pump(replace(PATIENT, window=50, first_window=50)) as (pump, outcomes):
        for _ in manual.turns(pump):
            if pump.counters.in_flight == 50 and fault.struck == 50 and not pump.queues[BACKLOG].locks._asked:
                manual.advance(3)
    assert manual.now() - began < LATEST_ANSWER / 2
    assert pump.counters.possible_duplicates == (50 if action is Action.LOSE_REPLY else 0)
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    assert (manual.active(BACKLOG, "contoso-dr"), manual.active("orders")) == (0, 120)


def test_a_late_answer_to_a_settlement_changes_nothing(manual: ManualTimeNamespaces) -> None:  # S6
    manual.queue("orders")
    manual.put(aliased("x", "orders"))
    manual.fault(Fault(Action.DELAY, Operation.SETTLE, BACKLOG, seconds=SETTLED_WITHIN + 5, times=1), "contoso-dr")
    manual.fault(Fault(Action.HANG, Operation.MANAGE, f"{BACKLOG}*"), "contoso-dr")
    with manual.pump() as (pump, outcomes):
        turns = pump.turns()
        while not outcomes:
            next(turns)
            if pump.counters.in_flight:
                manual.advance(4)
        pump.stop()
        list(turns)
    assert [outcome.result for outcome in outcomes] == [Result.FORWARDED]
    assert pump.counters.possible_duplicates == 1
    assert manual.active(BACKLOG, "contoso-dr") == 0
