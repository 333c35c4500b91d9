"""A destination that does not work backs off, longer each time, and does not affect the others."""

from __future__ import annotations

import time

import pytest

from syphon.amqp.frames import Composite, Disposition
from syphon.emulator import Action, Fault, Operation
from syphon.emulator.amqp_front.entity_links import IncomingEntityLink
from syphon.emulator.amqp_front.session import AmqpSession
from syphon.emulator.broker.admission import FRAGMENTS
from syphon.model.entity_path import EntityPath, Renames
from syphon.model.errors import DestinationBusy, DestinationDisabled, DestinationSilent
from syphon.transfer.breaker import Available, BackingOff, Rejecting
from syphon.transfer.destination import Destination
from syphon.transfer.destinations import Destinations
from syphon.transfer.pump import PERMANENT
from syphon.transfer.pump_options import PumpOptions
from syphon.transfer.traces import Traces
from tests.integration.transfer.conftest import TwoNamespaces, aliased
from tests.support.destination_trial import Trial, trial

__all__ = ["trial"]


@pytest.mark.parametrize(
    ("condition", "pauses"),
    [
        ("com.microsoft:server-busy", [10, 10, 10, 10, 20, 40, 80, 120, 120]),
        ("com.microsoft:timeout", [1, 2, 4, 8, 16, 32, 64, 120, 120]),
        ("com.microsoft:operation-cancelled", [1, 2, 4]),
        ("amqp:resource-locked", [1, 2, 4]),
        ("com.microsoft:store-lock-lost", [1, 2, 4]),
        ("com.microsoft:partition-not-owned", [1, 2, 4]),
        ("amqp:resource-limit-exceeded", [30, 60, 120, 120]),
    ],
)
def test_each_failure_in_a_row_doubles_the_wait_up_to_two_minutes(  # S4, S5, S9
    trial: Trial, condition: str, pauses: list[float]
) -> None:
    trial.namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition=condition))
    assert [trial.pause() for _ in pauses] == pauses


def test_a_success_starts_over(trial: Trial) -> None:  # S9
    full = Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:resource-limit-exceeded")
    trial.namespaces.fault(full)
    assert [trial.pause(), trial.pause()] == [30, 60]
    trial.namespaces.emulator.call(trial.namespaces.primary.faults.clear)
    trial.send()
    assert len(trial.results.accepted) == 1
    assert isinstance(trial.destination.state, Available)
    trial.namespaces.fault(full)
    assert trial.pause() == 30


def test_messages_of_a_throttled_destination_stay_in_flight_and_are_sent_after_ten_seconds(trial: Trial) -> None:  # S5
    trial.namespaces.fault(
        Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy", times=1)
    )
    assert trial.pause() == 10
    trial.now -= 0.1
    trial.turn_once()
    assert (trial.results.left, trial.results.accepted) == ([], [])
    trial.now += 0.1
    trial.turn(lambda: len(trial.results.accepted) == 1)
    assert not trial.results.accepted[0].possible_duplicate


def test_the_messages_of_a_destination_that_is_busy_four_times_in_a_row_are_left(trial: Trial) -> None:  # S5, S7
    trial.namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy"))
    for _ in range(3):
        trial.pause()
        assert not trial.results.left
    trial.pause()
    assert len(trial.results.left) == 4


def test_after_a_failure_one_batch_goes_ahead_and_the_others_wait_for_its_answer(trial: Trial) -> None:  # S5
    full = Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:resource-limit-exceeded")
    trial.namespaces.fault(full)
    trial.pause()
    for number in range(50):
        trial.offer(f"key {number}")  # fifty keys are fifty batches
    trial.turn(lambda: len(trial.results.left) == 51)
    assert full.struck == 2


def test_many_batches_that_fail_together_are_one_failure(trial: Trial) -> None:  # S5, S9
    busy = trial.namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy"))
    for number in range(10):
        trial.offer(f"key {number}")
    trial.turn(lambda: len(trial.results.answers) == 10)
    assert busy.struck == 10
    state = trial.destination.state
    assert isinstance(state, BackingOff)
    breaker = trial.destination.breaker
    assert (state.until - trial.now, breaker.busy_in_a_row, breaker.failures) == (10, 1, 0)


