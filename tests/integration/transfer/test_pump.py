"""The pump between real namespaces: the way of a message, without faults and with them."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessageState

from syphon.amqp import (
    Header,
    Map,
    Properties,
    Section,
    Timestamp,
    UInt,
    data_section,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.backlog import to_backlog
from syphon.emulator import Action, EntityStatus, Fault, Operation
from syphon.emulator.broker.message import BrokeredMessage
from syphon.model import DestinationError
from syphon.model.entity_path import PathPatterns
from syphon.model.errors import DestinationDisabled, DestinationMissing
from syphon.model.outcomes import Result
from syphon.transfer.pump import PERMANENT, DestinationBackoff
from tests.integration.transfer.conftest import BACKLOG, PATIENT, TwoNamespaces, aliased


def test_messages_go_to_the_destinations_they_were_meant_for(namespaces: TwoNamespaces) -> None:  # S2, S3
    for name in ("orders", "billing/paid"):
        namespaces.queue(name)
    namespaces.put(*(aliased(f"o{i}", "orders", message_id=f"o{i}") for i in range(250)))
    namespaces.put(*(aliased(f"b{i}", "billing/paid", message_id=f"b{i}") for i in range(30)))
    pump, outcomes = namespaces.run()
    assert sorted(str(m) for m in namespaces.take("orders", 250)) == sorted(f"o{i}" for i in range(250))
    assert sorted(str(m) for m in namespaces.take("billing/paid", 30)) == sorted(f"b{i}" for i in range(30))
    assert (pump.counters.received, pump.counters.forwarded, pump.counters.left) == (280, 280, 0)
    assert namespaces.active(BACKLOG, "contoso-dr") == 0
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    assert {outcome.message_id for outcome in outcomes} == {f"o{i}" for i in range(250)} | {f"b{i}" for i in range(30)}
    assert all(not outcome.possible_duplicate and outcome.sequence_number > 0 for outcome in outcomes)


def test_an_outcome_says_all_that_can_be_known_of_a_transfer(namespaces: TwoNamespaces) -> None:  # S2, D9
    namespaces.queue("sessions", requires_session=True)
    began = time.time_ns() // 1_000_000
    namespaces.put(aliased("hello", "sessions", message_id="m1", application_properties={"x-ms-sessionid": "alice"}))
    with namespaces.client("contoso-dr").get_queue_receiver(BACKLOG) as receiver:
        (before,) = receiver.receive_messages(1, max_wait_time=20)
        receiver.abandon_message(before)
    pump, (outcome,) = namespaces.run()
    assert (outcome.queue, outcome.sequence_number, outcome.message_id) == (BACKLOG, before.sequence_number, "m1")
    assert (outcome.destination, outcome.session_id, outcome.delivery_count) == ("sessions", "alice", 1)
    assert (outcome.result, outcome.reason, outcome.possible_duplicate) == (Result.FORWARDED, "", False)
    assert outcome.forwarded_at is not None
    times = began, outcome.enqueued_at, outcome.received_at, outcome.forwarded_at, outcome.settled_at
    assert list(times) == sorted(times)
    assert outcome.size == pump.counters.bytes_forwarded > len("hello")
    assert (pump.counters.in_flight, pump.counters.bytes_in_flight) == (0, 0)


def test_the_aliases_are_removed_and_the_rest_is_as_the_sender_made_it(namespaces: TwoNamespaces) -> None:  # M2
    namespaces.queue("sessions", requires_session=True)
    namespaces.put(
        aliased(
            "hello",
            "sessions",
            message_id="m1",
            subject="s",
            content_type="text/plain",
            correlation_id="c",
            application_properties={"x-ms-sessionid": "alice", "colour": "red"},
        )
    )
    namespaces.run()
    with namespaces.client("contoso").get_queue_receiver("sessions", session_id="alice") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=20)
        assert (str(message), message.message_id, message.session_id) == ("hello", "m1", "alice")
        assert (message.subject, message.content_type, message.correlation_id) == ("s", "text/plain", "c")
        assert message.application_properties == {b"colour": b"red"}
        receiver.complete_message(message)


def test_a_message_cannot_name_a_path_that_is_never_a_destination(namespaces: TwoNamespaces) -> None:  # D13
    paths = {"contoso/x-servicebus-transfer/1", "orders/$management", "news/subscriptions/all"}
    namespaces.put(*(aliased("x", path) for path in paths))
    _, outcomes = namespaces.run()
    assert {outcome.destination for outcome in outcomes} == paths
    assert {outcome.result for outcome in outcomes} == {Result.DEAD_LETTERED}
    assert all("DestinationNotAllowed" in outcome.reason for outcome in outcomes)


def test_a_message_without_an_id_has_none_in_its_outcome(namespaces: TwoNamespaces) -> None:  # D9
    namespaces.queue("orders")
    namespaces.put_raw(to_backlog(data_section(b"x"), "orders"))
    _, (outcome,) = namespaces.run()
    assert (outcome.result, outcome.message_id) == (Result.FORWARDED, "")


def test_time_to_live_and_schedule_are_the_senders_again(namespaces: TwoNamespaces) -> None:  # M2, M3, M5, M6
    namespaces.queue("orders")
    now, hour = time.time_ns() // 1_000_000, 3_600_000

    def message(message_id: str, due: int) -> BrokeredMessage:
        """A message as the failover of a .NET sender makes it: with property types that the SDK cannot send."""
        schedule = Map.symbols({"x-opt-scheduled-enqueue-time": Timestamp(due)})
        sent = header_bytes(Header(ttl=UInt(hour))) + section_bytes(Section.MESSAGE_ANNOTATIONS, schedule)
        return BrokeredMessage.parse(to_backlog(sent + properties_bytes(Properties(message_id=message_id)), "orders"))

    messages = [message("overdue", now - hour), message("later", now + hour)]
    namespaces.emulator.call(lambda: namespaces.secondary.message_queue(BACKLOG).enqueue(messages))
    pump, _ = namespaces.run()
    assert pump.counters.forwarded == 2
    with namespaces.client("contoso").get_queue_receiver("orders") as receiver:
        found = {str(message.message_id): message for message in receiver.peek_messages(10)}
        (overdue,) = receiver.receive_messages(10, max_wait_time=20)  # a time that has passed means now
        receiver.complete_message(overdue)
    assert overdue.message_id == "overdue"
    assert found["later"].state is ServiceBusMessageState.SCHEDULED
    assert found["later"].scheduled_enqueue_time_utc == datetime.fromtimestamp((now + hour) / 1000, UTC)
    for arrived in found.values():
        assert arrived.time_to_live == timedelta(hours=1)
        assert not arrived.application_properties


def test_only_destinations_the_operator_allows_are_served(namespaces: TwoNamespaces) -> None:  # D13
    namespaces.queue("orders")
    namespaces.queue("secret")
    namespaces.put(aliased("a", "orders"), aliased("b", "secret"))
    pump, _ = namespaces.run(replace(PATIENT, allow=PathPatterns.of(["ord*"])))
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (1, 1)
    assert namespaces.active("secret") == 0


def test_messages_for_a_missing_or_disabled_destination_wait_unless_the_operator_gives_them_up(
    namespaces: TwoNamespaces,
) -> None:  # S4
    namespaces.queue("disabled", status=EntityStatus.DISABLED)
    namespaces.put(aliased("x", "missing"), aliased("x", "disabled"))
    with namespaces.pump() as (pump, outcomes):
        namespaces.finish(pump)
        assert {(found.path, found.error) for found in pump.backing_off()} == {
            ("missing", "DestinationMissing"),
            ("disabled", "DestinationDisabled"),
        }
    assert {outcome.result for outcome in outcomes} == {Result.LEFT}
    assert (pump.counters.left, pump.counters.dead_lettered) == (2, 0)
    assert namespaces.active(BACKLOG, "contoso-dr") == 2


def test_messages_that_are_given_up_go_to_the_dead_letters(namespaces: TwoNamespaces) -> None:  # S4
    namespaces.queue("disabled", status=EntityStatus.DISABLED)
    namespaces.put(aliased("x", "missing"), aliased("x", "disabled"))
    pump, _ = namespaces.run(replace(PATIENT, permanent=PERMANENT | {DestinationMissing, DestinationDisabled}))
    assert (pump.counters.left, pump.counters.dead_lettered) == (0, 2)
    assert namespaces.dead(BACKLOG) == 2


def test_a_back_off_that_another_pump_found_keeps_its_error(namespaces: TwoNamespaces) -> None:  # S4
    with namespaces.pump() as (pump, _):
        for name in ("DestinationMissing", "of a later version"):
            pump.back_off(
                DestinationBackoff(name, 30.0, "amqp:not-found: no such entity", 1, 2, DestinationError(name))
            )
        found = {known.path: (known.error, known.reason, known.failures) for known in pump.backing_off()}
    assert found == {
        "DestinationMissing": ("DestinationMissing", "amqp:not-found: no such entity", 2),
        "of a later version": ("Waits", "amqp:not-found: no such entity", 2),
    }


def test_a_refused_batch_is_split_until_the_bad_message_stands_alone(namespaces: TwoNamespaces) -> None:  # D6
    namespaces.queue("orders")
    good = [aliased(f"{i}", "orders", message_id=f"{i}") for i in range(199)]
    namespaces.put(*good[:50])
    namespaces.put_raw(
        section_bytes(Section.PROPERTIES, ["x" * 129])
        + section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"x-ms-path": "orders"}))
    )
    namespaces.put(*good[50:99])
    with namespaces.running() as (pump, outcomes, _):
        namespaces.wait(lambda: (pump.counters.forwarded, pump.counters.dead_lettered) == (99, 1))
        sends = sum(pump.destinations.send_times.counts)
        namespaces.put(*good[99:])
        namespaces.wait(lambda: pump.counters.forwarded == 199)
        assert sum(pump.destinations.send_times.counts) - sends < 50, "one bad message, and they go together again"
    assert [outcome.message_id for outcome in outcomes if outcome.result is Result.DEAD_LETTERED] == ["x" * 129]
    assert sorted(message.message_id for message in namespaces.take("orders", 199)) == sorted(
        f"{i}" for i in range(199)
    )
    assert pump.counters.possible_duplicates == 0


def test_a_lost_reply_means_again_with_the_same_id_and_is_counted(namespaces: TwoNamespaces) -> None:  # D10
    namespaces.queue("orders")
    fault = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, "orders", times=1)
    namespaces.emulator.call(lambda: namespaces.primary.faults.add(fault))
    namespaces.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    pump, outcomes = namespaces.run()
    arrived = [message.message_id for message in namespaces.take("orders", namespaces.active("orders"))]
    assert set(arrived) == {f"{i}" for i in range(50)}
    assert len(arrived) <= 100
    assert pump.counters.forwarded == 50
    assert pump.counters.possible_duplicates == sum(outcome.possible_duplicate for outcome in outcomes) > 0
    assert len(arrived) - 50 <= pump.counters.possible_duplicates


def test_with_duplicate_detection_the_repeat_disappears(namespaces: TwoNamespaces) -> None:  # S2
    namespaces.queue("orders", requires_duplicate_detection=True)
    fault = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, "orders", times=1)
    namespaces.emulator.call(lambda: namespaces.primary.faults.add(fault))
    namespaces.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    namespaces.run()
    assert sorted(message.message_id for message in namespaces.take("orders", 50)) == sorted(f"{i}" for i in range(50))


def test_a_lock_lost_before_the_completion_is_a_possible_duplicate_and_no_error(  # S6
    namespaces: TwoNamespaces, caplog: pytest.LogCaptureFixture
) -> None:
    namespaces.queue("orders")
    fault = Fault(Action.LOSE_LOCK, Operation.SETTLE, BACKLOG, times=1)
    namespaces.emulator.call(lambda: namespaces.secondary.faults.add(fault))
    namespaces.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(10)))
    pump, _ = namespaces.run()
    arrived = [message.message_id for message in namespaces.take("orders", 11)]
    assert set(arrived) == {f"{i}" for i in range(10)}
    assert (pump.counters.forwarded, pump.counters.left, pump.counters.possible_duplicates) == (11, 0, 1)
    (told,) = (record.getMessage() for record in caplog.records if record.name == "syphon.transfer.settlement")
    assert f"a message of {BACKLOG} was forwarded but not completed" in told
    assert len(arrived) == 11
    assert namespaces.active(BACKLOG, "contoso-dr") == 0


def test_a_detached_receiver_is_opened_again_and_nothing_is_lost(
    namespaces: TwoNamespaces,
) -> None:  # WIRE: forced detaches
    namespaces.queue("orders")
    fault = Fault(Action.DETACH, Operation.RECEIVE, BACKLOG, times=1)
    namespaces.emulator.call(lambda: namespaces.secondary.faults.add(fault))
    namespaces.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(100)))
    pump, _ = namespaces.run()
    assert {message.message_id for message in namespaces.take("orders", 100)} == {f"{i}" for i in range(100)}
    assert pump.counters.forwarded == 100


def test_many_destinations_share_few_links(namespaces: TwoNamespaces) -> None:  # D5
    for i in range(120):
        namespaces.queue(f"d{i}")
    namespaces.put(*(aliased(f"{i}", f"d{i % 120}") for i in range(600)))

    def links() -> int:
        return sum(len(namespaces.primary.entity(f"d{i}").links) for i in range(120))

    most = 0
    with namespaces.pump(replace(PATIENT, max_links=20)) as (pump, _):
        for _ in namespaces.turns(pump):
            most = max(most, namespaces.emulator.call(links))
    assert 0 < most <= 20
    assert pump.counters.forwarded == 600
    assert all(namespaces.active(f"d{i}") == 5 for i in range(120))
