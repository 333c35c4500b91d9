"""One destination that does not work never holds up another, and is not hammered (S3, S4, S5)."""

from __future__ import annotations

from dataclasses import replace

from syphon.emulator import Action, EntityStatus, Fault, Kind, Operation
from syphon.model.outcome import Result
from tests.transfer.conftest import BACKLOG, PATIENT, Bench, aliased


def test_nine_of_ten_messages_are_for_destinations_that_do_not_work_and_the_tenth_arrives(bench: Bench) -> None:  # S3
    faults = {
        "throttled": Fault(Action.ERROR, Operation.SEND, "throttled", condition="com.microsoft:server-busy"),
        "slow": Fault(Action.DELAY, Operation.SEND, "slow", seconds=3600),
        "down": Fault(Action.DETACH, Operation.ATTACH, "down"),
        "silent": Fault(Action.LOSE_REPLY, Operation.SEND, "silent"),
    }
    for name in ("good", "full", *faults):
        bench.queue(name)
    bench.queue("disabled", status=EntityStatus.DISABLED)
    bench.emulator.call(lambda: setattr(bench.primary.entity("full"), "quota_bytes", 0))
    for fault in faults.values():
        bench.fault(fault)
    bad = ["full", "missing", "disabled", *faults]
    paths = [bad[i % 7] if i % 10 else "good" for i in range(210)]
    bench.put(*(aliased("x", path, message_id=f"{i}") for i, path in enumerate(paths)))
    with bench.running(replace(PATIENT, grace=0.5)) as (pump, outcomes, _):
        in_hand = 2 * 27  # those for the slow and the silent one
        bench.wait(lambda: pump.counters.received == 210 and pump.counters.in_hand <= in_hand)
        bench.wait(lambda: pump.counters.forwarded == 21)

    assert sorted(int(message.message_id) for message in bench.take("good", 21)) == list(range(0, 210, 10))
    became = {(outcome.destination, outcome.result) for outcome in outcomes}
    assert became == {("good", Result.FORWARDED)} | {
        (path, Result.DEAD_LETTERED if path in ("missing", "disabled") else Result.LEFT) for path in bad
    }
    # No hot loop: each message was received once, and a busy destination asked once.
    assert bench.emulator.call(lambda: bench.secondary.counters.of(BACKLOG, Kind.RECEIVE)) == 210
    assert faults["throttled"].struck == 1
    dead = sum(path in ("missing", "disabled") for path in paths)
    assert (bench.dead(BACKLOG), bench.active(BACKLOG, "contoso-dr")) == (dead, 210 - 21 - dead)


def test_what_is_in_hand_is_bounded_by_count(bench: Bench) -> None:  # S3, D5
    bench.queue("orders")
    bench.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.3))
    bench.put(*(aliased(f"{i}", "orders") for i in range(60)))
    most = 0
    with bench.pump(replace(PATIENT, window=10)) as (pump, _):
        for _ in bench.turns(pump):
            most = max(most, bench.locked())
    assert most == 10
    assert (pump.counters.forwarded, pump.counters.in_hand) == (60, 0)


def test_what_is_in_hand_is_bounded_by_bytes_and_one_message_always_has_room(bench: Bench) -> None:  # S3, D5
    bench.queue("orders")
    bench.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.1))
    bench.put(*(aliased("x" * 100_000, "orders") for i in range(2)))
    bench.put(*(aliased("x" * 100_000, "orders") for i in range(2)))
    most = 0
    with bench.pump(replace(PATIENT, window_bytes=220_000)) as (pump, _):
        for _ in bench.turns(pump):
            most = max(most, pump.counters.bytes_in_hand)
    # Of the first ones it cannot be known how large they are: they are taken for 64 KB each.
    assert 100_000 < most < 320_000
    assert (pump.counters.forwarded, pump.counters.bytes_in_hand) == (4, 0)
    with bench.pump(replace(PATIENT, window_bytes=50_000)) as (pump, _):
        bench.put(aliased("x" * 100_000, "orders"))
        bench.finish(pump)
    assert pump.counters.forwarded == 1


def test_however_it_is_written_a_destination_is_one(bench: Bench) -> None:  # S3
    bench.queue("Orders")
    bench.put(*(aliased("x", path) for path in ("orders", "ORDERS", "/Orders/")))
    pump, _ = bench.run()
    assert pump.counters.forwarded == 3
    assert len(list(pump.destinations)) == 1
