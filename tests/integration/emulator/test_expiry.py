"""Time to live: of the message and of the queue, and which messages do not expire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageNotFoundError

from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_queue import MOMENT, SOON, asynchronous, sdk_queue, synchronous, text, texts

MINUTE = timedelta(minutes=1)


@synchronous
async def test_the_smaller_time_to_live_wins(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, QueueDescription("orders", default_message_time_to_live=60_000)) as it:
        await it.sender.send_messages(
            [
                ServiceBusMessage("short", time_to_live=timedelta(seconds=20)),
                ServiceBusMessage("long", time_to_live=timedelta(hours=1)),
                ServiceBusMessage("none"),
            ]
        )
        peeked = await it.receiver.peek_messages(10)
        assert [message.time_to_live for message in peeked] == [timedelta(seconds=20), MINUTE, MINUTE]
        it.advance(19.999)
        assert it.stored() == 3
        it.advance(0.001)
        assert texts(await it.receiver.peek_messages(10, sequence_number=1)) == ["long", "none"]
        it.advance(40)
        assert await it.receiver.receive_messages(max_wait_time=MOMENT) == []
        assert it.stored() == 0
        assert len(it.queue.dead) == 0


@asynchronous
async def test_what_expires_is_dead_lettered_where_the_queue_says_so_and_stays(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    description = QueueDescription(
        "orders", default_message_time_to_live=10_000, dead_lettering_on_message_expiration=True
    )
    async with sdk_queue(clocked, flavour, description) as it:
        await it.send("x")
        it.advance(10)
        assert it.stored() == 0
        it.advance(30 * 24 * 3600)
        letters = await it.open_receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        (letter,) = await letters.receive_messages(max_message_count=1, max_wait_time=SOON)
    assert text(letter) == "x"
    assert letter.dead_letter_reason == "TTLExpiredException"
    assert letter.dead_letter_error_description == "The message expired and was dead lettered."
    assert letter.dead_letter_source == "orders"


@asynchronous
async def test_a_locked_message_does_not_expire_under_the_lock(clocked: EmulatedNamespace, flavour: str) -> None:
    description = QueueDescription("orders", lock_duration=60_000, dead_lettering_on_message_expiration=True)
    async with sdk_queue(clocked, flavour, description) as it:
        ttl = timedelta(seconds=10)
        names = ("done", "not done", "lost")
        await it.sender.send_messages([ServiceBusMessage(name, time_to_live=ttl) for name in names])
        done, not_done, _ = await it.take(3)
        it.advance(30)
        assert it.stored() == 3
        await it.receiver.complete_message(done)
        await it.receiver.abandon_message(not_done)  # free again, and past its time
        assert await it.receiver.receive_messages(max_message_count=1, max_wait_time=MOMENT) == []
        it.advance(30)
        assert it.stored() == 0
        letters = it.queue.dead.peek(0, 10)
        assert [letter.bare.rpartition(b"\x00Su")[2][2:] for letter in letters] == [b"not done", b"lost"]


@synchronous
async def test_a_scheduled_message_begins_to_age_when_its_time_has_come(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(clocked, flavour) as it:
        message = ServiceBusMessage("x", time_to_live=timedelta(seconds=10))
        assert clocked.clock is not None
        due = datetime.fromtimestamp(clocked.clock.now() / 1000 + 60, UTC)
        await it.sender.schedule_messages(message, due)
        it.advance(69)
        assert texts(await it.receiver.peek_messages(1)) == ["x"]
        it.advance(1)
        assert it.stored() == 0


@asynchronous
async def test_a_deferred_message_expires_only_when_a_client_asks_for_it(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    description = QueueDescription(
        "orders", default_message_time_to_live=10_000, dead_lettering_on_message_expiration=True
    )
    async with sdk_queue(clocked, flavour, description) as it:
        await it.send("x")
        message = await it.take_one()
        await it.receiver.defer_message(message)
        it.advance(500)
        assert texts(await it.receiver.peek_messages(1, sequence_number=1)) == ["x"]
        with pytest.raises(MessageNotFoundError):
            await it.receiver.receive_deferred_messages(message.sequence_number or 0)
        assert it.stored() == 0
        assert len(it.queue.dead) == 1
