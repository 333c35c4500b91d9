"""How a pump ends: what it did not forward can be had again at once, and it says why it ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syphon.amqp import data_section
from syphon.backlog import to_backlog
from syphon.bus.connection import Connection
from syphon.bus.namespace import Namespace, Status
from syphon.emulator import Action, Fault, Operation
from syphon.model.errors import NotAuthorized
from syphon.transfer.batches import MOST
from syphon.transfer.destinations import UNDER_WAY
from syphon.transfer.pump import Ended, Pump
from tests.transfer.conftest import BACKLOG, PATIENT, Bench, StillBench, aliased


def test_what_a_stopped_pump_did_not_forward_can_be_had_at_once(still: StillBench) -> None:  # C2
    still.queue("orders")
    still.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=2.0))
    still.put(*(aliased(f"{i}", "orders") for i in range(1900)))
    with still.pump(replace(PATIENT, window=1900, grace=50.0)) as (pump, _):
        for _ in pump.turns():
            if pump.stopping:
                still.advance(0.25)
            elif pump.counters.received > 1700:  # more than may be sent before the first answer
                pump.stop()
    assert still.locked() == 0
    assert pump.counters.received == pump.counters.forwarded + pump.counters.left
    assert pump.counters.forwarded <= UNDER_WAY * 1900 + MOST, "what was not sent yet is given back, and not sent first"
    assert still.active("orders") == pump.counters.forwarded
    assert still.active(BACKLOG, "contoso-dr") == 1900 - pump.counters.forwarded
    assert (pump.counters.ended, pump.counters.possible_duplicates) == (Ended.STOPPED, 0)


def test_what_is_on_its_way_while_it_stops_is_given_back_too(bench: Bench) -> None:  # C2
    bench.queue("orders")
    with bench.pump() as (pump, _):
        for _ in pump.turns():
            if bench.credit() > 0 and not pump.stopping:
                bench.smuggle(to_backlog(data_section(b"x"), "orders"))
                assert bench.locked() == 1
                pump.stop()  # it has left the service, and the pump has not read it yet
    assert bench.locked() == 0
    assert bench.active(BACKLOG, "contoso-dr") == 1
    assert (pump.counters.received, pump.counters.left) == (1, 1)


def test_after_its_lease_nothing_stays_locked_and_it_says_that_there_is_more(bench: Bench) -> None:
    bench.queue("orders")
    bench.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.2))
    bench.put(*(aliased(f"{i}", "orders") for i in range(1000)))
    pump, _ = bench.run(replace(PATIENT, lease=1.5, window=100))
    assert (pump.counters.ended, pump.counters.busy) == (Ended.LEASE, True)
    assert bench.locked() == 0
    assert bench.active(BACKLOG, "contoso-dr") == 1000 - pump.counters.forwarded > 0


def test_at_its_limit_it_finishes_what_it_has_and_takes_no_more(bench: Bench) -> None:
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(300)))
    pump, _ = bench.run(replace(PATIENT, limit=120))
    assert (pump.counters.received, pump.counters.forwarded, pump.counters.ended) == (120, 120, Ended.LIMIT)
    assert bench.locked() == 0


def test_a_quiet_queue_ends_it_and_there_is_no_more_to_do(still: StillBench) -> None:
    still.queue("orders")
    still.put(aliased("x", "orders"))
    with still.pump() as (pump, outcomes):
        for _ in pump.turns():
            if pump.counters.forwarded == 1:
                still.advance(PATIENT.quiet + 0.1)
    assert (pump.counters.ended, pump.counters.busy) == (Ended.QUIET, False)
    assert pump.counters.bytes_forwarded == outcomes[0].size > 0


def test_messages_whose_destination_waits_stay_locked_when_it_stops(bench: Bench) -> None:  # D5
    bench.put(aliased("x", "orders"))
    bench.queue("orders")
    bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy"))
    pump, _ = bench.run()
    assert pump.counters.left == 1
    assert bench.locked() == 1


def test_what_was_sent_and_not_answered_when_it_ends_is_told_as_a_possible_duplicate(bench: Bench) -> None:  # D10
    bench.queue("orders")
    silent = bench.fault(Fault(Action.LOSE_REPLY, Operation.SEND, "orders", times=1))
    bench.put(aliased("x", "orders"))
    with bench.pump(replace(PATIENT, grace=0.5)) as (pump, outcomes):
        for _ in pump.turns():
            if silent.struck:
                pump.stop()
    assert bench.active("orders") == bench.active(BACKLOG, "contoso-dr") == 1
    assert (pump.counters.left, pump.counters.possible_duplicates) == (1, 1)
    assert outcomes[0].possible_duplicate


def test_without_a_primary_it_gives_back_what_it_has_and_tells_the_fault(bench: Bench) -> None:  # C2, C3
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(50)))

    def refused() -> Connection:
        bench.wait(lambda: pump.counters.received == 50)
        raise NotAuthorized("contoso: the key was refused")

    secondary, primary = bench.reach("contoso-dr", BACKLOG), Namespace("contoso", refused)
    pump = Pump(BACKLOG, secondary, primary, lambda outcome: None, PATIENT)  # noqa: ARG005
    with pytest.raises(NotAuthorized, match="the key was refused"):
        pump.run()
    secondary.close()
    assert (pump.counters.received, pump.counters.left) == (50, 50)
    assert bench.locked() == 0


def test_a_key_that_the_secondary_does_not_take_any_more_faults_it(bench: Bench) -> None:  # C3
    secondary, primary = bench.reach("contoso-dr", BACKLOG), bench.reach("contoso", "")
    bench.wait(lambda: secondary.connection() is not None and primary.connection() is not None)
    bench.emulator.call(bench.secondary.access.policies.clear)  # it is rotated: the next token is refused
    pump = Pump(BACKLOG, secondary, primary, lambda outcome: None, PATIENT)  # noqa: ARG005
    with pytest.raises(NotAuthorized, match=f"'{BACKLOG}' was refused"):
        pump.run()
    assert secondary.status is Status.FAULTED
    secondary.close()
    primary.close()