def test_what_fails_beside_it_does_not_shorten_the_wait_of_a_busy_one(trial: Trial) -> None:  # S5
    for condition in ("com.microsoft:server-busy", "com.microsoft:timeout"):
        trial.namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition=condition, times=1))
    trial.offer("first")
    trial.offer("second")
    trial.turn(lambda: len(trial.results.answers) == 2)
    state = trial.destination.state
    assert isinstance(state, BackingOff)
    assert (state.until - trial.now, type(state.because)) == (10, DestinationBusy)


def test_a_timeout_for_one_key_backs_off_that_key_and_not_the_destination(trial: Trial) -> None:  # S3, S8
    fault = Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:timeout", times=1)
    trial.namespaces.fault(fault)
    trial.offer("in a fragment that is down")
    trial.turn(lambda: len(trial.results.left) == 1)
    assert isinstance(trial.destination.state, Available)
    trial.offer("another key")
    trial.offer("in a fragment that is down")
    trial.turn(lambda: len(trial.results.accepted) == 1 and len(trial.results.left) == 2)
    trial.now += 1.0
    trial.offer("in a fragment that is down")
    trial.turn(lambda: len(trial.results.accepted) == 2)


def test_when_as_many_keys_in_a_row_time_out_as_there_are_fragments_the_destination_backs_off(trial: Trial) -> None:
    trial.namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:timeout"))
    for key in range(FRAGMENTS):  # S4
        assert isinstance(trial.destination.state, Available)
        trial.offer(f"key {key}")
        trial.turn(lambda: len(trial.results.left) == key + 1)  # noqa: B023  it is used at once
    assert isinstance(trial.destination.state, BackingOff)


def test_a_pump_without_the_right_to_send_retries_in_a_minute(trial: Trial) -> None:  # S4: no word about a message
    trial.namespaces.fault(Fault(Action.DETACH, Operation.ATTACH, "orders", condition="amqp:unauthorized-access"))
    assert [trial.pause(), trial.pause()] == [60, 120]


@pytest.mark.parametrize("condition", ["amqp:not-found", "com.microsoft:entity-disabled"])
def test_a_missing_or_disabled_destination_is_retried_in_half_a_minute_and_later_every_two(
    trial: Trial, condition: str
) -> None:  # S4
    fault = trial.namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition=condition))
    assert [trial.pause(), trial.pause(), trial.pause(), trial.pause()] == [30, 60, 120, 120]
    assert fault.struck == 4


def test_a_link_that_breaks_is_reopened_at_once_but_not_forever(trial: Trial) -> None:  # S3: no hot loop
    broken = trial.namespaces.fault(Fault(Action.DETACH, Operation.ATTACH, "orders"))
    assert [trial.pause(), trial.pause()] == [1, 2]
    assert broken.struck == 6


