"""The pace of a pump: limited, changed and paused while it runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syphon.transfer.intake import RateLimiter
from syphon.transfer.pump import Ended
from tests.transfer.conftest import PATIENT, Bench, StillBench, aliased


@given(
    rate=st.floats(0.1, 5000),
    steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 10_000)), min_size=1, max_size=50),
)
def test_no_more_comes_than_the_rate_and_a_second_in_advance(rate: float, steps: list[tuple[float, int]]) -> None:
    pace, now, came = RateLimiter(0.0), 0.0, 0
    for passed, available in steps:
        now += passed
        room = pace.room(rate, now)
        assert room is not None
        for _ in range(min(room, available)):
            pace.spend()
            came += 1
    assert came <= rate * now + max(1.0, rate) + 0.001


def test_without_a_rate_there_is_no_bound_and_a_rate_of_nothing_is_a_pause() -> None:
    pace = RateLimiter(0.0)
    assert pace.room(None, 5.0) is None
    assert pace.room(10.0, 6.0) == 10
    assert pace.room(0.0, 7.0) == 0
    assert pace.room(10.0, 7.5) == 5


def test_messages_that_were_under_way_are_paid_back() -> None:
    pace = RateLimiter(0.0)
    for _ in range(20):
        pace.spend()
    assert pace.room(10.0, 1.0) == 0
    assert pace.room(10.0, 2.5) == 5


def test_a_paused_pump_takes_nothing_does_not_take_it_for_quiet_and_goes_on(still: StillBench) -> None:  # D7
    still.queue("orders")
    still.put(*(aliased(f"{i}", "orders") for i in range(500)))
    with still.pump() as (pump, _):
        pump.rate = 0.0
        turns = pump.turns()
        while not still.links():
            next(turns)
        still.advance(PATIENT.quiet + 1)
        for _ in range(10):
            next(turns)
        assert (pump.counters.received, pump.counters.ended) == (0, None)
        pump.rate = None
        for _ in turns:
            if pump.counters.forwarded == 500:
                still.advance(PATIENT.quiet + 1)
        assert (pump.counters.forwarded, pump.counters.ended) == (500, Ended.QUIET)


def test_a_pause_takes_back_the_credit_and_what_is_in_hand_is_finished(bench: Bench) -> None:  # D7
    bench.queue("orders")
    with bench.running() as (pump, _, _):
        bench.put(aliased("first", "orders"))
        bench.wait(lambda: pump.counters.forwarded == 1)
        assert bench.credit() > 100
        pump.rate = 0.0
        bench.wait(lambda: bench.credit() == 0)
        bench.put(*(aliased(f"{i}", "orders") for i in range(100)))
        assert (pump.counters.received, pump.counters.in_hand) == (1, 0)
        pump.rate = 1000.0
        bench.wait(lambda: pump.counters.forwarded == 101)


def test_a_slow_pace_is_kept(bench: Bench) -> None:  # D7
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(100)))
    with bench.pump() as (pump, outcomes):
        pump.rate = 20.0
        for _ in pump.turns():
            if pump.counters.forwarded >= 40:
                pump.stop()
    forwarded = sorted(outcome.received_at for outcome in outcomes if outcome.result == "forwarded")
    # The first forty need one second in advance and one of time, whatever the machine does meanwhile.
    assert forwarded[39] - forwarded[0] >= 900
