"""The pump on a good day and on bad ones, between real namespaces."""

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
from syphon.emulator import Action, Fault, Operation, Outage
from syphon.emulator.broker.message import BrokeredMessage
from syphon.model.entity_path import PathPatterns
from syphon.model.errors import DestinationMissing
from syphon.model.outcome import Result
from syphon.transfer.pump import PERMANENT
from tests.transfer.conftest import BACKLOG, PATIENT, Bench, aliased


def test_messages_go_to_the_destinations_they_were_meant_for(bench: Bench) -> None:  # S2, S3
    for name in ("orders", "billing/paid"):
        bench.queue(name)
    bench.put(*(aliased(f"o{i}", "orders", message_id=f"o{i}") for i in range(250)))
    bench.put(*(aliased(f"b{i}", "billing/paid", message_id=f"b{i}") for i in range(30)))
    pump, outcomes = bench.run()
    assert sorted(str(m) for m in bench.take("orders", 250)) == sorted(f"o{i}" for i in range(250))
    assert sorted(str(m) for m in bench.take("billing/paid", 30)) == sorted(f"b{i}" for i in range(30))
    assert (pump.counters.received, pump.counters.forwarded, pump.counters.left) == (280, 280, 0)
    assert bench.active(BACKLOG, "contoso-dr") == 0
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    assert {outcome.message_id for outcome in outcomes} == {f"o{i}" for i in range(250)} | {f"b{i}" for i in range(30)}
    assert all(not outcome.possible_duplicate and outcome.sequence_number > 0 for outcome in outcomes)


def test_an_outcome_says_all_that_can_be_known_of_a_transfer(bench: Bench) -> None:  # S2, D9
    bench.queue("sessions", requires_session=True)
    began = time.time_ns() // 1_000_000
    bench.put(aliased("hello", "sessions", message_id="m1", application_properties={"x-ms-sessionid": "alice"}))
    with bench.client("contoso-dr").get_queue_receiver(BACKLOG) as receiver:
        (before,) = receiver.receive_messages(1, max_wait_time=20)
        receiver.abandon_message(before)
    pump, (outcome,) = bench.run()
    assert (outcome.queue, outcome.sequence_number, outcome.message_id) == (BACKLOG, before.sequence_number, "m1")
    assert (outcome.destination, outcome.session_id, outcome.delivery_count) == ("sessions", "alice", 1)
    assert (outcome.result, outcome.reason, outcome.possible_duplicate) == (Result.FORWARDED, "", False)
    assert outcome.forwarded_at is not None
    times = began, outcome.enqueued_at, outcome.received_at, outcome.forwarded_at, outcome.settled_at
    assert list(times) == sorted(times)
    assert outcome.size == pump.counters.bytes_forwarded > len("hello")
    assert (pump.counters.in_hand, pump.counters.bytes_in_hand) == (0, 0)


def test_the_aliases_are_gone_and_the_rest_is_as_the_sender_made_it(bench: Bench) -> None:  # M2
    bench.queue("sessions", requires_session=True)
    bench.put(
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
    bench.run()
    with bench.client("contoso").get_queue_receiver("sessions", session_id="alice") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=20)
        assert (str(message), message.message_id, message.session_id) == ("hello", "m1", "alice")
        assert (message.subject, message.content_type, message.correlation_id) == ("s", "text/plain", "c")
        assert message.application_properties == {b"colour": b"red"}
        receiver.complete_message(message)


def test_a_message_cannot_steer_itself_to_what_is_no_destination(bench: Bench) -> None:  # D13
    paths = {"contoso/x-servicebus-transfer/1", "orders/$management", "news/subscriptions/all"}
    bench.put(*(aliased("x", path) for path in paths))
    _, outcomes = bench.run()
    assert {outcome.destination for outcome in outcomes} == paths
    assert {outcome.result for outcome in outcomes} == {Result.DEAD_LETTERED}
    assert all("DestinationNotAllowed" in outcome.reason for outcome in outcomes)