def test_a_link_that_ends_before_anything_was_sent_is_not_reopened_forever(  # S3: no hot loop
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    def end(link: IncomingEntityLink) -> None:
        ended.append(link.name)
        link.end("amqp:not-allowed", "instead of credit")

    monkeypatch.setattr(IncomingEntityLink, "give_credit", end)
    assert [trial.pause(), trial.pause()] == [1, 2]
    assert len(ended) == 6


def test_what_was_settled_without_a_word_is_not_sent_again_and_again(  # D10, S3: no hot loop
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say_nothing(session: AmqpSession, role: bool, delivery_id: int, outcome: Composite) -> None:
        session.send(Disposition(role, delivery_id, None, True, None))

    monkeypatch.setattr(AmqpSession, "answer", say_nothing)
    trial.send()
    ((left, _, _),) = trial.results.left
    assert left.possible_duplicate
    assert trial.namespaces.active("orders") == 1


def test_a_destination_that_refused_everything_is_retried_in_half_a_minute(trial: Trial) -> None:  # S4
    trial.destination = Destination("orders", PERMANENT | {DestinationDisabled})
    trial.namespaces.fault(Fault(Action.DETACH, Operation.ATTACH, "orders", condition="com.microsoft:entity-disabled"))
    trial.send()
    assert isinstance(trial.destination.state, Rejecting)
    trial.namespaces.emulator.call(trial.namespaces.primary.faults.clear)
    trial.now += 29.9
    trial.send()
    assert (len(trial.results.refused), len(trial.results.accepted)) == (2, 0)
    trial.now += 0.1
    trial.send()
    assert (len(trial.results.refused), len(trial.results.accepted)) == (2, 1)


def test_a_destination_that_does_not_answer_for_a_minute_is_left_alone(trial: Trial) -> None:  # S4, S8, D10
    silent = trial.namespaces.fault(Fault(Action.LOSE_REPLY, Operation.SEND, "orders", times=1))
    before = time.monotonic()
    trial.offer(None)
    trial.turn(lambda: silent.struck == 1)
    after = time.monotonic()
    trial.now = before + 60
    trial.turn_once()
    assert isinstance(trial.destination.state, Available)
    trial.now = after + 60.001
    trial.turn(lambda: len(trial.results.left) == 1)
    state = trial.destination.state
    assert isinstance(state, BackingOff)
    assert isinstance(state.because, DestinationSilent)
    assert "'orders' has not answered for 60 seconds" in str(state.because)
    assert trial.results.left[0][0].possible_duplicate  # it has arrived, and the answer was lost


def test_a_few_messages_without_a_key_do_not_wait_for_those_with_keys(trial: Trial) -> None:  # S3
    """A small batch waits while others are in flight. If there are always others, that could be forever."""
    unanswered = trial.namespaces.fault(Fault(Action.LOSE_REPLY, Operation.SEND, "orders", times=1))
    trial.offer("first")
    trial.turn(lambda: unanswered.struck == 1)
    trial.offer(None)
    trial.offer("second")
    trial.turn(lambda: len(trial.results.accepted) == 2)


def test_one_that_was_stuck_when_it_failed_has_its_time_again_after_the_wait(trial: Trial) -> None:  # S3
    trial.destination._stuck_since = trial.now - 100
    trial.destination._fail(DestinationBusy(), trial.now)
    trial.now += 10
    trial.send()  # the link must be opened first
    assert (len(trial.results.accepted), len(trial.results.left)) == (1, 0)


def test_a_link_that_is_owed_an_answer_is_watched_when_nothing_waits_for_it_any_more(trial: Trial) -> None:  # S3
    """Otherwise it stays until the connection counts as dead, and all destinations with it."""
    hung = trial.namespaces.fault(Fault(Action.HANG, Operation.ATTACH, "orders"))
    destinations = Destinations(PumpOptions(), Traces(), lambda _: None, Renames())
    trial.offer(None)
    (waits,) = trial.destination.take_unsent()
    found = destinations.find(EntityPath.of("orders"))
    assert isinstance(found, Destination)
    destinations.offer(found, waits)
    began = time.monotonic()

    def left(seconds: float) -> int:
        return sum(len(done.left) for _, done in destinations.work(trial.connection, began + seconds))

    def is_attaching() -> bool:
        assert left(0) == 0
        return hung.struck == 1

    trial.turn(is_attaching)
    assert (left(11), found.has_link()) == (1, True)
    assert (left(80), found.has_link()) == (0, False)


def test_a_destination_that_backs_off_is_shown_with_reason_time_and_messages_left(
    namespaces: TwoNamespaces,
) -> None:  # D7
    namespaces.queue("orders")
    namespaces.queue("full")
    namespaces.emulator.call(lambda: setattr(namespaces.primary.entity("full"), "quota_bytes", 0))
    namespaces.put(*(aliased(f"{i}", "full" if i % 2 else "orders") for i in range(20)))
    pump, _ = namespaces.run()
    (waiting,) = pump.backing_off()
    assert (waiting.path, waiting.left) == ("full", 10)
    assert 0 < waiting.seconds <= 30
    assert "amqp:resource-limit-exceeded" in waiting.reason
