"""While the primary is not connected, nothing is received, and nothing stays locked (S7, D16)."""

from __future__ import annotations

from dataclasses import replace

from syphon.emulator import Action, Fault, Kind, Operation, Outage
from syphon.model.outcomes import Result
from syphon.time_budget import UNREACHABLE_AFTER
from syphon.transfer.pump import Ended
from tests.integration.transfer.conftest import BACKLOG, PATIENT, ManualTimeNamespaces, TwoNamespaces, aliased


def begin_outage(namespaces: TwoNamespaces, outage: Outage = Outage.REFUSE) -> None:
    namespaces.emulator.call(lambda: namespaces.primary.faults.begin_outage(outage))


def test_nothing_is_received_and_the_service_ends_after_five_seconds(manual: ManualTimeNamespaces) -> None:  # S7, D16
    manual.put(*(aliased("x", "orders") for _ in range(20)))
    begin_outage(manual)
    with manual.pump() as (pump, outcomes):
        turns = pump.turns()
        while not (manual.links() and pump._sides.primary.error is not None):
            next(turns)
        for _ in range(20):
            next(turns)
        assert manual.credit() == 0
        assert pump.queues[BACKLOG].ended is None
        manual.advance(UNREACHABLE_AFTER + 0.1)
        list(turns)
    assert pump.queues[BACKLOG].ended is Ended.PRIMARY_UNREACHABLE
    assert outcomes == []
    assert manual.emulator.call(lambda: manual.secondary.counters.of(BACKLOG, Kind.RECEIVE)) == 0


def test_what_was_not_sent_when_the_primary_became_unreachable_can_be_received_at_once(  # S7, D16
    manual: ManualTimeNamespaces,
) -> None:
    manual.queue("orders")
    manual.fault(Fault(Action.DELAY, Operation.ATTACH, "orders", seconds=60))  # nothing is sent
    manual.put(*(aliased("x", "orders") for _ in range(50)))
    with manual.pump() as (pump, outcomes):
        turns = pump.turns()
        while pump.counters.received < 50:
            next(turns)
        begin_outage(manual)
        while pump.counters.left < 50:
            next(turns)
            manual.advance(0.05)
        assert (manual.locked(), manual.credit()) == (0, 0)
        assert not pump.is_primary_connected
        manual.advance(UNREACHABLE_AFTER)
        list(turns)
    assert pump.queues[BACKLOG].ended is Ended.PRIMARY_UNREACHABLE
    assert {outcome.result for outcome in outcomes} == {Result.LEFT}
    assert pump.counters.received == 50


def test_what_was_sent_and_not_answered_is_released_as_a_possible_duplicate(  # D10, D16
    manual: ManualTimeNamespaces,
) -> None:
    manual.queue("orders")
    silent = manual.fault(Fault(Action.HANG, Operation.SEND, "orders"))
    manual.put(*(aliased("x", "orders") for _ in range(50)))
    with manual.pump() as (pump, outcomes):
        turns = pump.turns()
        while not silent.struck or pump.counters.received < 50:
            next(turns)
        begin_outage(manual)
        while pump.counters.left < 50:
            next(turns)
            manual.advance(0.05)
        assert manual.locked() == 0
        pump.stop()
        list(turns)
    assert sum(outcome.possible_duplicate for outcome in outcomes) == pump.counters.possible_duplicates > 0


def test_the_pump_goes_on_when_the_primary_is_back_in_time(manual: ManualTimeNamespaces) -> None:  # S7
    manual.queue("orders")
    with manual.pump() as (pump, _):
        turns = pump.turns()
        while not manual.credit():
            next(turns)
        begin_outage(manual)
        while manual.credit():
            next(turns)
        manual.put(*(aliased("x", "orders") for _ in range(20)))
        manual.emulator.call(manual.primary.faults.end_outage)
        while pump.counters.forwarded < 20:
            next(turns)
            manual.advance(0.01)
        pump.stop()
        list(turns)
    assert (pump.counters.received, pump.counters.left) == (20, 0)


def test_a_pump_that_lingers_receives_no_message_while_the_primary_is_unreachable(
    manual: ManualTimeNamespaces,
) -> None:  # D16
    manual.put(aliased("x", "orders"))
    begin_outage(manual)
    with manual.pump(replace(PATIENT, linger=60.0)) as (pump, _):
        turns = pump.turns()
        next(turns)
        manual.advance(UNREACHABLE_AFTER + 0.1)
        for _ in range(2):
            while pump.queues[BACKLOG].is_served:
                next(turns)
            assert pump.queues[BACKLOG].ended is Ended.PRIMARY_UNREACHABLE
            pump.serve(BACKLOG)
        pump.stop()
        list(turns)
    assert pump.counters.received == 0