def test_a_message_that_has_no_id_has_none_in_the_account(bench: Bench) -> None:  # D9
    bench.queue("orders")
    bench.smuggle(to_backlog(data_section(b"x"), "orders"))
    _, (outcome,) = bench.run()
    assert (outcome.result, outcome.message_id) == (Result.FORWARDED, "")


def test_time_to_live_and_schedule_are_the_senders_again(bench: Bench) -> None:  # M2, M3, M5, M6
    bench.queue("orders")
    now, hour = time.time_ns() // 1_000_000, 3_600_000

    def message(message_id: str, due: int) -> BrokeredMessage:
        """As the failover of a .NET sender leaves it: its properties are of types that the SDK cannot send."""
        schedule = Map.symbols({"x-opt-scheduled-enqueue-time": Timestamp(due)})
        sent = header_bytes(Header(ttl=UInt(hour))) + section_bytes(Section.MESSAGE_ANNOTATIONS, schedule)
        return BrokeredMessage.parse(to_backlog(sent + properties_bytes(Properties(message_id=message_id)), "orders"))

    messages = [message("overdue", now - hour), message("later", now + hour)]
    bench.emulator.call(lambda: bench.secondary.line(BACKLOG).enqueue(messages))
    pump, _ = bench.run()
    assert pump.counters.forwarded == 2
    with bench.client("contoso").get_queue_receiver("orders") as receiver:
        found = {str(message.message_id): message for message in receiver.peek_messages(10)}
        (overdue,) = receiver.receive_messages(10, max_wait_time=20)  # a time that has passed means now
        receiver.complete_message(overdue)
    assert overdue.message_id == "overdue"
    assert found["later"].state is ServiceBusMessageState.SCHEDULED
    assert found["later"].scheduled_enqueue_time_utc == datetime.fromtimestamp((now + hour) / 1000, UTC)
    for arrived in found.values():
        assert arrived.time_to_live == timedelta(hours=1)
        assert not arrived.application_properties


def test_only_destinations_the_operator_allows_are_served(bench: Bench) -> None:  # D13
    bench.queue("orders")
    bench.queue("secret")
    bench.put(aliased("a", "orders"), aliased("b", "secret"))
    pump, _ = bench.run(replace(PATIENT, allow=PathPatterns.of(["ord*"])))
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (1, 1)
    assert bench.active("secret") == 0


def test_a_missing_destination_can_be_waited_for_instead(bench: Bench) -> None:  # S4
    bench.put(aliased("x", "later"))
    pump, outcomes = bench.run(replace(PATIENT, permanent=PERMANENT - {DestinationMissing}))
    assert (pump.counters.left, pump.counters.dead_lettered) == (1, 0)
    assert outcomes[0].result is Result.LEFT
    assert bench.active(BACKLOG, "contoso-dr") == 1


def test_a_refused_batch_is_split_until_the_bad_message_stands_alone(bench: Bench) -> None:  # D6
    bench.queue("orders")
    good = [aliased(f"{i}", "orders", message_id=f"{i}") for i in range(199)]
    bench.put(*good[:50])
    bench.smuggle(
        section_bytes(Section.PROPERTIES, ["x" * 129])
        + section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"x-ms-path": "orders"}))
    )
    bench.put(*good[50:99])
    with bench.running() as (pump, outcomes, _):
        bench.wait(lambda: (pump.counters.forwarded, pump.counters.dead_lettered) == (99, 1))
        sends = sum(pump.destinations.send_times.counts)
        bench.put(*good[99:])
        bench.wait(lambda: pump.counters.forwarded == 199)
        assert sum(pump.destinations.send_times.counts) - sends < 50, "one bad message, and they go together again"
    assert [outcome.message_id for outcome in outcomes if outcome.result is Result.DEAD_LETTERED] == ["x" * 129]
    assert sorted(message.message_id for message in bench.take("orders", 199)) == sorted(f"{i}" for i in range(199))
    assert pump.counters.possible_duplicates == 0


