"""Deferral: a deferred message is received by its sequence number and in no other way."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageNotFoundError

from syphon.amqp import Int, Long, Map, Message, Section, Value, data_section, section_bytes
from syphon.amqp.frames import Modified
from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import raw_client
from tests.support.sdk_queue import MOMENT, ORDERS, asynchronous, both, sdk_queue, synchronous, text, texts


@both
async def test_a_deferred_message_is_received_by_its_number_only(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.send("one", "two", "three")
        received = await it.take(3)
        for message in received:
            await it.receiver.defer_message(message)
        assert await it.receiver.receive_messages(max_message_count=1, max_wait_time=MOMENT) == []
        numbers = [message.sequence_number or 0 for message in received]

        three, one = await it.receiver.receive_deferred_messages([numbers[2], numbers[0]])
        assert texts([three, one]) == ["three", "one"]
        assert one.state is ServiceBusMessageState.DEFERRED
        assert one.delivery_count == 1  # deferring was the end of a delivery
        assert one.locked_until_utc is not None
        await it.receiver.complete_message(one)
        await it.receiver.dead_letter_message(three, reason="no")
        assert texts(await it.receiver.peek_messages(10, sequence_number=1)) == ["two"]
        assert len(it.queue.dead) == 1


@synchronous
async def test_a_number_that_is_not_a_deferred_messages_is_an_error(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.send("deferred", "active")
        message = await it.take_one()
        await it.receiver.defer_message(message)
        deferred = message.sequence_number or 0
        for unknown in ([99], [2], [deferred, 99]):
            with pytest.raises(MessageNotFoundError):
                await it.receiver.receive_deferred_messages(unknown)
        assert texts(await it.receiver.receive_deferred_messages(deferred)) == ["deferred"]
        with pytest.raises(MessageNotFoundError):  # it is locked now
            await it.receiver.receive_deferred_messages(deferred)


@asynchronous
async def test_an_abandoned_deferred_message_stays_deferred_and_so_does_one_whose_lock_expired(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(clocked, flavour) as it:
        await it.send("x")
        message = await it.take_one()
        await it.receiver.defer_message(message)
        number = message.sequence_number or 0
        counts = []
        for how in ("abandon", "defer", "let the lock run out", "complete"):
            (again,) = await it.receiver.receive_deferred_messages(number)
            counts.append(again.delivery_count)
            if how == "abandon":
                await it.receiver.abandon_message(again)
            elif how == "defer":
                await it.receiver.defer_message(again)
            elif how == "complete":
                await it.receiver.complete_message(again)
            else:
                it.advance(60)
        assert counts == [1, 2, 3, 4]
        assert it.stored() == 0


@asynchronous
async def test_deferring_never_buries_a_message_but_its_next_failure_does(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour, QueueDescription("orders", max_delivery_count=2)) as it:
        await it.send("x")
        message = await it.take_one()
        number = message.sequence_number or 0
        await it.receiver.defer_message(message)
        await it.receiver.defer_message((await it.receiver.receive_deferred_messages(number))[0])
        (again,) = await it.receiver.receive_deferred_messages(number)
        await it.receiver.abandon_message(again)
        assert it.stored() == 0
        assert len(it.queue.dead) == 1


@synchronous
async def test_deferred_messages_are_received_and_deleted_in_that_mode(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.send("x")
        message = await it.take_one()
        await it.receiver.defer_message(message)
        number = message.sequence_number or 0
        deleting = await it.open_receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
        # One message, though its number is named twice.
        assert [text(found) for found in await deleting.receive_deferred_messages([number, number])] == ["x"]
        assert it.stored() == 0


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("hop", [{}, {"hop": Int(1)}])
async def test_a_deferred_message_has_its_lock_in_the_delivery_annotations_too(
    emulated: EmulatedNamespace, deletes: bool, hop: dict[str, Value]
) -> None:
    """Python clients before 7.15 read it there, and cannot settle a deferred message without it."""
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        head = section_bytes(Section.DELIVERY_ANNOTATIONS, Map.symbols(hop)) if hop else b""
        await client.send(await client.attach_sender("orders"), head + data_section(b"x"))
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        await client.settle(await client.receive(receiver), Modified(True, True))
        asked: dict[str, Value] = {"sequence-numbers": [Long(1)], "receiver-settle-mode": Int(0 if deletes else 1)}
        _, body = await client.ask("orders", "receive-by-sequence-number", asked)
    assert isinstance(body, Map)
    messages = body.get("messages")
    assert isinstance(messages, list)
    (entry,) = messages
    assert isinstance(entry, Map)
    payload, token = entry.get("message"), entry.get("lock-token")
    assert isinstance(payload, bytes)
    assert (token is None) is deletes
    lock = {} if deletes else {"x-opt-lock-token": token}
    assert (Message(payload).read(Section.DELIVERY_ANNOTATIONS) or Map()) == Map.symbols({**hop, **lock})
