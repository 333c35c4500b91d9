"""Forwarding: an entity passes its messages to another, and keeps those that fail with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from syphon.emulator.broker.descriptions import (
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.broker.refusals import BadArgument
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_client import advance, held, message_queue, put, sdk_client, take_one
from tests.support.sdk_queue import SOON, both

TRANSFER = "$Transfer/$DeadLetterQueue"


def queue(emulated: EmulatedNamespace, name: str, **settings: Any) -> None:
    emulated.namespace.create_queue(QueueDescription(name, **settings))


@both
async def test_a_message_is_forwarded_from_queue_to_queue_with_all_its_sender_gave_it(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    queue(emulated, "end")
    queue(emulated, "start", forward_to="end")
    message = ServiceBusMessage(
        "a",
        message_id="id",
        session_id="s",
        correlation_id="c",
        subject="l",
        reply_to="r",
        to="t",
        content_type="ct",
        application_properties={"n": 1},
        time_to_live=timedelta(minutes=5),
    )
    async with sdk_client(emulated, flavour) as it:
        end, _ = await asyncio.gather(it.receiver("end"), it.sender("start"))
        put(emulated, "start", "earlier")
        await it.send("start", message)
        await take_one(end)
        got = await take_one(end)
    assert (str(got), got.message_id, got.session_id, got.correlation_id, got.subject) == ("a", "id", "s", "c", "l")
    assert (got.reply_to, got.to, got.content_type, got.application_properties) == ("r", "t", "ct", {b"n": 1})
    assert got.time_to_live == timedelta(minutes=5)
    assert (got.delivery_count, got.enqueued_sequence_number) == (0, 2)
    assert len(message_queue(emulated, "start")) == 0


async def test_a_receiver_on_a_queue_that_forwards_is_refused_and_one_that_was_there_ended(
    emulated: EmulatedNamespace,
) -> None:
    queue(emulated, "end")
    queue(emulated, "start")
    put(emulated, "start", "waiting")
    async with sdk_client(emulated) as it:
        receiver = await it.receiver("start")
        emulated.namespace.update_queue(QueueDescription("start", forward_to="end"))
        assert held(emulated, "start", "end") == [[], ["waiting"]], "what was there goes on as well"
        with pytest.raises(ServiceBusError, match="forwards"):
            await receiver.receive_messages(max_wait_time=SOON)
        with pytest.raises(ServiceBusError, match="forwards"):
            await it.receiver("start")


async def test_a_locked_message_goes_on_when_its_lock_ends_after_forwarding_was_set_up(
    clocked: EmulatedNamespace,
) -> None:
    queue(clocked, "end")
    queue(clocked, "start")
    put(clocked, "start", "a")
    async with sdk_client(clocked) as it:
        await take_one(await it.receiver("start"))
        clocked.namespace.update_queue(QueueDescription("start", forward_to="end"))
        assert held(clocked, "start", "end") == [["a"], []]
        advance(clocked, 61)
        assert held(clocked, "start", "end") == [[], ["a"]]


async def test_topics_and_subscriptions_forward_and_are_forwarded_to(emulated: EmulatedNamespace) -> None:
    queue(emulated, "all")
    emulated.namespace.create_topic(TopicDescription("news"))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "on", forward_to="all"))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "kept"))
    queue(emulated, "start", forward_to="news")
    async with sdk_client(emulated) as it:
        refused, _ = await asyncio.gather(it.receiver(("news", "on")), it.sender("start"), return_exceptions=True)
        assert isinstance(refused, ServiceBusError)
        await it.send("start", "a", "b")
        assert held(emulated, "start", "all", "news/subscriptions/kept", "news/subscriptions/on") == [
            [],
            ["a", "b"],
            ["a", "b"],
            [],
        ]
        kept = await take_one(await it.receiver(("news", "kept")))
    assert kept.enqueued_sequence_number == 1, "the number it had where it was sent"


@both
async def test_dead_letters_are_forwarded_with_their_reason_and_their_origin(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    queue(clocked, "letters")
    queue(clocked, "orders", forward_dead_lettered_messages_to="letters", dead_lettering_on_message_expiration=True)
    async with sdk_client(clocked, flavour) as it:
        orders, letters, _ = await asyncio.gather(it.receiver("orders"), it.receiver("letters"), it.sender("orders"))
        await it.send("orders", "a")
        await orders.dead_letter_message(await take_one(orders), reason="bad", error_description="very")
        await it.send("orders", "b", time_to_live=timedelta(seconds=5))
        advance(clocked, 6)
        found = [await take_one(letters), await take_one(letters)]
    assert [(str(letter), letter.dead_letter_reason, letter.dead_letter_source) for letter in found] == [
        ("a", "bad", "orders"),
        ("b", "TTLExpiredException", "orders"),
    ]
    assert held(clocked, "orders/$DeadLetterQueue") == [[]]


async def test_a_scheduled_message_is_forwarded_when_its_time_has_come(clocked: EmulatedNamespace) -> None:
    queue(clocked, "end")
    queue(clocked, "start", forward_to="end")
    assert clocked.clock is not None
    due = datetime.fromtimestamp(clocked.clock.now() / 1000, UTC) + timedelta(minutes=1)
    async with sdk_client(clocked) as it:
        sender = await it.sender("start")
        numbers = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], due)
        await sender.cancel_scheduled_messages(numbers[0])
    assert held(clocked, "start", "end") == [["b"], []]
    advance(clocked, 61)
    assert held(clocked, "start", "end") == [[], ["b"]]


@both
async def test_a_message_that_was_forwarded_four_times_goes_no_further(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    queue(emulated, "q6")
    for number in range(5, 0, -1):
        queue(emulated, f"q{number}", forward_to=f"q{number + 1}")
    async with sdk_client(emulated, flavour) as it:
        stuck, _, _ = await asyncio.gather(
            it.receiver("q5", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER), it.sender("q1"), it.sender("q2")
        )
        await it.send("q1", "five hops")
        await it.send("q2", "four hops")
        letter = await take_one(stuck)
        await stuck.complete_message(letter)
    assert (str(letter), letter.dead_letter_reason) == ("five hops", "MaxTransferHopCountExceeded")
    assert held(emulated, "q6", f"q5/{TRANSFER}") == [["four hops"], []]


async def test_a_circle_of_topics_comes_to_an_end(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_topic(TopicDescription("round"))
    emulated.namespace.create_subscription(SubscriptionDescription("round", "about", forward_to="round"))
    emulated.namespace.create_subscription(SubscriptionDescription("round", "seen"))
    put(emulated, "round", "a")
    seen, stuck = held(emulated, "round/subscriptions/seen", f"round/subscriptions/about/{TRANSFER}")
    assert (len(seen), stuck) == (5, ["a"])


def full(emulated: EmulatedNamespace) -> None:
    emulated.namespace.entity("end").quota_bytes = 5


def disabled(emulated: EmulatedNamespace) -> None:
    emulated.namespace.update_queue(QueueDescription("end", status=EntityStatus.DISABLED))


def send_disabled(emulated: EmulatedNamespace) -> None:
    emulated.namespace.update_queue(QueueDescription("end", status=EntityStatus.SEND_DISABLED))


def deleted(emulated: EmulatedNamespace) -> None:
    emulated.namespace.delete("end")


def with_sessions(emulated: EmulatedNamespace) -> None:
    emulated.namespace.delete("end")
    queue(emulated, "end", requires_session=True)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (full, "maximum entity size"),
        (disabled, "status is Disabled"),
        (send_disabled, "status is SendDisabled"),
        (deleted, "could not be found"),
        (with_sessions, "SessionId was not set"),
    ],
)
async def test_what_the_target_does_not_take_is_kept_with_the_reason(
    emulated: EmulatedNamespace, spoil: Callable[[EmulatedNamespace], None], why: str
) -> None:
    queue(emulated, "end")
    queue(emulated, "start", forward_to="end")
    emulated.namespace.create_topic(TopicDescription("news"))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "on", forward_to="end"))
    spoil(emulated)
    put(emulated, "start", "a")  # which is taken all the same
    put(emulated, "news", "b")
    async with sdk_client(emulated) as it:
        letters = await it.receivers("start", ("news", "on"), sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
        found = await asyncio.gather(*map(take_one, letters))
    assert [str(letter) for letter in found] == ["a", "b"]
    for letter in found:
        assert letter.dead_letter_reason == "TransferFailed"
        assert letter.dead_letter_error_description is not None
        assert why in letter.dead_letter_error_description
    runtime = emulated.namespace.runtime("start")
    assert (runtime.active, runtime.dead_letter, runtime.transfer_dead_letter) == (0, 0, 1)


async def test_forwarding_starts_again_when_the_target_is_back(emulated: EmulatedNamespace) -> None:
    queue(emulated, "end", status=EntityStatus.DISABLED)
    queue(emulated, "start", forward_to="end")
    put(emulated, "start", "lost")
    emulated.namespace.update_queue(QueueDescription("end"))
    put(emulated, "start", "found")
    assert held(emulated, "end", f"start/{TRANSFER}") == [["found"], ["lost"]]
    emulated.namespace.update_queue(QueueDescription("start"))
    put(emulated, "start", "stays")
    assert held(emulated, "start") == [["stays"]]


async def test_sessions_are_forwarded_into_sessions(emulated: EmulatedNamespace) -> None:
    queue(emulated, "end", requires_session=True)
    queue(emulated, "start", forward_to="end")
    put(emulated, "start", "a", session_id="s")
    async with sdk_client(emulated) as it:
        assert await it.contents("end", session_id="s") == [["a"]]


async def test_the_target_drops_what_it_has_seen_before(emulated: EmulatedNamespace) -> None:
    queue(emulated, "end", requires_duplicate_detection=True)
    queue(emulated, "start", forward_to="end")
    async with sdk_client(emulated) as it:
        for body in ("first", "repeat"):
            await it.send("start", body, message_id="same")
    assert held(emulated, "end", f"start/{TRANSFER}") == [["first"], []]


async def test_an_entity_forwards_only_to_what_exists(emulated: EmulatedNamespace) -> None:
    plain = QueueDescription("start")
    emulated.namespace.create_queue(plain)
    for wrong in (replace(plain, forward_to="missing"), replace(plain, forward_dead_lettered_messages_to="missing")):
        with pytest.raises(BadArgument):
            emulated.namespace.update_queue(wrong)
