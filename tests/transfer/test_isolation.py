"""What one destination, one link or one message does is no matter of the others (S3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil

import pytest

from syphon.emulator import Action, Fault, Operation
from syphon.model.errors import DestinationBusy, DestinationDisabled
from syphon.transfer import destination
from syphon.transfer.batches import MOST
from syphon.transfer.breaker import BackingOff, Breaker
from syphon.transfer.destinations import UNDER_WAY
from syphon.transfer.options import PERMANENT
from syphon.transfer.pump import DestinationBackoff, PumpCounters, PumpOptions
from tests.transfer.conftest import BACKLOG, PATIENT, Bench, StillBench, aliased


@pytest.fixture
def hurried(still: StillBench, monkeypatch: pytest.MonkeyPatch) -> Iterator[StillBench]:
    """Who is stuck is soon known to be, and all is over before the answers that never come are overdue."""
    monkeypatch.setattr(destination, "STUCK", 1.0)
    began = still.now()
    yield still
    assert still.now() - began < destination.ANSWER_WITHIN


def run(
    bench: StillBench,
    options: PumpOptions,
    is_over: Callable[[PumpCounters], bool],
    is_stuck: Callable[[PumpCounters], bool],
) -> PumpCounters:
    """A pump until it is over. Time moves on when all that is in the way is for those that never answer."""
    with bench.pump(replace(options, lease=None, grace=0.1)) as (pump, _):
        for _ in pump.turns():
            if is_over(pump.counters):
                pump.stop()
                bench.advance(1)
            elif is_stuck(pump.counters):
                bench.advance(destination.STUCK + 0.1)
    return pump.counters


@pytest.mark.parametrize("operation", [Operation.ATTACH, Operation.SEND])
def test_a_destination_that_never_answers_does_not_hold_up_the_others(  # S3
    hurried: StillBench, operation: Operation
) -> None:
    """There is one window for all: what waits for nothing but an answer must not fill it."""
    hurried.queue("dead")
    hurried.queue("orders")
    hung = hurried.fault(Fault(Action.HANG, operation, "dead"))
    hurried.put(*(aliased(f"{i}", "orders" if i % 10 == 0 else "dead") for i in range(6000)))
    tally = run(
        hurried,
        replace(PATIENT, window=2000),
        is_over=lambda tally: tally.forwarded == 600,
        is_stuck=lambda tally: tally.in_hand == 2000 and tally.forwarded == ceil(tally.received / 10),
    )
    assert hung.struck > 0
    assert tally.received == tally.forwarded + tally.left
    assert (tally.forwarded, tally.dead_lettered) == (600, 0)


def test_many_that_never_answer_leave_room_for_the_others(hurried: StillBench) -> None:  # S3
    names = [f"dead-{number}" for number in range(4)]
    for name in ("orders", *names):
        hurried.queue(name)
    hurried.fault(Fault(Action.HANG, Operation.SEND, "dead-*"))
    hurried.put(*(aliased(f"{i}", "orders" if i % 5 == 0 else names[i % 4]) for i in range(6000)))
    most = UNDER_WAY * 4000 + 4 * MOST

    def is_stuck(tally: PumpCounters) -> bool:
        return (tally.in_hand == 4000 or tally.received == 6000) and tally.forwarded == ceil(tally.received / 5)

    tally = run(
        hurried,
        replace(PATIENT, window=4000),
        is_over=lambda tally: tally.forwarded == 1200 and tally.in_hand <= most,
        is_stuck=is_stuck,
    )
    assert tally.forwarded == 1200


def test_one_that_never_answers_leaves_room_for_the_bytes_of_others(hurried: StillBench) -> None:  # S3
    for name in ("dead", "orders"):
        hurried.queue(name)
    hurried.fault(Fault(Action.HANG, Operation.SEND, "dead"))
    hurried.put(*(aliased("x" * 2000, "dead" if i % 10 else "orders") for i in range(2000)))
    most = UNDER_WAY * 3_000_000 + 256 * 1024
    tally = run(
        hurried,
        replace(PATIENT, window_bytes=3_000_000),
        is_over=lambda tally: tally.forwarded == 200 and tally.bytes_in_hand <= most,
        is_stuck=lambda tally: tally.bytes_in_hand > most and tally.forwarded == ceil(tally.received / 10),
    )
    assert tally.forwarded == 200


def test_who_gets_no_link_does_not_keep_its_messages_in_hand(  # S3
    still: StillBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination, "ANSWER_WITHIN", 40.0)
    for name in ("dead", "waits", "later"):
        still.queue(name)
    hung = still.fault(Fault(Action.HANG, Operation.SEND, "dead"))
    still.put(aliased("x", "dead"))
    with still.pump(replace(PATIENT, max_links=1, lease=None, grace=0.1)) as (pump, outcomes):
        turns = pump.turns()

        def turn(until: Callable[[], bool], step: float = 0.0) -> None:
            for _ in turns:
                if until():
                    return
                still.advance(step)

        turn(lambda: hung.struck == 1)
        pump.back_off(DestinationBackoff("waits", 60.0, "it was busy", 0))
        still.put(*(aliased("x", path) for path in ("waits", "later")))
        turn(lambda: pump.counters.received == 3)
        turn(lambda: len(outcomes) == 3, step=destination.STUCK + 1)  # the third is the one that was not answered
        still.put(aliased("x", "later"))
        turn(lambda: pump.counters.forwarded == 1)  # over the link that is free now
        pump.stop()
        turn(lambda: False, step=1)
    assert {outcome.destination: outcome.reason for outcome in outcomes[:2]} == {
        "waits": "it was busy",
        "later": "'later' takes nothing at the moment.",
    }


@pytest.mark.parametrize("condition", ["amqp:link:message-size-exceeded", "amqp:decode-error", "amqp:not-allowed"])
def test_a_link_that_ends_over_one_message_takes_no_others_to_the_dead_letters(  # S4
    bench: Bench, condition: str
) -> None:
    bench.queue("orders")
    ended = bench.fault(Fault(Action.DETACH, Operation.SEND, "orders", condition=condition, times=1))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(500)))
    pump, _ = bench.run()
    assert ended.struck == 1
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (500, 0)
    assert {message.message_id for message in bench.take("orders", 500)} == {f"{i}" for i in range(500)}


def test_a_message_that_ends_every_link_it_is_sent_over_is_found_and_dead_lettered(bench: Bench) -> None:  # S4
    bench.queue("orders")
    bench.fault(Fault(Action.DETACH, Operation.SEND, "orders", condition="amqp:decode-error"))
    bench.put(aliased("poison", "orders"))
    pump, outcomes = bench.run()
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (0, 1)
    assert "amqp:decode-error" in outcomes[0].reason


def test_what_a_link_said_when_it_ended_is_old_news_when_the_next_message_comes(bench: Bench) -> None:  # S4
    """The entity was disabled while nothing was on its way to it, and is enabled again."""
    bench.queue("orders")
    bench.put(aliased("before", "orders"))
    with bench.running() as (pump, _, _):
        bench.wait(lambda: pump.counters.forwarded == 1)
        bench.emulator.call(lambda: end_links(bench))
        bench.put(aliased("after", "orders"))
        bench.wait(lambda: pump.counters.received == 2 and not pump.counters.in_hand)
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (2, 0)


def end_links(bench: Bench) -> None:
    for link in list(bench.primary.entity("orders").links):
        link.end("com.microsoft:entity-disabled", "for a moment")  # type: ignore[attr-defined]


@pytest.mark.parametrize("condition", ["amqp:unauthorized-access", "amqp:link:detach-forced"])
def test_a_batch_is_not_taken_apart_over_what_is_not_about_its_messages(bench: Bench, condition: str) -> None:  # D6
    bench.queue("orders")
    refused = bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition=condition))
    bench.put(*(aliased(f"{i}", "orders") for i in range(100)))
    pump, _ = bench.run()
    assert refused.struck == 1
    assert (pump.counters.left, pump.counters.dead_lettered) == (100, 0)
    assert bench.dead(BACKLOG) == 0


def test_what_the_operator_waits_for_is_waited_for_when_a_link_says_it_too(bench: Bench) -> None:  # S4
    bench.queue("orders")
    bench.fault(Fault(Action.DETACH, Operation.SEND, "orders", condition="com.microsoft:entity-disabled"))
    bench.put(*(aliased(f"{i}", "orders") for i in range(10)))
    pump, _ = bench.run(replace(PATIENT, permanent=PERMANENT - {DestinationDisabled}))
    assert (pump.counters.left, pump.counters.dead_lettered) == (10, 0)


def test_a_destination_that_has_failed_for_days_still_has_two_minutes_to_wait() -> None:  # S9
    breaker = Breaker("orders", PERMANENT)
    breaker.failures = 5000
    breaker.failed(DestinationBusy(), 0.0)
    assert isinstance(breaker.state, BackingOff)
    assert breaker.state.until == 120.0
