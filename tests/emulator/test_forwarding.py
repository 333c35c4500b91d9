"""Forwarding: what comes into one entity goes on to another, and what cannot is kept with the reason."""

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
from tests.emulator.conftest import Bench
from tests.support.sdk_client import advance, held, line, office, put, take_one
from tests.support.sdk_queue import SOON, both

TRANSFER = "$Transfer/$DeadLetterQueue"


def queue(bench: Bench, name: str, **settings: Any) -> None:
    bench.namespace.create_queue(QueueDescription(name, **settings))


@both
async def test_a_message_is_forwarded_from_queue_to_queue_with_all_its_sender_gave_it(
    bench: Bench, flavour: str
) -> None:
    queue(bench, "end")
    queue(bench, "start", forward_to="end")
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
    async with office(bench, flavour) as it:
        end, _ = await asyncio.gather(it.receiver("end"), it.sender("start"))
        put(bench, "start", "earlier")
        await it.send("start", message)
        await take_one(end)
        got = await take_one(end)
    assert (str(got), got.message_id, got.session_id, got.correlation_id, got.subject) == ("a", "id", "s", "c", "l")
    assert (got.reply_to, got.to, got.content_type, got.application_properties) == ("r", "t", "ct", {b"n": 1})
    assert got.time_to_live == timedelta(minutes=5)
    assert (got.delivery_count, got.enqueued_sequence_number) == (0, 2)
    assert len(line(bench, "start")) == 0


async def test_a_receiver_on_a_queue_that_forwards_is_refused_and_one_that_was_there_ended(bench: Bench) -> None:
    queue(bench, "end")
    queue(bench, "start")
    put(bench, "start", "waiting")
    async with office(bench) as it:
        receiver = await it.receiver("start")
        bench.namespace.update_queue(QueueDescription("start", forward_to="end"))
        assert held(bench, "start", "end") == [[], ["waiting"]], "what was there goes on as well"
        with pytest.raises(ServiceBusError, match="forwards"):
            await receiver.receive_messages(max_wait_time=SOON)
        with pytest.raises(ServiceBusError, match="forwards"):
            await it.receiver("start")


async def test_a_locked_message_goes_on_when_its_lock_ends_after_forwarding_was_set_up(clocked: Bench) -> None:
    queue(clocked, "end")
    queue(clocked, "start")
    put(clocked, "start", "a")
    async with office(clocked) as it:
        await take_one(await it.receiver("start"))
        clocked.namespace.update_queue(QueueDescription("start", forward_to="end"))
        assert held(clocked, "start", "end") == [["a"], []]
        advance(clocked, 61)
        assert held(clocked, "start", "end") == [[], ["a"]]


async def test_topics_and_subscriptions_forward_and_are_forwarded_to(bench: Bench) -> None:
    queue(bench, "all")
    bench.namespace.create_topic(TopicDescription("news"))
    bench.namespace.create_subscription(SubscriptionDescription("news", "on", forward_to="all"))
    bench.namespace.create_subscription(SubscriptionDescription("news", "kept"))
    queue(bench, "start", forward_to="news")
    async with office(bench) as it:
        refused, _ = await asyncio.gather(it.receiver(("news", "on")), it.sender("start"), return_exceptions=True)
        assert isinstance(refused, ServiceBusError)
        await it.send("start", "a", "b")
        assert held(bench, "start", "all", "news/subscriptions/kept", "news/subscriptions/on") == [
            [],
            ["a", "b"],
            ["a", "b"],
            [],
        ]
        kept = await take_one(await it.receiver(("news", "kept")))
    assert kept.enqueued_sequence_number == 1, "the number it had where it was sent"


@both
async def test_dead_letters_are_forwarded_with_their_reason_and_their_origin(clocked: Bench, flavour: str) -> None:
    queue(clocked, "letters")
    queue(clocked, "orders", forward_dead_lettered_messages_to="letters", dead_lettering_on_message_expiration=True)
    async with office(clocked, flavour) as it:
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


async def test_a_scheduled_message_is_forwarded_when_its_time_has_come(clocked: Bench) -> None:
    queue(clocked, "end")
    queue(clocked, "start", forward_to="end")
    assert clocked.clock is not None
    due = datetime.fromtimestamp(clocked.clock.now() / 1000, UTC) + timedelta(minutes=1)
    async with office(clocked) as it:
        sender = await it.sender("start")
        numbers = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], due)
        await sender.cancel_scheduled_messages(numbers[0])
    assert held(clocked, "start", "end") == [["b"], []]
    advance(clocked, 61)
    assert held(clocked, "start", "end") == [[], ["b"]]


