"""Destinations are isolated: what one of them, one link or one message does never holds up the others (S3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil

import pytest

from syphon import time_budget
from syphon.emulator import Action, EntityStatus, Fault, Kind, Operation
from syphon.model.entity_path import EntityPath
from syphon.model.errors import DestinationBusy, DestinationMissing
from syphon.model.outcomes import Result
from syphon.transfer import destination
from syphon.transfer.breaker import BackingOff, Breaker
from syphon.transfer.destinations import IN_FLIGHT_SHARE
from syphon.transfer.pump import DestinationBackoff, PumpCounters, PumpOptions
from syphon.transfer.pump_options import PERMANENT
from syphon.transfer.unsent import MOST_IN_BATCH
from tests.integration.transfer.conftest import BACKLOG, PATIENT, ManualTimeNamespaces, TwoNamespaces, aliased


@pytest.fixture
def hurried(manual: ManualTimeNamespaces, monkeypatch: pytest.MonkeyPatch) -> Iterator[ManualTimeNamespaces]:
    """Shortens the time after which pending messages count as stuck; the test ends before answers are overdue."""
    monkeypatch.setattr(destination, "STUCK", 1.0)
    began = manual.now()
    yield manual
    assert manual.now() - began < time_budget.SEND_ANSWER_WITHIN


def run(
    namespaces: ManualTimeNamespaces,
    options: PumpOptions,
    is_over: Callable[[PumpCounters], bool],
    is_stuck: Callable[[PumpCounters], bool],
) -> PumpCounters:
    """Runs a pump until `is_over`. Time moves on when only messages for silent destinations are in flight."""
    with namespaces.pump(replace(options, lease=None, grace=0.1)) as (pump, _):
        for _ in pump.turns():
            if is_over(pump.counters):
                pump.stop()
                namespaces.advance(1)
            elif is_stuck(pump.counters):
                namespaces.advance(destination.STUCK + 0.1)
    return pump.counters


@pytest.mark.parametrize("operation", [Operation.ATTACH, Operation.SEND])
def test_a_destination_that_never_answers_does_not_hold_up_the_others(  # S3
    hurried: ManualTimeNamespaces, operation: Operation
) -> None:
    """All destinations share one window: messages that wait for an answer must not fill it."""
    hurried.queue("dead")
    hurried.queue("orders")
    hung = hurried.fault(Fault(Action.HANG, operation, "dead"))
    hurried.put(*(aliased(f"{i}", "orders" if i % 10 == 0 else "dead") for i in range(6000)))
    tally = run(
        hurried,
        replace(PATIENT, window=2000),
        is_over=lambda tally: tally.forwarded == 600,
        is_stuck=lambda tally: tally.in_flight == 2000 and tally.forwarded == ceil(tally.received / 10),
    )
    assert hung.struck > 0
    assert tally.received == tally.forwarded + tally.left
    assert (tally.forwarded, tally.dead_lettered) == (600, 0)


def test_many_that_never_answer_leave_room_for_the_others(hurried: ManualTimeNamespaces) -> None:  # S3
    names = [f"dead-{number}" for number in range(4)]
    for name in ("orders", *names):
        hurried.queue(name)
    hurried.fault(Fault(Action.HANG, Operation.SEND, "dead-*"))
    hurried.put(*(aliased(f"{i}", "orders" if i % 5 == 0 else names[i % 4]) for i in range(6000)))
    most = IN_FLIGHT_SHARE * 4000 + 4 * MOST_IN_BATCH

    def is_stuck(tally: PumpCounters) -> bool:
        return (tally.in_flight == 4000 or tally.received == 6000) and tally.forwarded == ceil(tally.received / 5)

    tally = run(
        hurried,
        replace(PATIENT, window=4000),
        is_over=lambda tally: tally.forwarded == 1200 and tally.in_flight <= most,
        is_stuck=is_stuck,
    )
    assert tally.forwarded == 1200


def test_one_that_never_answers_leaves_room_for_the_bytes_of_others(hurried: ManualTimeNamespaces) -> None:  # S3
    for name in ("dead", "orders"):
        hurried.queue(name)
    hurried.fault(Fault(Action.HANG, Operation.SEND, "dead"))
    hurried.put(*(aliased("x" * 2000, "dead" if i % 10 else "orders") for i in range(2000)))
    most = IN_FLIGHT_SHARE * 3_000_000 + 2 * 256 * 1024
    tally = run(
        hurried,
        replace(PATIENT, window_bytes=3_000_000),
        is_over=lambda tally: tally.forwarded == 200 and tally.bytes_in_flight <= most,
        is_stuck=lambda tally: tally.bytes_in_flight > most and tally.forwarded == ceil(tally.received / 10),
    )
    assert tally.forwarded == 200


def test_a_destination_without_a_link_does_not_keep_its_messages_in_flight(  # S3
    manual: ManualTimeNamespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destination, "SEND_ANSWER_WITHIN", 40.0)
    for name in ("dead", "waits", "later"):
        manual.queue(name)
    hung = manual.fault(Fault(Action.HANG, Operation.SEND, "dead"))
    manual.put(aliased("x", "dead"))
    with manual.pump(replace(PATIENT, max_links=1, lease=None, grace=0.1)) as (pump, outcomes):
        turns = pump.turns()

        def turn(until: Callable[[], bool], step: float = 0.0) -> None:
            for _ in turns:
                if until():
                    return
                manual.advance(step)

        turn(lambda: hung.struck == 1)
        pump.back_off(DestinationBackoff("waits", 60.0, "it was busy", 0))
        manual.put(*(aliased("x", path) for path in ("waits", "later")))
        turn(lambda: pump.counters.received == 3)
        turn(lambda: len(outcomes) >= 3, step=destination.STUCK + 1)  # the third is the one without an answer
        manual.put(aliased("x", "later"))
        turn(lambda: pump.counters.forwarded >= 1, step=1)  # over the link that is free now, or after a ping
        pump.stop()
        turn(lambda: False, step=1)
    assert {outcome.destination: outcome.reason for outcome in outcomes[:2]} == {
        "waits": "it was busy",
        "later": "'later' accepts nothing at the moment.",
    }


@pytest.mark.parametrize("condition", ["amqp:link:message-size-exceeded", "amqp:decode-error", "amqp:not-allowed"])
def test_a_link_that_ends_over_one_message_takes_no_others_to_the_dead_letters(  # S4
    namespaces: TwoNamespaces, condition: str
) -> None:
    namespaces.queue("orders")
    ended = namespaces.fault(Fault(Action.DETACH, Operation.SEND, "orders", condition=condition, times=1))
    namespaces.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(500)))
    pump, _ = namespaces.run()
    assert ended.struck == 1
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (500, 0)
    assert {message.message_id for message in namespaces.take("orders", 500)} == {f"{i}" for i in range(500)}


def test_a_message_that_ends_every_link_it_is_sent_over_is_found_and_dead_lettered(
    namespaces: TwoNamespaces,
) -> None:  # S4
    namespaces.queue("orders")
    namespaces.fault(Fault(Action.DETACH, Operation.SEND, "orders", condition="amqp:decode-error"))
    namespaces.put(aliased("poison", "orders"))
    pump, outcomes = namespaces.run()
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (0, 1)
    assert "amqp:decode-error" in outcomes[0].reason


def test_what_a_link_said_when_it_ended_is_old_news_when_the_next_message_comes(
    namespaces: TwoNamespaces,
) -> None:  # S4
    """The entity was disabled while no message was being sent to it, and is enabled again."""
    namespaces.queue("orders")
    namespaces.put(aliased("before", "orders"))
    with namespaces.running() as (pump, _, _):
        namespaces.wait(lambda: pump.counters.forwarded == 1)
        namespaces.emulator.call(lambda: end_links(namespaces))
        namespaces.put(aliased("after", "orders"))
        namespaces.wait(lambda: pump.counters.received == 2 and not pump.counters.in_flight)
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (2, 0)


def end_links(namespaces: TwoNamespaces) -> None:
    for link in list(namespaces.primary.entity("orders").links):
        link.end("com.microsoft:entity-disabled", "for a moment")  # type: ignore[attr-defined]


@pytest.mark.parametrize("condition", ["amqp:unauthorized-access", "amqp:link:detach-forced"])
def test_a_batch_is_not_taken_apart_over_what_is_not_about_its_messages(
    namespaces: TwoNamespaces, condition: str
) -> None:  # D6
    namespaces.queue("orders")
    refused = namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition=condition))
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(100)))
    pump, _ = namespaces.run()
    assert refused.struck == 1
    assert (pump.counters.left, pump.counters.dead_lettered) == (100, 0)
    assert namespaces.dead(BACKLOG) == 0


def test_a_disabled_destination_is_waited_for_when_a_link_says_it_too(namespaces: TwoNamespaces) -> None:  # S4
    namespaces.queue("orders")
    namespaces.fault(Fault(Action.DETACH, Operation.SEND, "orders", condition="com.microsoft:entity-disabled"))
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(10)))
    pump, _ = namespaces.run()
    assert (pump.counters.left, pump.counters.dead_lettered) == (10, 0)


def test_a_destination_that_has_failed_for_days_still_has_two_minutes_to_wait() -> None:  # S9
    breaker = Breaker("orders", PERMANENT)
    breaker.failures = breaker.busy_in_a_row = 5000
    breaker.failed(DestinationBusy(), 0.0)
    assert isinstance(breaker.state, BackingOff)
    assert breaker.state.until == 120.0


def test_nine_of_ten_messages_are_for_destinations_that_do_not_work_and_the_tenth_arrives(
    namespaces: TwoNamespaces,
) -> None:  # S3
    faults = {
        "throttled": Fault(Action.ERROR, Operation.SEND, "throttled", condition="com.microsoft:server-busy"),
        "slow": Fault(Action.DELAY, Operation.SEND, "slow", seconds=3600),
        "down": Fault(Action.DETACH, Operation.ATTACH, "down"),
        "silent": Fault(Action.LOSE_REPLY, Operation.SEND, "silent"),
    }
    for name in ("good", "full", *faults):
        namespaces.queue(name)
    namespaces.queue("disabled", status=EntityStatus.DISABLED)
    namespaces.emulator.call(lambda: setattr(namespaces.primary.entity("full"), "quota_bytes", 0))
    for fault in faults.values():
        namespaces.fault(fault)
    bad = ["full", "missing", "disabled", *faults]
    paths = [bad[i % 7] if i % 10 else "good" for i in range(210)]
    namespaces.put(*(aliased("x", path, message_id=f"{i}") for i, path in enumerate(paths)))
    with namespaces.running(replace(PATIENT, grace=0.5)) as (pump, outcomes, _):
        in_flight = 3 * 27  # the messages for the slow, the silent and the throttled destination
        namespaces.wait(lambda: pump.counters.received == 210 and pump.counters.in_flight <= in_flight)
        namespaces.wait(lambda: pump.counters.forwarded == 21)

    assert sorted(int(message.message_id) for message in namespaces.take("good", 21)) == list(range(0, 210, 10))
    became = {(outcome.destination, outcome.result) for outcome in outcomes}
    assert became == {("good", Result.FORWARDED)} | {(path, Result.LEFT) for path in bad}
    # No hot loop: each message was received once, and a busy destination asked once.
    assert namespaces.emulator.call(lambda: namespaces.secondary.counters.of(BACKLOG, Kind.RECEIVE)) == 210
    assert faults["throttled"].struck == 1
    assert (namespaces.dead(BACKLOG), namespaces.active(BACKLOG, "contoso-dr")) == (0, 210 - 21)


def test_however_it_is_written_a_destination_is_one(namespaces: TwoNamespaces) -> None:  # S3
    namespaces.queue("Orders")
    namespaces.put(*(aliased("x", path) for path in ("orders", "ORDERS", "/Orders/")))
    pump, _ = namespaces.run()
    assert pump.counters.forwarded == 3
    assert len(list(pump.destinations)) == 1


def test_a_paused_destination_gets_nothing_whatever_its_capitals_and_the_others_are_served(
    namespaces: TwoNamespaces,
) -> None:  # S3
    for name in ("orders", "news"):
        namespaces.queue(name)
    namespaces.put(*(aliased(f"{i}", path) for i in range(5) for path in ("Orders", "news")))
    with namespaces.pump() as (pump, outcomes):
        pump.pause(frozenset({EntityPath.of("orders")}))
        namespaces.finish(pump)
    assert (namespaces.active("orders"), namespaces.active("news")) == (0, 5)
    left = [outcome for outcome in outcomes if outcome.result is Result.LEFT]
    assert {outcome.reason for outcome in left} == {"The destination is paused by the operator."}
    assert len(left) == 5
    assert pump.backing_off() == []  # it has not failed: it is available when the pause ends


def test_a_pause_begins_and_ends_while_the_pump_runs(namespaces: TwoNamespaces) -> None:
    namespaces.queue("orders")
    with namespaces.pump() as (pump, _):
        stage = 0
        namespaces.put(aliased("before", "orders"))
        for _ in pump.turns():
            if stage == 0 and pump.counters.forwarded == 1:
                pump.pause(frozenset({EntityPath.of("orders")}))
                namespaces.put(aliased("while", "orders"))
                stage = 1
            elif stage == 1 and pump.counters.left == 1:
                pump.pause(frozenset())
                namespaces.put(aliased("after", "orders"))
                stage = 2
            elif stage == 2 and pump.counters.forwarded == 2:
                pump.stop()
    assert [str(message) for message in namespaces.take("orders", 2)] == ["before", "after"]


def test_a_destination_that_refuses_everything_is_reported_beside_those_that_wait(
    namespaces: TwoNamespaces,
) -> None:  # S4
    namespaces.put(aliased("x", "missing"))
    with namespaces.pump(replace(PATIENT, permanent=PERMANENT | {DestinationMissing})) as (pump, _):
        namespaces.finish(pump)
        (closed,) = pump.rejecting()
        assert (closed.path, pump.backing_off()) == ("missing", [])
        assert "there is no 'missing' (404 " in closed.reason
        assert sum(pump.destinations.send_times.counts) == 0  # its link was refused: nothing was sent


def test_answers_of_destinations_are_timed_by_batch(namespaces: TwoNamespaces) -> None:
    namespaces.queue("orders")
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(5)))
    pump, _ = namespaces.run()
    times = pump.destinations.send_times
    assert 1 <= sum(times.counts) <= 5
    assert times.seconds > 0
