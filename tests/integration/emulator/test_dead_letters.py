"""Dead letters: how a message becomes one, which reason it carries, and that it can be received."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_client import take
from tests.support.sdk_queue import asynchronous, both, sdk_queue, synchronous, text


@both
async def test_a_dead_lettered_message_tells_why_and_where_it_came_from(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        sent = ServiceBusMessage("x", message_id="m-1", subject="s", application_properties={"own": "stays"})
        await it.sender.send_messages([sent, ServiceBusMessage("no reason")])
        message, silent = await it.take(2)
        await it.receiver.dead_letter_message(message, reason="bad address", error_description="no such street")
        await it.receiver.dead_letter_message(silent)
        assert it.stored() == 0

        letters = await it.open_receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        letter, other = await take(letters, 2)
        assert (text(letter), letter.message_id, letter.subject) == ("x", "m-1", "s")
        assert letter.dead_letter_reason == "bad address"
        assert letter.dead_letter_error_description == "no such street"
        assert letter.dead_letter_source == "orders"
        assert letter.application_properties == {
            b"own": b"stays",
            b"DeadLetterReason": b"bad address",
            b"DeadLetterErrorDescription": b"no such street",
        }
        assert letter.delivery_count == 0
        assert letter.enqueued_sequence_number == message.sequence_number
        assert text(other) == "no reason"
        assert not other.dead_letter_reason
        await letters.complete_message(letter)
        assert len(it.queue.dead) == 1


@synchronous
async def test_a_message_is_dead_lettered_when_its_last_delivery_fails(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(clocked, flavour, QueueDescription("orders", max_delivery_count=3)) as it:
        await it.send("x")
        await it.receiver.abandon_message(await it.take_one())
        await it.take_one()
        it.advance(60)  # an expired lock counts as well
        last = await it.take_one()
        assert last.delivery_count == 2
        assert len(it.queue.dead) == 0
        await it.receiver.abandon_message(last)

        assert it.stored() == 0
        letters = await it.open_receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        (letter,) = await take(letters)
        assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert letter.dead_letter_error_description == "Message could not be consumed after 3 delivery attempts."
        assert letter.delivery_count == 3


@asynchronous
async def test_dead_letters_are_never_dead_lettered_for_their_deliveries(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    description = QueueDescription("orders", max_delivery_count=1)
    async with sdk_queue(clocked, flavour, description, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as it:
        main = await it.open_receiver()
        await it.send("x")
        (message,) = await take(main)
        await main.abandon_message(message)
        counts = []
        for _ in range(3):
            letter = await it.take_one()
            counts.append(letter.delivery_count)
            await it.receiver.abandon_message(letter)
        assert counts == [1, 1, 1]  # as in Azure, a dead letter keeps the count that it came with
        assert len(it.queue.dead) == 1
