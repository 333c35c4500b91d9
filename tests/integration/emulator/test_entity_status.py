"""The status and the deletion of a queue: which operations it still allows, and the errors of its clients."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
)

from syphon.amqp import Array, Long, Map, Message, Section, Symbol, Timestamp, UInt, Value, data_section, section_bytes
from syphon.emulator.broker.descriptions import EntityStatus, QueueDescription
from syphon.emulator.broker.refusals import EntityNotFound
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import raw_client, request
from tests.support.sdk_queue import SOON, SdkQueue, asynchronous, both, sdk_queue, synchronous, text, texts

FIVE_MINUTES = 5 * 60


def become(it: SdkQueue, status: EntityStatus) -> None:
    it.emulated.namespace.update_queue(replace(it.queue.description, status=status))


async def refusals(*attempts: object) -> list[type[BaseException] | None]:
    """What each of the attempts, made at once, was answered with."""
    results = await asyncio.gather(*attempts, return_exceptions=True)  # type: ignore[call-overload]
    return [type(result) if isinstance(result, BaseException) else None for result in results]


@both
async def test_a_disabled_queue_ends_its_links_and_takes_no_new_ones_until_it_is_active_again(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    disabled = MessagingEntityDisabledError
    async with sdk_queue(emulated, flavour, retries=1) as it:
        await it.send("kept")
        become(it, EntityStatus.DISABLED)
        assert await refusals(
            it.send("x"), it.receiver.receive_messages(max_wait_time=SOON), it.open_sender(), it.open_receiver()
        ) == [disabled, disabled, disabled, disabled]
        become(it, EntityStatus.ACTIVE)
        # The client reopens its links by itself.
        await it.send("more")
        assert texts(await it.take(2)) == ["kept", "more"]


@synchronous
async def test_send_disabled_is_about_senders_alone(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour, retries=1) as it:
        await it.send("kept")
        become(it, EntityStatus.SEND_DISABLED)
        with pytest.raises(MessagingEntityDisabledError):
            await it.send("x")
        message = await it.take_one()
        await it.receiver.complete_message(message)
        assert it.stored() == 0


@asynchronous
async def test_receive_disabled_is_about_receivers_alone(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.send("first", "deferred")
        first, deferred = await it.take(2)
        await it.receiver.defer_message(deferred)
        become(it, EntityStatus.RECEIVE_DISABLED)
        disabled = MessagingEntityDisabledError
        assert await refusals(
            it.receiver.receive_messages(max_wait_time=SOON), it.open_receiver(), it.send("second")
        ) == [disabled, disabled, None]
        # Deferred messages are asked for elsewhere; the SDK does not even try without its link.
        by_number: dict[str, Value] = {
            "sequence-numbers": Array(0x81, (Long(deferred.sequence_number or 0),)),
            "receiver-settle-mode": UInt(1),
        }
        async with raw_client(emulated) as client:
            requests = await client.attach_sender("orders/$management")
            replies = await client.attach_receiver("orders/$management")
            client.grant(replies, 1)
            await client.send(requests, request("receive-by-sequence-number", by_number))
            answer = Message((await client.receive(replies)).payload).application_properties()
        assert answer.get("errorCondition") == "com.microsoft:entity-disabled"
        become(it, EntityStatus.ACTIVE)
        assert text(await it.take_one()) == "second"
        assert first.delivery_count == 0


@asynchronous
async def test_who_uses_a_deleted_queue_is_told_that_it_does_not_exist(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    # The link says that the queue is gone. A new connection is refused its token.
    gone = {MessagingEntityNotFoundError, ServiceBusAuthenticationError}
    async with sdk_queue(emulated, flavour, retries=1) as it:
        await it.send("x")
        await it.take_one()
        waiting = asyncio.ensure_future(it.receiver.receive_messages(max_wait_time=SOON * 4))
        async with asyncio.timeout(SOON):
            while not it.queue.main._waiting_consumers:
                await asyncio.sleep(0)
        emulated.namespace.delete("orders")
        assert set(await refusals(waiting, it.send("y"))) <= gone
        # A new queue of that name is a new queue.
        emulated.namespace.create_queue(QueueDescription("orders"))
        await it.send("z")
        message = await it.take_one()
        assert (text(message), message.sequence_number) == ("z", 1)


def exists(emulated: EmulatedNamespace) -> bool:
    try:
        emulated.namespace.entity("orders")
    except EntityNotFound:
        return False
    return True


IDLE = QueueDescription("orders", auto_delete_on_idle=FIVE_MINUTES * 1000)


@asynchronous
async def test_an_unused_queue_is_deleted_when_its_time_is_over(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, IDLE) as it:
        await it.send("x")
        it.advance(FIVE_MINUTES - 1)
        assert exists(clocked)
        await it.receiver.peek_messages()
        await asyncio.gather(it.sender.close(), it.receiver.close())
        it.advance(FIVE_MINUTES - 1)
        assert exists(clocked)
        it.advance(1)
        assert not exists(clocked)
        with pytest.raises(ServiceBusAuthenticationError):
            await it.open_receiver()


async def test_updates_scheduled_messages_and_waiting_receivers_keep_a_queue_alive(clocked: EmulatedNamespace) -> None:
    namespace, clock = clocked.namespace, clocked.clock
    assert clock is not None
    namespace.create_queue(IDLE)
    clock.advance(FIVE_MINUTES - 1)
    namespace.update_queue(replace(IDLE, max_delivery_count=5))
    clock.advance(FIVE_MINUTES - 1)
    assert exists(clocked)

    due = Map(((Symbol("x-opt-scheduled-enqueue-time"), Timestamp(clock.now() + 3600_000)),))
    async with raw_client(clocked) as client:
        sender = await client.attach_sender("orders")
        await client.send(sender, section_bytes(Section.MESSAGE_ANNOTATIONS, due) + data_section(b"x"))
        await client.detach(sender)
        clock.advance(3600 - 1)
        assert exists(clocked)
        clock.advance(1 + FIVE_MINUTES - 1)
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 2)
        await client.receive(receiver)
        clock.advance(FIVE_MINUTES + 100)
        assert exists(clocked)
        await client.detach(receiver)
        clock.advance(FIVE_MINUTES - 1)
        assert exists(clocked), "it was used until the link was closed"
        clock.advance(1)
        assert not exists(clocked)
