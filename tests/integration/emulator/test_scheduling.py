"""Scheduled messages: they become active at their time, and can be cancelled until then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError, MessageSizeExceededError

from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_queue import MOMENT, SdkQueue, asynchronous, both, sdk_queue, synchronous, text, texts


def in_seconds(it: SdkQueue, seconds: float) -> datetime:
    assert it.emulated.clock is not None
    return datetime.fromtimestamp(it.emulated.clock.now() / 1000, UTC) + timedelta(seconds=seconds)


@both
async def test_scheduled_messages_come_at_their_time_under_a_new_number(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(clocked, flavour) as it:
        due = in_seconds(it, 60)
        numbers = await it.sender.schedule_messages([ServiceBusMessage("one"), ServiceBusMessage("two")], due)
        assert numbers == [1, 2]
        await it.send("now")
        now = await it.take_one()
        assert text(now) == "now"
        await it.receiver.complete_message(now)
        it.advance(59.999)
        assert await it.receiver.receive_messages(max_message_count=1, max_wait_time=MOMENT) == []
        it.advance(0.001)
        one, two = await it.take(2)
    assert texts([one, two]) == ["one", "two"]
    assert [one.sequence_number, two.sequence_number] == [4, 5]
    assert one.state is ServiceBusMessageState.SCHEDULED  # as in Azure: it was, and still says so
    assert one.scheduled_enqueue_time_utc == due
    assert one.enqueued_time_utc == due


@asynchronous
async def test_a_message_sent_with_a_scheduled_time_waits_for_it_too(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour) as it:
        await it.sender.send_messages(
            [
                ServiceBusMessage("later", scheduled_enqueue_time_utc=in_seconds(it, 30)),
                ServiceBusMessage("sooner", scheduled_enqueue_time_utc=in_seconds(it, 10)),
                ServiceBusMessage("past", scheduled_enqueue_time_utc=in_seconds(it, -3600)),
            ]
        )
        assert texts(await it.take(1)) == ["past"]
        it.advance(10)
        assert texts(await it.take(1)) == ["sooner"]
        it.advance(20)
        assert texts(await it.take(1)) == ["later"]


@synchronous
async def test_a_scheduled_message_can_be_cancelled_until_its_time_has_come(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(clocked, flavour) as it:
        messages = [ServiceBusMessage("a"), ServiceBusMessage("b"), ServiceBusMessage("c")]
        a, b, c = await it.sender.schedule_messages(messages, in_seconds(it, 60))
        await it.sender.cancel_scheduled_messages([a, b])
        assert it.stored() == 1
        it.advance(60)
        assert texts(await it.take(1)) == ["c"]
        for gone in (a, c, 77):
            with pytest.raises(MessageNotFoundError):
                await it.sender.cancel_scheduled_messages(gone)


@asynchronous
async def test_a_scheduled_time_that_has_passed_means_now(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour) as it:
        (number,) = await it.sender.schedule_messages(ServiceBusMessage("x"), in_seconds(it, -60))
        message = await it.take_one()
    assert (text(message), message.sequence_number) == ("x", number)


@synchronous
async def test_a_schedule_with_one_message_that_is_too_large_schedules_none(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(clocked, flavour) as it:
        messages = [ServiceBusMessage("small"), ServiceBusMessage(b"x" * 256 * 1024)]
        with pytest.raises(MessageSizeExceededError):
            await it.sender.schedule_messages(messages, in_seconds(it, 60))
        assert it.stored() == 0
