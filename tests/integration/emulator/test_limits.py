"""Limits: of a queue, of a message, of a batch, and of names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusQuotaExceededError

from syphon.amqp import Map, Message, Properties, Section, Symbol, data_section, properties_bytes, section_bytes
from syphon.amqp.frames import BATCH_FORMAT, Accepted
from syphon.emulator import Emulator, EmulatorSettings, NamespaceSettings
from syphon.emulator.broker.descriptions import QueueDescription, Tier
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import LinkEnded, raw_client
from tests.support.sdk_queue import ORDERS, asynchronous, both, sdk_queue, synchronous

KB = 1024
SIZE_EXCEEDED = "amqp:link:message-size-exceeded"


@pytest.fixture
async def premium() -> AsyncIterator[EmulatedNamespace]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso", tier=Tier.PREMIUM)])
    async with Emulator(settings) as emulator:
        yield EmulatedNamespace(emulator["contoso"])


def of_size(size: int) -> bytes:
    """A message of exactly that many bytes."""
    message = data_section(b"")
    return data_section(b"x" * (size - len(message)))


def of_batch(size: int) -> bytes:
    """A batch of two messages, of exactly that many bytes."""
    first, envelope = data_section(of_size(KB)), len(data_section(b""))
    return first + data_section(of_size(size - len(first) - envelope))


@both
async def test_a_full_queue_refuses_until_there_is_room_again(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        it.queue.quota_bytes = 10 * KB
        await it.sender.send_messages([ServiceBusMessage(b"x" * 4 * KB), ServiceBusMessage(b"y" * 4 * KB)])
        with pytest.raises(ServiceBusQuotaExceededError):
            await it.sender.send_messages(ServiceBusMessage(b"z" * 4 * KB))
        with pytest.raises(ServiceBusQuotaExceededError):  # all of a batch or nothing
            await it.sender.send_messages([ServiceBusMessage("small"), ServiceBusMessage(b"z" * 4 * KB)])
        assert it.stored() == 2
        first = await it.take_one()
        await it.receiver.dead_letter_message(first)
        with pytest.raises(ServiceBusQuotaExceededError):  # dead letters take room, too
            await it.sender.send_messages(ServiceBusMessage(b"z" * 4 * KB))
        await it.receiver.complete_message(await it.take_one())
        await it.sender.send_messages(ServiceBusMessage(b"z" * 4 * KB))  # the same link goes on
        assert it.stored() == 1


@synchronous
async def test_the_client_is_told_how_large_a_batch_and_a_message_may_be(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        batch = await it.sender.create_message_batch()
        assert batch.max_size_in_bytes == 256 * KB
        with pytest.raises(MessageSizeExceededError):
            batch.add_message(ServiceBusMessage(b"x" * 256 * KB))
        with pytest.raises(MessageSizeExceededError):  # this one the broker refuses
            await it.sender.send_messages(ServiceBusMessage(b"x" * 256 * KB))
        assert it.stored() == 0


async def test_a_standard_queue_takes_256_kilobytes_and_not_a_byte_more(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        assert await client.send(sender, of_size(256 * KB)) == Accepted()
        assert (await client.refusal_of(sender, of_size(256 * KB + 1))).condition == SIZE_EXCEEDED
        assert await client.send(sender, of_batch(256 * KB), BATCH_FORMAT) == Accepted()
        assert (await client.refusal_of(sender, of_batch(256 * KB + 1), BATCH_FORMAT)).condition == SIZE_EXCEEDED
    assert len(emulated.namespace.message_queue("orders")) == 1 + 2


async def test_a_message_far_beyond_the_limit_ends_the_link_before_it_is_all_there(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        with pytest.raises(LinkEnded) as ended:
            await client.send(await client.attach_sender("orders"), of_size(512 * KB))
        assert ended.value.condition == SIZE_EXCEEDED
        assert await client.send(await client.attach_sender("orders"), of_size(KB)) == Accepted()


async def test_a_premium_queue_takes_a_megabyte_and_more_where_it_says_so_but_not_in_batches(
    premium: EmulatedNamespace,
) -> None:
    premium.namespace.create_queue(ORDERS)
    premium.namespace.create_queue(QueueDescription("large", max_message_size_in_kilobytes=100 * KB))
    async with raw_client(premium) as client:
        orders, large = await client.attach_sender("orders"), await client.attach_sender("large")
        assert await client.send(orders, of_size(KB * KB)) == Accepted()
        assert (await client.refusal_of(orders, of_size(KB * KB + 1))).condition == SIZE_EXCEEDED

        hundred = of_size(100 * KB * KB)
        assert await client.send(large, hundred) == Accepted()
        assert await client.send(large, of_batch(KB * KB), BATCH_FORMAT) == Accepted()
        assert (await client.refusal_of(large, of_batch(KB * KB + 1), BATCH_FORMAT)).condition == SIZE_EXCEEDED
        receiver = await client.attach_receiver("large")
        client.grant(receiver, 1)
        assert Message((await client.receive(receiver)).payload).bare().endswith(hundred)


@asynchronous
async def test_the_client_sends_and_receives_megabytes_where_a_queue_takes_them(
    premium: EmulatedNamespace, flavour: str
) -> None:
    body = bytes(range(256)) * 4 * KB * 3
    async with sdk_queue(premium, flavour, QueueDescription("orders", max_message_size_in_kilobytes=10 * KB)) as it:
        assert (await it.sender.create_message_batch()).max_size_in_bytes == KB * KB
        await it.sender.send_messages(ServiceBusMessage(body))
        assert b"".join((await it.take_one()).body) == body


async def test_names_of_more_than_128_characters_are_refused_with_their_whole_batch(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_queue(ORDERS)

    def key(size: int) -> bytes:
        return section_bytes(Section.MESSAGE_ANNOTATIONS, Map(((Symbol("x-opt-partition-key"), "k" * size),)))

    def with_names(size: int) -> list[bytes]:
        return [
            properties_bytes(Properties(message_id="m" * size)) + data_section(b"x"),
            properties_bytes(Properties(group_id="ü" * size)) + data_section(b"x"),
            key(size) + data_section(b"x"),
        ]

    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        for good in with_names(128):
            assert await client.send(sender, good) == Accepted()
        for bad in with_names(129):
            assert (await client.refusal_of(sender, bad)).condition == "com.microsoft:argument-error"
            batch = data_section(with_names(128)[0]) + data_section(bad)
            assert (await client.refusal_of(sender, batch, BATCH_FORMAT)).condition == "com.microsoft:argument-error"
    assert len(emulated.namespace.message_queue("orders")) == 3
