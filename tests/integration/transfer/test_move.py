"""A pump with a plan of a move: from any queue to any entity, without a trace at the source (X12)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage

from syphon.backlog import LetterEdit
from syphon.emulator import QueueDescription
from syphon.emulator.broker.message import BrokeredMessage
from syphon.model import EntityPath, MessageFilter, Outcome, Result
from syphon.sql import Where
from syphon.transfer import MovePlan, Pump, PumpOptions
from tests.integration.transfer.conftest import PATIENT, TwoNamespaces

SOURCE, TARGET = "source", "target"
DEAD = f"{SOURCE}/$deadletterqueue"


def plan(**options: Any) -> MovePlan:
    return MovePlan("contoso-dr/source", EntityPath.of(TARGET), **options)


def source(namespaces: TwoNamespaces, *messages: ServiceBusMessage, **options: Any) -> None:
    namespaces.emulator.call(lambda: namespaces.secondary.create_queue(QueueDescription(SOURCE, **options)))
    namespaces.put(*messages, queue=SOURCE)


def moved(
    namespaces: TwoNamespaces, queue: str = SOURCE, options: PumpOptions = PATIENT, **planned: Any
) -> tuple[Pump, list[Outcome]]:
    with namespaces.pump(replace(options, move=plan(**planned)), queue) as (pump, outcomes):
        namespaces.finish(pump)
        return pump, outcomes


def messages(namespaces: TwoNamespaces, path: str, namespace: str) -> list[BrokeredMessage]:
    line = namespaces.emulator[namespace].namespace.message_queue(path)
    return namespaces.emulator.call(lambda: list(line.peek(0, 1000)))


def full(number: int) -> ServiceBusMessage:
    """A message that uses what a message has."""
    return ServiceBusMessage(
        f"body {number}",
        message_id=f"m{number}",
        session_id="s1",
        correlation_id="c",
        subject="invoice",
        reply_to="answers",
        to="x",
        content_type="text/plain",
        time_to_live=timedelta(hours=2),
        application_properties={"x-ms-path": "elsewhere", "DeadLetterReason": "mine", "number": number},
    )


def test_messages_arrive_byte_for_byte_and_the_source_is_empty(namespaces: TwoNamespaces) -> None:  # X12, S2
    namespaces.queue(TARGET)
    source(namespaces, *(full(number) for number in range(30)))
    before = messages(namespaces, SOURCE, "contoso-dr")
    pump, outcomes = moved(namespaces)
    assert (pump.counters.forwarded, pump.counters.left) == (30, 0)
    assert {(outcome.destination, outcome.result) for outcome in outcomes} == {(TARGET, Result.FORWARDED)}
    after = messages(namespaces, TARGET, "contoso")
    assert sorted(each.bare for each in after) == sorted(each.bare for each in before)
    assert {each.ttl for each in after} == {7_200_000}
    assert not messages(namespaces, SOURCE, "contoso-dr")


def test_dead_letters_arrive_without_the_reason_and_with_edits(namespaces: TwoNamespaces) -> None:  # X12, X4
    namespaces.queue(TARGET)
    source(namespaces, ServiceBusMessage("x", application_properties={"colour": "red"}, message_id="m1"))
    with namespaces.client("contoso-dr").get_queue_receiver(SOURCE) as receiver:
        (message,) = receiver.receive_messages(1, 20)
        receiver.dead_letter_message(message, reason="Broken", error_description="by the owner")
    moved(namespaces, DEAD, edit=LetterEdit.of(["number:int=7"], ["colour"]), are_dead_letters=True)
    (found,) = namespaces.take(TARGET, 1)
    assert (str(found), found.message_id, found.application_properties) == ("x", "m1", {b"number": 7})
    assert not messages(namespaces, DEAD, "contoso-dr")


def untouched(namespaces: TwoNamespaces, count: int, path: str = SOURCE) -> None:
    """The messages can be received at once, and none counts a delivery: they belong to somebody else."""
    found = messages(namespaces, path, "contoso-dr")
    assert [(each.lock_token, each.delivery_count, each.state.name) for each in found] == [(None, 0, "ACTIVE")] * count
    assert not namespaces.dead(SOURCE)


def test_what_a_filter_does_not_select_is_left_as_it_was(namespaces: TwoNamespaces) -> None:  # X12, X13
    namespaces.queue(TARGET)
    source(namespaces, *(ServiceBusMessage(str(n), application_properties={"n": n}) for n in range(20)))
    pump, _ = moved(namespaces, options=replace(PATIENT, messages=MessageFilter(where=Where("n % 2 = 0"))))
    assert (pump.counters.forwarded, pump.counters.outside, pump.counters.left) == (10, 10, 10)
    assert {str(each) for each in namespaces.take(TARGET, 10)} == {str(n) for n in range(0, 20, 2)}
    untouched(namespaces, 10)


def test_a_limit_counts_only_what_the_filter_selects(namespaces: TwoNamespaces) -> None:  # X12, X13
    namespaces.queue(TARGET)
    source(namespaces, *(ServiceBusMessage(str(n), application_properties={"n": n}) for n in range(20)))
    behind = MessageFilter(where=Where("n >= 10"))
    pump, _ = moved(namespaces, options=replace(PATIENT, messages=behind, limit=4))
    assert (pump.counters.forwarded, pump.counters.outside) == (4, 10)
    untouched(namespaces, 16)


def test_a_message_that_the_target_never_takes_stays_with_a_reason(namespaces: TwoNamespaces) -> None:  # X12
    namespaces.queue(TARGET, requires_session=True)
    source(namespaces, ServiceBusMessage("no session"), ServiceBusMessage("one", session_id="s"))
    pump, outcomes = moved(namespaces)
    assert (pump.counters.forwarded, pump.counters.dead_lettered, pump.counters.left) == (1, 0, 1)
    (left,) = (outcome for outcome in outcomes if outcome.result is Result.LEFT)
    assert "session" in left.reason.lower()
    untouched(namespaces, 1)


def test_messages_for_a_missing_target_are_released_and_not_deferred(namespaces: TwoNamespaces) -> None:  # X12
    source(namespaces, *(ServiceBusMessage(str(n)) for n in range(5)))
    with namespaces.running(replace(PATIENT, move=plan()), SOURCE) as (pump, outcomes, _):
        namespaces.wait(lambda: len(outcomes) >= 5 and bool(pump.backing_off()))
        assert not pump.counters.moved
        namespaces.wait(lambda: not namespaces.locked(SOURCE))
        untouched(namespaces, 5)


def test_a_new_id_is_the_same_however_often_a_message_is_sent(namespaces: TwoNamespaces) -> None:  # X12, S2
    namespaces.queue(TARGET)
    source(namespaces, ServiceBusMessage("x", message_id="old"), ServiceBusMessage("y", message_id="old"))
    raw = messages(namespaces, SOURCE, "contoso-dr")
    _, outcomes = moved(namespaces, new_ids=True)
    found = {str(each): each.message_id for each in namespaces.take(TARGET, 2)}
    assert len({"old", *found.values()}) == 3
    assert {(outcome.message_id, outcome.reason) for outcome in outcomes} == {
        (new, "Its message id was old.") for new in found.values()
    }
    assert len(raw) == 2


def test_a_source_that_was_created_again_gives_other_ids(namespaces: TwoNamespaces) -> None:  # X12
    namespaces.queue(TARGET, requires_duplicate_detection=True)
    for body in ("first", "second"):
        source(namespaces, ServiceBusMessage(body, message_id="same"))
        pump, _ = moved(namespaces, new_ids=True)
        assert pump.counters.forwarded == 1
        namespaces.emulator.call(lambda: namespaces.secondary.delete(SOURCE))
    assert {str(each) for each in namespaces.take(TARGET, 2)} == {"first", "second"}
