"""A link is lost during a transfer: forwarded messages are completed over the management node, without duplicates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from syphon.emulator import Action, Fault, Operation, Outage
from syphon.transfer.pump import Pump
from tests.integration.transfer.conftest import BACKLOG, ManualTimeNamespaces, TwoNamespaces, aliased


def test_what_had_arrived_when_its_link_was_lost_is_completed_over_the_management_node(  # D10
    manual: ManualTimeNamespaces,
) -> None:
    manual.queue("orders")
    slow = manual.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=1.0))
    manual.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    is_lost = False
    with manual.pump() as (pump, outcomes):
        for _ in manual.turns(pump):
            if is_lost:
                manual.advance(0.6)
            elif slow.struck:
                is_lost = True
                detach(manual)
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (50, 0)
    assert {outcome.result for outcome in outcomes} == {"forwarded"}
    assert manual.active(BACKLOG, "contoso-dr") == 0
    assert manual.active("orders") == 50


def test_what_was_not_sent_when_its_link_was_lost_is_left_in_the_backlog_and_reported(
    namespaces: TwoNamespaces,
) -> None:  # D10
    namespaces.queue("orders")
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(20)))
    namespaces.fault(Fault(Action.DELAY, Operation.ATTACH, "orders", seconds=60))  # nothing is sent
    is_lost = False
    with namespaces.pump() as (pump, outcomes):
        for _ in pump.turns():
            if pump.counters.received == 20 and not is_lost:
                is_lost = True
                detach(namespaces)
            if pump.counters.left == 20:
                assert (pump.counters.in_flight, pump.counters.possible_duplicates) == (0, 0)
                pump.stop()
    assert len(outcomes) == 20
    assert all("amqp:link:detach-forced: for a test" in outcome.reason for outcome in outcomes)
    assert namespaces.active(BACKLOG, "contoso-dr") == 20


def test_a_completion_that_was_never_confirmed_is_a_possible_duplicate(namespaces: TwoNamespaces) -> None:  # D10
    namespaces.queue("orders")
    namespaces.fault(Fault(Action.LOSE_REPLY_AND_DROP, Operation.SETTLE, BACKLOG, times=1), "contoso-dr")
    namespaces.put(aliased("x", "orders", message_id="x"))
    pump, outcomes = namespaces.run()
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (1, 1)
    assert outcomes[0].possible_duplicate
    assert namespaces.active(BACKLOG, "contoso-dr") == 0


def test_what_has_arrived_and_cannot_be_completed_before_its_lock_ends_is_a_possible_duplicate(  # D10, S6
    manual: ManualTimeNamespaces,
) -> None:
    manual.queue("orders")
    slow = manual.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.5))
    manual.put(aliased("x", "orders", message_id="x"))
    is_lost = False
    with manual.pump() as (pump, outcomes):
        for _ in pump.turns():
            if pump.counters.forwarded:
                assert (pump.counters.in_flight, pump.counters.possible_duplicates) == (0, 1)
                manual.emulator.call(manual.secondary.faults.end_outage)
                pump.stop()
            elif pump.queues[BACKLOG].completions._orphans:  # the primary has it
                manual.advance(61)
            elif slow.struck and not is_lost:
                is_lost = True
                manual.emulator.call(lambda: manual.secondary.faults.begin_outage(Outage.REFUSE))
                manual.advance(0.5)
    assert outcomes[0].reason.startswith("Its completion was not confirmed, and then its lock was lost.")
    assert manual.active("orders") == 1


@pytest.mark.parametrize("operation", [Operation.ATTACH, Operation.RECEIVE])
def test_a_link_that_breaks_again_and_again_is_not_opened_without_a_pause(  # S9
    manual: ManualTimeNamespaces, operation: Operation
) -> None:
    manual.put(aliased("x", "orders"))
    broken = manual.fault(Fault(Action.DETACH, operation, BACKLOG), "contoso-dr")
    with manual.pump() as (pump, _):
        turns = pump.turns()
        for struck, pause in ((2, 1), (3, 2), (4, 4)):  # at once, and after pauses that double
            until_lost(pump, turns, broken, struck)
            manual.advance(pause)
        assert pump.counters.received == 0


def until_lost(pump: Pump, turns: Iterator[None], breaking: Fault, times: int) -> None:
    """Turns a pump until its link was broken so many times, and a few turns more, in which it must not retry."""
    while breaking.struck < times or pump.queues[BACKLOG].intake._receiver is not None:
        next(turns)
    for _ in range(5):
        next(turns)
    assert breaking.struck == times


def test_a_queue_that_is_busy_is_left_alone_before_it_is_received_from_again(
    manual: ManualTimeNamespaces,
) -> None:  # S5
    manual.queue("orders")
    busy = Fault(Action.DETACH, Operation.RECEIVE, BACKLOG, condition="com.microsoft:server-busy")
    manual.fault(busy, "contoso-dr")
    manual.put(aliased("x", "orders"))
    with manual.pump() as (pump, _):
        turns = pump.turns()
        until_lost(pump, turns, busy, 1)
        manual.advance(9.9)
        until_lost(pump, turns, busy, 1)
        manual.advance(0.1)
        until_lost(pump, turns, busy, 2)
        assert pump.counters.received == 0
    assert manual.active(BACKLOG, "contoso-dr") == 1


def detach(namespaces: TwoNamespaces) -> None:
    """The service detaches the receivers of the backlog queue."""

    def end() -> None:
        for link in list(namespaces.secondary.entity(BACKLOG).links):
            link.end("amqp:link:detach-forced", "for a test")  # type: ignore[attr-defined]

    namespaces.emulator.call(end)


def test_a_link_that_ends_for_an_unknown_reason_is_opened_again(namespaces: TwoNamespaces) -> None:  # S4
    """The service has said nothing about a message: none is dead-lettered."""
    namespaces.queue("orders")
    strange = Fault(Action.DETACH, Operation.SEND, "orders", condition="com.microsoft:something-new", times=1)
    namespaces.fault(strange)
    namespaces.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(20)))
    pump, _ = namespaces.run()
    assert strange.struck == 1
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (20, 0)