@both
async def test_a_message_that_was_forwarded_four_times_goes_no_further(bench: Bench, flavour: str) -> None:
    queue(bench, "q6")
    for number in range(5, 0, -1):
        queue(bench, f"q{number}", forward_to=f"q{number + 1}")
    async with office(bench, flavour) as it:
        stuck, _, _ = await asyncio.gather(
            it.receiver("q5", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER), it.sender("q1"), it.sender("q2")
        )
        await it.send("q1", "five hops")
        await it.send("q2", "four hops")
        letter = await take_one(stuck)
        await stuck.complete_message(letter)
    assert (str(letter), letter.dead_letter_reason) == ("five hops", "MaxTransferHopCountExceeded")
    assert held(bench, "q6", f"q5/{TRANSFER}") == [["four hops"], []]


async def test_a_circle_of_topics_comes_to_an_end(bench: Bench) -> None:
    bench.namespace.create_topic(TopicDescription("round"))
    bench.namespace.create_subscription(SubscriptionDescription("round", "about", forward_to="round"))
    bench.namespace.create_subscription(SubscriptionDescription("round", "seen"))
    put(bench, "round", "a")
    seen, stuck = held(bench, "round/subscriptions/seen", f"round/subscriptions/about/{TRANSFER}")
    assert (len(seen), stuck) == (5, ["a"])


def full(bench: Bench) -> None:
    bench.namespace.entity("end").quota_bytes = 5


def disabled(bench: Bench) -> None:
    bench.namespace.update_queue(QueueDescription("end", status=EntityStatus.DISABLED))


def send_disabled(bench: Bench) -> None:
    bench.namespace.update_queue(QueueDescription("end", status=EntityStatus.SEND_DISABLED))


def deleted(bench: Bench) -> None:
    bench.namespace.delete("end")


def with_sessions(bench: Bench) -> None:
    bench.namespace.delete("end")
    queue(bench, "end", requires_session=True)


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
    bench: Bench, spoil: Callable[[Bench], None], why: str
) -> None:
    queue(bench, "end")
    queue(bench, "start", forward_to="end")
    bench.namespace.create_topic(TopicDescription("news"))
    bench.namespace.create_subscription(SubscriptionDescription("news", "on", forward_to="end"))
    spoil(bench)
    put(bench, "start", "a")  # which is taken all the same
    put(bench, "news", "b")
    async with office(bench) as it:
        letters = await it.receivers("start", ("news", "on"), sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER)
        found = await asyncio.gather(*map(take_one, letters))
    assert [str(letter) for letter in found] == ["a", "b"]
    for letter in found:
        assert letter.dead_letter_reason == "TransferFailed"
        assert letter.dead_letter_error_description is not None
        assert why in letter.dead_letter_error_description
    runtime = bench.namespace.runtime("start")
    assert (runtime.active, runtime.dead_letter, runtime.transfer_dead_letter) == (0, 0, 1)


async def test_forwarding_starts_again_when_the_target_is_back(bench: Bench) -> None:
    queue(bench, "end", status=EntityStatus.DISABLED)
    queue(bench, "start", forward_to="end")
    put(bench, "start", "lost")
    bench.namespace.update_queue(QueueDescription("end"))
    put(bench, "start", "found")
    assert held(bench, "end", f"start/{TRANSFER}") == [["found"], ["lost"]]
    bench.namespace.update_queue(QueueDescription("start"))
    put(bench, "start", "stays")
    assert held(bench, "start") == [["stays"]]


async def test_sessions_are_forwarded_into_sessions(bench: Bench) -> None:
    queue(bench, "end", requires_session=True)
    queue(bench, "start", forward_to="end")
    put(bench, "start", "a", session_id="s")
    async with office(bench) as it:
        assert await it.contents("end", session_id="s") == [["a"]]


async def test_the_target_drops_what_it_has_seen_before(bench: Bench) -> None:
    queue(bench, "end", requires_duplicate_detection=True)
    queue(bench, "start", forward_to="end")
    async with office(bench) as it:
        for body in ("first", "repeat"):
            await it.send("start", body, message_id="same")
    assert held(bench, "end", f"start/{TRANSFER}") == [["first"], []]


async def test_an_entity_forwards_only_to_what_is_there_and_not_to_itself(bench: Bench) -> None:
    plain = QueueDescription("start")
    bench.namespace.create_queue(plain)
    for target in ("missing", "start", "Start"):
        for wrong in (replace(plain, forward_to=target), replace(plain, forward_dead_lettered_messages_to=target)):
            with pytest.raises(BadArgument):
                bench.namespace.update_queue(wrong)
