"""A link that is lost in the middle: what has arrived is completed in another way, and is no duplicate."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from syphon.bus.connection import Connection
from syphon.bus.namespace import Namespace
from syphon.emulator import Action, Fault, Operation, Outage
from syphon.model.errors import DestinationUnreachable
from syphon.model.outcome import Outcome
from syphon.transfer.pump import Pump
from tests.transfer.conftest import BACKLOG, PATIENT, Bench, StillBench, aliased


def test_what_had_arrived_when_its_link_was_lost_is_completed_over_the_management_node(  # D10
    still: StillBench,
) -> None:
    still.queue("orders")
    slow = still.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=1.0))
    still.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    is_lost = False
    with still.pump() as (pump, outcomes):
        for _ in still.turns(pump):
            if is_lost:
                still.advance(0.6)
            elif slow.struck:
                is_lost = True
                detach(still)
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (50, 0)
    assert {outcome.result for outcome in outcomes} == {"forwarded"}
    assert still.active(BACKLOG, "contoso-dr") == 0
    assert still.active("orders") == 50


def test_what_was_not_sent_when_its_link_was_lost_is_left_and_told(bench: Bench) -> None:  # D10
    bench.put(*(aliased(f"{i}", "orders") for i in range(20)))
    opened = threading.Event()

    def connect() -> Connection:
        opened.wait(30)
        raise DestinationUnreachable("contoso: too late")

    secondary, primary = bench.reach("contoso-dr", BACKLOG), Namespace("contoso", connect)
    outcomes: list[Outcome] = []
    pump = Pump(BACKLOG, secondary, primary, outcomes.append, PATIENT)
    is_lost = False
    for _ in pump.turns():
        if pump.counters.received == 20 and not is_lost:
            is_lost = True
            detach(bench)
        if pump.counters.left == 20:
            assert (pump.counters.in_hand, pump.counters.possible_duplicates) == (0, 0)
            pump.stop()
    opened.set()
    for namespace in (secondary, primary):
        namespace.close()
    assert all("amqp:link:detach-forced: for a test" in outcome.reason for outcome in outcomes)
    assert bench.active(BACKLOG, "contoso-dr") == 20


def test_a_completion_that_was_never_confirmed_is_a_possible_duplicate(bench: Bench) -> None:  # D10
    bench.queue("orders")
    bench.fault(Fault(Action.LOSE_REPLY_AND_DROP, Operation.SETTLE, BACKLOG, times=1), "contoso-dr")
    bench.put(aliased("x", "orders", message_id="x"))
    pump, outcomes = bench.run()
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (1, 1)
    assert outcomes[0].possible_duplicate
    assert bench.active(BACKLOG, "contoso-dr") == 0


def test_what_has_arrived_and_cannot_be_completed_before_its_lock_ends_is_a_possible_duplicate(  # D10, S6
    still: StillBench,
) -> None:
    still.queue("orders")
    slow = still.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.5))
    still.put(aliased("x", "orders", message_id="x"))
    is_lost = False
    with still.pump() as (pump, outcomes):
        for _ in pump.turns():
            if pump.counters.forwarded:
                assert (pump.counters.in_hand, pump.counters.possible_duplicates) == (0, 1)
                still.emulator.call(still.secondary.faults.end_outage)
                pump.stop()
            elif pump._completions._orphans:  # the primary has it
                still.advance(61)
            elif slow.struck and not is_lost:
                is_lost = True
                still.emulator.call(lambda: still.secondary.faults.begin_outage(Outage.REFUSE))
                still.advance(0.5)
    assert outcomes[0].reason.startswith("Its lock was lost with its link.")
    assert still.active("orders") == 1


@pytest.mark.parametrize("operation", [Operation.ATTACH, Operation.RECEIVE])
def test_a_link_that_breaks_again_and_again_is_not_opened_without_a_pause(  # S9
    still: StillBench, operation: Operation
) -> None:
    still.put(aliased("x", "orders"))
    broken = still.fault(Fault(Action.DETACH, operation, BACKLOG), "contoso-dr")
    with still.pump() as (pump, _):
        turns = pump.turns()
        for struck, pause in ((2, 1), (3, 2), (4, 4)):  # at once, and after pauses that double
            until_lost(pump, turns, broken, struck)
            still.advance(pause)
        assert pump.counters.received == 0


def until_lost(pump: Pump, turns: Iterator[None], breaking: Fault, times: int) -> None:
    """Turns of a pump until its link was broken so many times, and a few more, in which it does not try again."""
    while breaking.struck < times or pump._intake._receiver is not None:
        next(turns)
    for _ in range(5):
        next(turns)
    assert breaking.struck == times


def test_a_queue_that_is_busy_is_left_alone_before_it_is_received_from_again(still: StillBench) -> None:  # S5
    still.queue("orders")
    busy = Fault(Action.DETACH, Operation.RECEIVE, BACKLOG, condition="com.microsoft:server-busy")
    still.fault(busy, "contoso-dr")
    still.put(aliased("x", "orders"))
    with still.pump() as (pump, _):
        turns = pump.turns()
        until_lost(pump, turns, busy, 1)
        still.advance(9.9)
        until_lost(pump, turns, busy, 1)
        still.advance(0.1)
        until_lost(pump, turns, busy, 2)
        assert pump.counters.received == 0
    assert still.active(BACKLOG, "contoso-dr") == 1


def detach(bench: Bench) -> None:
    """The service detaches who receives from the backlog queue."""

    def end() -> None:
        for link in list(bench.secondary.entity(BACKLOG).links):
            link.end("amqp:link:detach-forced", "for a test")  # type: ignore[attr-defined]

    bench.emulator.call(end)


def test_a_link_that_ends_for_a_reason_nobody_knows_is_opened_again(bench: Bench) -> None:  # S4
    """The service has said nothing about a message: none goes to the dead letters for it."""
    bench.queue("orders")
    strange = Fault(Action.DETACH, Operation.SEND, "orders", condition="com.microsoft:something-new", times=1)
    bench.fault(strange)
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(20)))
    pump, _ = bench.run()
    assert strange.struck == 1
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (20, 0)
