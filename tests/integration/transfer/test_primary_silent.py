"""A primary whose connection is lost, and that then accepts connections and says nothing (S7, D16)."""

from __future__ import annotations

from functools import partial

from syphon.emulator import Action, Fault, Operation, Outage
from syphon.time_budget import FIRST_OPENING_WITHIN
from syphon.transfer.pump import Ended
from tests.integration.transfer.conftest import BACKLOG, ManualTimeNamespaces, aliased


def test_messages_in_flight_are_released_when_a_silent_primary_has_had_its_time(  # S7, D16
    manual: ManualTimeNamespaces,
) -> None:
    """No try has failed yet, so there is no error. Without this the messages would stay locked until one fails."""
    manual.queue("orders")
    manual.fault(Fault(Action.DELAY, Operation.ATTACH, "orders", seconds=600))  # nothing is sent
    manual.put(*(aliased("x", "orders") for _ in range(10)))
    faults = manual.primary.faults
    with manual.pump() as (pump, outcomes):
        turns = pump.turns()
        while pump.counters.received < 10:
            next(turns)
        for outage in (Outage.DROP, Outage.HANG):
            manual.emulator.call(partial(faults.begin_outage, outage))
        while pump.is_primary_connected:
            next(turns)
        for _ in range(4):
            manual.advance(FIRST_OPENING_WITHIN / 4)
            next(turns)
        assert (pump.queues[BACKLOG].ended, pump.counters.left) == (None, 0)
        manual.advance(0.1)
        next(turns)
        assert pump._sides.primary.error is None
        assert (pump.queues[BACKLOG].ended, pump.counters.left) == (Ended.PRIMARY_UNREACHABLE, 10)
        manual.wait(lambda: manual.locked() == 0)
    assert {outcome.reason for outcome in outcomes} == {"The primary is not connected."}
