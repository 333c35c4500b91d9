"""Peeking: it shows messages in every state and changes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_queue import asynchronous, both, sdk_queue, synchronous, text, texts


@both
async def test_peek_shows_locked_deferred_and_scheduled_messages_with_their_state(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.send("deferred", "locked", "active")
        deferred, _locked = await it.take(2)
        await it.receiver.defer_message(deferred)
        due = datetime.now(UTC) + timedelta(hours=1)
        await it.sender.schedule_messages(ServiceBusMessage("scheduled"), due)

        seen = await it.receiver.peek_messages(10, sequence_number=1)
        assert [(text(message), message.state) for message in seen] == [
            ("deferred", ServiceBusMessageState.DEFERRED),
            ("locked", ServiceBusMessageState.ACTIVE),
            ("active", ServiceBusMessageState.ACTIVE),
            ("scheduled", ServiceBusMessageState.SCHEDULED),
        ]
        assert [message.sequence_number for message in seen] == [1, 2, 3, 4]
        assert [message.delivery_count for message in seen] == [1, 0, 0, 0]
        assert all(message.locked_until_utc is None for message in seen)


@asynchronous
async def test_peek_goes_on_from_where_it_was_and_locks_nothing(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        assert await it.receiver.peek_messages(10) == []
        await it.send("1", "2", "3", "4", "5")
        assert texts(await it.receiver.peek_messages()) == ["1"]
        assert texts(await it.receiver.peek_messages(2)) == ["2", "3"]
        assert texts(await it.receiver.peek_messages(9)) == ["4", "5"]
        assert await it.receiver.peek_messages(9) == []
        assert texts(await it.receiver.peek_messages(2, sequence_number=3)) == ["3", "4"]
        assert await it.receiver.peek_messages(2, sequence_number=6) == []
        again = await it.take(5)
        assert texts(again) == ["1", "2", "3", "4", "5"]
        assert {message.delivery_count for message in again} == {0}
        await it.receiver.complete_message(again[2])
        assert texts(await it.receiver.peek_messages(2, sequence_number=3)) == ["4", "5"]


@synchronous
async def test_one_peek_brings_250_messages_at_the_most(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.send(*(f"{number}" for number in range(300)))
        assert len(await it.receiver.peek_messages(1000)) == 250
        assert len(await it.receiver.peek_messages(1000)) == 50