def test_a_lost_reply_means_again_with_the_same_id_and_is_counted(bench: Bench) -> None:  # D10
    bench.queue("orders")
    fault = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, "orders", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(fault))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    pump, outcomes = bench.run()
    arrived = [message.message_id for message in bench.take("orders", bench.active("orders"))]
    assert set(arrived) == {f"{i}" for i in range(50)}
    assert len(arrived) <= 100
    assert pump.counters.forwarded == 50
    assert pump.counters.possible_duplicates == sum(outcome.possible_duplicate for outcome in outcomes) > 0
    assert len(arrived) - 50 <= pump.counters.possible_duplicates


def test_with_duplicate_detection_the_repeat_disappears(bench: Bench) -> None:  # S2
    bench.queue("orders", requires_duplicate_detection=True)
    fault = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, "orders", times=1)
    bench.emulator.call(lambda: bench.primary.faults.add(fault))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    bench.run()
    assert sorted(message.message_id for message in bench.take("orders", 50)) == sorted(f"{i}" for i in range(50))


def test_a_lock_lost_before_the_completion_is_a_possible_duplicate_and_no_error(  # S6
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.queue("orders")
    fault = Fault(Action.LOSE_LOCK, Operation.SETTLE, BACKLOG, times=1)
    bench.emulator.call(lambda: bench.secondary.faults.add(fault))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(10)))
    pump, _ = bench.run()
    arrived = [message.message_id for message in bench.take("orders", 11)]
    assert set(arrived) == {f"{i}" for i in range(10)}
    assert (pump.counters.forwarded, pump.counters.left, pump.counters.possible_duplicates) == (11, 0, 1)
    (told,) = (record.getMessage() for record in caplog.records if record.name == "syphon.transfer.completions")
    assert f"a message of {BACKLOG} was forwarded and could not be completed" in told
    assert len(arrived) == 11
    assert bench.active(BACKLOG, "contoso-dr") == 0


def test_a_detached_receiver_is_opened_again_and_nothing_is_lost(bench: Bench) -> None:  # WIRE: forced detaches
    bench.queue("orders")
    fault = Fault(Action.DETACH, Operation.RECEIVE, BACKLOG, times=1)
    bench.emulator.call(lambda: bench.secondary.faults.add(fault))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(100)))
    pump, _ = bench.run()
    assert {message.message_id for message in bench.take("orders", 100)} == {f"{i}" for i in range(100)}
    assert pump.counters.forwarded == 100


def test_an_outage_of_the_primary_leaves_everything_in_the_backlog(bench: Bench) -> None:  # S4, C3
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(20)))
    bench.emulator.call(lambda: bench.primary.faults.begin_outage(Outage.REFUSE))
    pump, outcomes = bench.run()
    assert (pump.counters.left, pump.counters.forwarded, pump.counters.dead_lettered) == (20, 0, 0)
    assert all("contoso" in outcome.reason or "127.0.0.1" in outcome.reason for outcome in outcomes)
    assert bench.active(BACKLOG, "contoso-dr") == 20


def test_many_destinations_share_few_links(bench: Bench) -> None:  # D5
    for i in range(120):
        bench.queue(f"d{i}")
    bench.put(*(aliased(f"{i}", f"d{i % 120}") for i in range(600)))

    def links() -> int:
        return sum(len(bench.primary.entity(f"d{i}").links) for i in range(120))

    most = 0
    with bench.pump(replace(PATIENT, max_links=20)) as (pump, _):
        for _ in bench.turns(pump):
            most = max(most, bench.emulator.call(links))
    assert 0 < most <= 20
    assert pump.counters.forwarded == 600
    assert all(bench.active(f"d{i}") == 5 for i in range(120))
