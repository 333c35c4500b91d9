"""How a pump ends: what it did not forward can be had again at once, and it says why it ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syphon.bus.connection import Connection
from syphon.bus.namespace import Namespace
from syphon.emulator import Action, Fault, Operation
from syphon.errors import NotAuthorized
from syphon.transfer.pump import Ended, Pump

from .conftest import BACKLOG, QUICK, Bench, aliased


def test_what_a_stopped_pump_did_not_forward_can_be_had_at_once(bench: Bench) -> None:  # C2
    bench.queue("orders")
    bench.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.2))
    bench.put(*(aliased(f"{i}", "orders") for i in range(3000)))
    with bench.running() as (pump, _, thread):
        bench.wait(lambda: pump.tally.forwarded > 0)
        pump.stop()
        thread.join(30)
    assert bench.locked() == 0
    assert pump.tally.left > 0
    assert pump.tally.received == pump.tally.forwarded + pump.tally.left
    assert bench.active(BACKLOG, "contoso-dr") == 3000 - pump.tally.forwarded
    assert pump.tally.ended is Ended.STOPPED


def test_what_comes_while_it_stops_is_given_back_and_not_left_locked(bench: Bench) -> None:  # C2
    bench.queue("orders")
    bench.put(*(aliased("x" * 2_000, "orders") for _ in range(1000)))
    with bench.running() as (pump, _, thread):
        bench.wait(lambda: pump.tally.received > 0)
        pump.stop()
        thread.join(30)
    assert bench.locked() == 0
    assert pump.tally.received == pump.tally.forwarded + pump.tally.left


def test_after_its_lease_nothing_stays_locked_and_it_says_that_there_is_more(bench: Bench) -> None:
    bench.queue("orders")
    bench.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.2))
    bench.put(*(aliased(f"{i}", "orders") for i in range(3000)))
    pump, _ = bench.run(replace(QUICK, lease=1.5, window=200))
    assert (pump.tally.ended, pump.tally.busy) == (Ended.LEASE, True)
    assert bench.locked() == 0
    assert bench.active(BACKLOG, "contoso-dr") == 3000 - pump.tally.forwarded > 0


def test_at_its_limit_it_finishes_what_it_has_and_takes_no_more(bench: Bench) -> None:
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(300)))
    pump, _ = bench.run(replace(QUICK, limit=120))
    assert (pump.tally.received, pump.tally.forwarded, pump.tally.ended) == (120, 120, Ended.LIMIT)
    assert bench.locked() == 0


def test_a_quiet_queue_ends_it_and_there_is_no_more_to_do(bench: Bench) -> None:
    bench.queue("orders")
    bench.put(aliased("x", "orders"))
    pump, outcomes = bench.run()
    assert (pump.tally.ended, pump.tally.busy) == (Ended.QUIET, False)
    assert pump.tally.bytes_forwarded == outcomes[0].size > 0


def test_messages_whose_destination_waits_stay_locked_when_it_stops(bench: Bench) -> None:  # D5
    bench.put(aliased("x", "orders"))
    bench.queue("orders")
    bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy"))
    pump, _ = bench.run()
    assert pump.tally.left == 1
    assert bench.locked() == 1


def test_without_a_primary_it_gives_back_what_it_has_and_tells_the_fault(bench: Bench) -> None:  # C2, C3
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(50)))

    def refused() -> Connection:
        bench.wait(lambda: pump.tally.received == 50)
        raise NotAuthorized("contoso: the key was refused")

    secondary, primary = bench.reach("contoso-dr", BACKLOG), Namespace("contoso", refused)
    pump = Pump(BACKLOG, secondary, primary, lambda outcome: None, QUICK)  # noqa: ARG005
    with pytest.raises(NotAuthorized, match="the key was refused"):
        pump.run()
    secondary.close()
    assert (pump.tally.received, pump.tally.left) == (50, 50)
    assert bench.locked() == 0
