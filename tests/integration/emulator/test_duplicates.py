"""Duplicate detection: the same message id within the window is accepted and dropped."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage

from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_queue import asynchronous, sdk_queue, synchronous, texts

CAREFUL = QueueDescription("orders", requires_duplicate_detection=True, duplicate_detection_history_time_window=30_000)


def named(
    message_id: str, body: str, *, partition_key: str | None = None, session_id: str | None = None
) -> ServiceBusMessage:
    return ServiceBusMessage(body, message_id=message_id, partition_key=partition_key, session_id=session_id)


@synchronous
async def test_a_repeat_within_the_window_is_accepted_and_dropped(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, CAREFUL) as it:
        await it.sender.send_messages(named("a", "first"))
        await it.receiver.complete_message(await it.take_one())
        it.advance(29.999)
        await it.sender.send_messages(named("a", "repeat"))  # though the first is long gone
        assert it.stored() == 0
        it.advance(0.001)  # the window is the first one's: a repeat does not make it longer
        await it.sender.send_messages(named("a", "new"))
        assert texts(await it.take(1)) == ["new"]


@asynchronous
async def test_repeats_in_a_batch_are_dropped_and_the_others_kept(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, CAREFUL) as it:
        await it.sender.send_messages([named("a", "1"), named("b", "2"), named("a", "3"), named("A", "4")])
        # The SDK gives those without an id one of their own.
        await it.sender.send_messages([ServiceBusMessage("5"), ServiceBusMessage("6")])
        assert texts(await it.receiver.peek_messages(10)) == ["1", "2", "4", "5", "6"]


@asynchronous
async def test_without_partitions_the_message_id_alone_decides(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, CAREFUL) as it:
        await it.sender.send_messages(named("a", "1", partition_key="p"))
        await it.sender.send_messages(named("a", "2", partition_key="q"))
        await it.sender.send_messages(named("a", "3", session_id="s"))
        assert texts(await it.receiver.peek_messages(10)) == ["1"]


@asynchronous
async def test_a_queue_without_detection_takes_repeats(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.sender.send_messages([named("a", "1"), named("a", "2")])
        assert texts(await it.receiver.peek_messages(10)) == ["1", "2"]
