"""The pump on a good day and on bad ones, between real namespaces."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from azure.servicebus import ServiceBusSubQueue

from syphon.amqp import Map, Section, data_section, section_bytes
from syphon.backlog import to_backlog
from syphon.emulator import Action, Fault, Operation, Outage
from syphon.errors import DestinationBusy, DestinationMissing
from syphon.transfer.destination import Waiting
from syphon.transfer.outcomes import Result
from syphon.transfer.pump import PERMANENT

from .conftest import BACKLOG, QUICK, Bench, aliased


def test_messages_go_to_the_destinations_they_were_meant_for(bench: Bench) -> None:  # S2, S3
    for name in ("orders", "billing/paid"):
        bench.queue(name)
    bench.put(*(aliased(f"o{i}", "orders", message_id=f"o{i}") for i in range(250)))
    bench.put(*(aliased(f"b{i}", "billing/paid", message_id=f"b{i}") for i in range(30)))
    pump, outcomes = bench.run()
    assert sorted(str(m) for m in bench.take("orders", 250)) == sorted(f"o{i}" for i in range(250))
    assert sorted(str(m) for m in bench.take("billing/paid", 30)) == sorted(f"b{i}" for i in range(30))
    assert (pump.tally.received, pump.tally.forwarded, pump.tally.left) == (280, 280, 0)
    assert bench.active(BACKLOG, "contoso-dr") == 0
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    assert {outcome.message_id for outcome in outcomes} == {f"o{i}" for i in range(250)} | {f"b{i}" for i in range(30)}
    assert all(not outcome.possible_duplicate and outcome.sequence_number > 0 for outcome in outcomes)


def test_the_aliases_are_gone_and_the_rest_is_as_the_sender_made_it(bench: Bench) -> None:  # M2
    bench.queue("sessions", requires_session=True)
    bench.put(aliased(
        "hello", "sessions", message_id="m1", subject="s", content_type="text/plain", correlation_id="c",
        application_properties={"x-ms-sessionid": "alice", "colour": "red"},
    ))  # fmt: skip
    bench.run()
    with bench.client("contoso").get_queue_receiver("sessions", session_id="alice") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        assert (str(message), message.message_id, message.session_id) == ("hello", "m1", "alice")
        assert (message.subject, message.content_type, message.correlation_id) == ("s", "text/plain", "c")
        assert message.application_properties == {b"colour": b"red"}
        receiver.complete_message(message)


def test_a_message_that_has_no_id_has_none_in_the_account(bench: Bench) -> None:  # D9
    bench.queue("orders")
    bench.smuggle(to_backlog(data_section(b"x"), "orders"))
    _, (outcome,) = bench.run()
    assert (outcome.result, outcome.message_id) == (Result.FORWARDED, "")


def test_a_message_without_a_path_is_dead_lettered_with_the_reason(bench: Bench) -> None:  # M4
    bench.put(aliased("lost?", ""))
    pump, outcomes = bench.run()
    assert (pump.tally.dead_lettered, pump.tally.forwarded) == (1, 0)
    with bench.client("contoso-dr").get_queue_receiver(BACKLOG, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (letter,) = receiver.receive_messages(1, max_wait_time=5)
        assert "x-ms-path" in str(letter.dead_letter_error_description)
        assert letter.dead_letter_reason
        assert str(letter) == "lost?"
    assert outcomes[0].result is Result.DEAD_LETTERED
    assert "x-ms-path" in outcomes[0].reason


@pytest.mark.parametrize("path", ["contoso/x-servicebus-transfer/1", "orders/$management", "news/subscriptions/all"])
def test_a_message_cannot_steer_itself_to_what_is_no_destination(bench: Bench, path: str) -> None:  # D13
    bench.put(aliased("x", path))
    pump, outcomes = bench.run()
    assert pump.tally.dead_lettered == 1
    assert "DestinationNotAllowed" in outcomes[0].reason


def test_only_destinations_the_operator_allows_are_served(bench: Bench) -> None:  # D13
    bench.queue("orders")
    bench.queue("secret")
    bench.put(aliased("a", "orders"), aliased("b", "secret"))
    pump, _ = bench.run(replace(QUICK, allow=("ord*",)))
    assert (pump.tally.forwarded, pump.tally.dead_lettered) == (1, 1)
    assert bench.active("secret") == 0


def test_a_missing_destination_goes_to_the_dead_letters_and_the_others_arrive(bench: Bench) -> None:  # S3, S4
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders" if i % 2 else "gone") for i in range(60)))
    pump, outcomes = bench.run()
    assert (pump.tally.forwarded, pump.tally.dead_lettered, pump.tally.left) == (30, 30, 0)
    assert bench.dead(BACKLOG) == 30
    assert all("gone" in outcome.reason for outcome in outcomes if outcome.result is Result.DEAD_LETTERED)


def test_a_missing_destination_can_be_waited_for_instead(bench: Bench) -> None:  # S4
    bench.put(aliased("x", "later"))
    pump, outcomes = bench.run(replace(QUICK, permanent=PERMANENT - {DestinationMissing}))
    assert (pump.tally.left, pump.tally.dead_lettered) == (1, 0)
    assert outcomes[0].result is Result.LEFT
    assert bench.active(BACKLOG, "contoso-dr") == 1


def test_a_full_destination_keeps_its_messages_in_the_backlog(bench: Bench) -> None:  # S3, S4
    bench.queue("full")
    bench.queue("orders")
    bench.emulator.call(lambda: setattr(bench.primary.entity("full"), "quota_bytes", 0))
    bench.put(*(aliased(f"{i}", "full" if i % 10 else "orders") for i in range(200)))
    pump, _ = bench.run()
    assert (pump.tally.forwarded, pump.tally.left) == (20, 180)
    assert len(bench.take("orders", 20)) == 20
    assert bench.active(BACKLOG, "contoso-dr") == 180


def test_a_busy_destination_is_left_alone_for_ten_seconds(bench: Bench) -> None:  # S5
    bench.queue("orders")
    busy = Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy")
    bench.emulator.call(lambda: bench.primary.faults.add(busy))
    bench.put(*(aliased(f"{i}", "orders") for i in range(50)))
    began = time.monotonic()
    pump, _ = bench.run()
    state = pump.destinations["orders"].state
    assert isinstance(state, Waiting)
    assert isinstance(state.because, DestinationBusy)
    assert state.until - began >= 10.0
    assert busy.struck == 1
    assert pump.tally.left == 50


def test_a_refused_batch_is_split_until_the_bad_message_stands_alone(bench: Bench) -> None:  # D6
    bench.queue("orders")
    good = [aliased(f"{i}", "orders", message_id=f"{i}") for i in range(99)]
    bench.put(*good[:50])
    bench.smuggle(section_bytes(Section.PROPERTIES, ["x" * 129]) + section_bytes(
        Section.APPLICATION_PROPERTIES, Map.of({"x-ms-path": "orders"})
    ))  # fmt: skip
    bench.put(*good[50:])
    pump, outcomes = bench.run()
    assert [outcome.message_id for outcome in outcomes if outcome.result is Result.DEAD_LETTERED] == ["x" * 129]
    assert sorted(message.message_id for message in bench.take("orders", 99)) == sorted(f"{i}" for i in range(99))
    assert pump.tally.possible_duplicates == 0


def test_a_lost_reply_means_again_with_the_same_id_and_is_counted(bench: Bench) -> None:  # D10
    bench.queue("orders")
    fault = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, "orders", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(fault))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    pump, outcomes = bench.run()
    arrived = [message.message_id for message in bench.take("orders", 100)]
    assert set(arrived) == {f"{i}" for i in range(50)}
    assert len(arrived) <= 100
    assert pump.tally.forwarded == 50
    assert pump.tally.possible_duplicates == sum(outcome.possible_duplicate for outcome in outcomes) > 0
    assert len(arrived) - 50 <= pump.tally.possible_duplicates


def test_with_duplicate_detection_the_repeat_disappears(bench: Bench) -> None:  # S2
    bench.queue("orders", requires_duplicate_detection=True)
    fault = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, "orders", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(fault))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    bench.run()
    assert sorted(message.message_id for message in bench.take("orders", 50)) == sorted(f"{i}" for i in range(50))


def test_a_lock_lost_before_the_completion_is_a_possible_duplicate_and_no_error(bench: Bench) -> None:  # S6
    bench.queue("orders")
    fault = Fault(Action.LOSE_LOCK, Operation.SETTLE, BACKLOG, times=1)
    bench.emulator.call(lambda: bench.secondary.faults.add(fault))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(10)))
    pump, _ = bench.run()
    arrived = [message.message_id for message in bench.take("orders", 11)]
    assert set(arrived) == {f"{i}" for i in range(10)}
    assert pump.tally.possible_duplicates == 1
    assert len(arrived) == 11
    assert bench.active(BACKLOG, "contoso-dr") == 0


def test_a_detached_receiver_is_opened_again_and_nothing_is_lost(bench: Bench) -> None:  # WIRE: forced detaches
    bench.queue("orders")
    fault = Fault(Action.DETACH, Operation.RECEIVE, BACKLOG, times=1)
    bench.emulator.call(lambda: bench.secondary.faults.add(fault))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(100)))
    pump, _ = bench.run()
    assert {message.message_id for message in bench.take("orders", 100)} == {f"{i}" for i in range(100)}
    assert pump.tally.forwarded == 100


def test_an_outage_of_the_primary_leaves_everything_in_the_backlog(bench: Bench) -> None:  # S4, C3
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(20)))
    bench.emulator.call(lambda: bench.primary.faults.begin_outage(Outage.REFUSE))
    pump, outcomes = bench.run()
    assert (pump.tally.left, pump.tally.forwarded, pump.tally.dead_lettered) == (20, 0, 0)
    assert all("contoso" in outcome.reason or "127.0.0.1" in outcome.reason for outcome in outcomes)
    assert bench.active(BACKLOG, "contoso-dr") == 20


def test_many_destinations_share_few_links(bench: Bench) -> None:  # D5
    for i in range(120):
        bench.queue(f"d{i}")
    bench.put(*(aliased(f"{i}", f"d{i % 120}") for i in range(600)))
    pump, _ = bench.run(replace(QUICK, max_links=20))
    assert pump.tally.forwarded == 600
    assert sum(destination.has_link() for destination in pump.destinations) == 0
    assert all(bench.active(f"d{i}") == 5 for i in range(120))
