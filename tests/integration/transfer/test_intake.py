"""How many messages a pump receives: bounded by count, by bytes and by a rate that changes while it runs."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from syphon.emulator import Action, Fault, Operation
from syphon.transfer.pump import Ended
from syphon.transfer.window import RateLimiter
from tests.integration.transfer.conftest import BACKLOG, PATIENT, ManualTimeNamespaces, TwoNamespaces, aliased


@given(
    rate=st.floats(0.1, 5000),
    steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 10_000)), min_size=1, max_size=50),
)
def test_no_more_comes_than_the_rate_and_one_second_in_advance(rate: float, steps: list[tuple[float, int]]) -> None:
    pace, now, came = RateLimiter(0.0), 0.0, 0
    for passed, available in steps:
        now += passed
        room = pace.room(rate, now)
        assert room is not None
        for _ in range(min(room, available)):
            pace.spend(1)
            came += 1
    assert came <= rate * now + max(1.0, rate) + 0.001


def test_without_a_rate_there_is_no_bound_and_a_rate_of_nothing_is_a_pause() -> None:
    pace = RateLimiter(0.0)
    assert pace.room(None, 5.0) is None
    assert pace.room(10.0, 6.0) == 10
    assert pace.room(0.0, 7.0) == 0
    assert pace.room(10.0, 7.5) == 5


def test_messages_that_were_in_flight_are_paid_back() -> None:
    pace = RateLimiter(0.0)
    for _ in range(20):
        pace.spend(1)
    assert pace.room(10.0, 1.0) == 0
    assert pace.room(10.0, 2.5) == 5


def test_a_paused_pump_receives_nothing_does_not_count_it_as_quiet_and_goes_on(
    manual: ManualTimeNamespaces,
) -> None:  # D7
    manual.queue("orders")
    manual.put(*(aliased(f"{i}", "orders") for i in range(500)))
    with manual.pump() as (pump, _):
        pump.rate = 0.0
        turns = pump.turns()
        while not (manual.links() and pump.is_primary_connected):
            next(turns)
        manual.advance(PATIENT.quiet + 1)
        for _ in range(10):
            next(turns)
        assert (pump.counters.received, pump.queues[BACKLOG].ended) == (0, None)
        pump.rate = None
        for _ in turns:
            if pump.counters.forwarded == 500:
                manual.advance(PATIENT.quiet + 1)
        assert (pump.counters.forwarded, pump.queues[BACKLOG].ended) == (500, Ended.QUIET)


def test_a_pause_withdraws_the_credit_and_messages_in_flight_are_finished(namespaces: TwoNamespaces) -> None:  # D7
    namespaces.queue("orders")
    with namespaces.running() as (pump, _, _):
        namespaces.put(aliased("first", "orders"))
        namespaces.wait(lambda: pump.counters.forwarded == 1)
        assert namespaces.credit() > 100
        pump.rate = 0.0
        namespaces.wait(lambda: namespaces.credit() == 0)
        namespaces.put(*(aliased(f"{i}", "orders") for i in range(100)))
        assert (pump.counters.received, pump.counters.in_flight) == (1, 0)
        pump.rate = 1000.0
        namespaces.wait(lambda: pump.counters.forwarded == 101)


def test_a_slow_pace_is_kept(namespaces: TwoNamespaces) -> None:  # D7
    namespaces.queue("orders")
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(100)))
    with namespaces.pump() as (pump, outcomes):
        pump.rate = 20.0
        for _ in pump.turns():
            if pump.counters.forwarded >= 40:
                pump.stop()
    forwarded = sorted(outcome.received_at for outcome in outcomes if outcome.result == "forwarded")
    # The first forty need the second in advance and one more second, however slow the machine is.
    assert forwarded[39] - forwarded[0] >= 900


def test_what_is_in_flight_is_bounded_by_count(namespaces: TwoNamespaces) -> None:  # S3, D5
    namespaces.queue("orders")
    namespaces.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.3))
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(60)))
    most = 0
    with namespaces.pump(replace(PATIENT, window=10)) as (pump, _):
        for _ in namespaces.turns(pump):
            most = max(most, namespaces.locked())
    assert most == 10
    assert (pump.counters.forwarded, pump.counters.in_flight) == (60, 0)


def test_what_is_in_flight_is_bounded_by_bytes_and_one_message_always_has_room(
    namespaces: TwoNamespaces,
) -> None:  # S3, D5
    namespaces.queue("orders")
    namespaces.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.1))
    namespaces.put(*(aliased("x" * 100_000, "orders") for i in range(2)))
    namespaces.put(*(aliased("x" * 100_000, "orders") for i in range(2)))
    most = 0
    with namespaces.pump(replace(PATIENT, window_bytes=220_000)) as (pump, _):
        for _ in namespaces.turns(pump):
            most = max(most, pump.counters.bytes_in_flight)
    # The size of the first messages is unknown: the intake assumes 64 KB each.
    assert 100_000 < most < 320_000
    assert (pump.counters.forwarded, pump.counters.bytes_in_flight) == (4, 0)
    with namespaces.pump(replace(PATIENT, window_bytes=50_000)) as (pump, _):
        namespaces.put(aliased("x" * 100_000, "orders"))
        namespaces.finish(pump)
    assert pump.counters.forwarded == 1
