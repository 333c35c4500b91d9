"""A destination that the operator has paused, and what a pump tells of the others."""

from __future__ import annotations

from syphon.model.entity_path import EntityPath
from syphon.model.outcome import Result
from tests.transfer.conftest import Bench, aliased


def test_a_paused_destination_is_left_alone_whatever_its_capitals_and_the_others_are_served(bench: Bench) -> None:  # S3
    for name in ("orders", "news"):
        bench.queue(name)
    bench.put(*(aliased(f"{i}", path) for i in range(5) for path in ("Orders", "news")))
    with bench.pump() as (pump, outcomes):
        pump.pause(frozenset({EntityPath.of("orders")}))
        bench.finish(pump)
    assert (bench.active("orders"), bench.active("news")) == (0, 5)
    left = [outcome for outcome in outcomes if outcome.result is Result.LEFT]
    assert {outcome.reason for outcome in left} == {"The destination is paused by the operator."}
    assert len(left) == 5
    assert pump.backing_off() == []  # it has not failed: nothing is to be remembered when the pause is over


def test_a_pause_begins_and_ends_while_the_pump_runs(bench: Bench) -> None:
    bench.queue("orders")
    with bench.pump() as (pump, _):
        stage = 0
        bench.put(aliased("before", "orders"))
        for _ in pump.turns():
            if stage == 0 and pump.counters.forwarded == 1:
                pump.pause(frozenset({EntityPath.of("orders")}))
                bench.put(aliased("while", "orders"))
                stage = 1
            elif stage == 1 and pump.counters.left == 1:
                pump.pause(frozenset())
                bench.put(aliased("after", "orders"))
                stage = 2
            elif stage == 2 and pump.counters.forwarded == 2:
                pump.stop()
    assert [str(message) for message in bench.take("orders", 2)] == ["before", "after"]


def test_a_destination_that_refuses_everything_is_told_beside_those_that_wait(bench: Bench) -> None:  # S4
    bench.put(aliased("x", "missing"))
    with bench.pump() as (pump, _):
        bench.finish(pump)
        (closed,) = pump.rejecting()
        assert (closed.path, pump.backing_off()) == ("missing", [])
        assert "amqp:not-found" in closed.reason
        assert sum(pump.destinations.send_times.counts) == 0  # its link was refused: nothing was ever sent


def test_answers_of_destinations_are_timed_by_batch(bench: Bench) -> None:
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(5)))
    pump, _ = bench.run()
    times = pump.destinations.send_times
    assert 1 <= sum(times.counts) <= 5
    assert times.seconds > 0
