"""Receiving from a queue: order, competing receivers, waiting, and settlement."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import MessageAlreadySettled

from syphon.amqp import Map, Message
from syphon.amqp.frames import Accepted, Modified, Released
from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import raw_client
from tests.support.sdk_client import take
from tests.support.sdk_queue import MOMENT, ORDERS, SOON, asynchronous, both, sdk_queue, synchronous, text, texts
from tests.support.waiting import TIMEOUT


@both
async def test_messages_are_received_in_order_and_are_removed_when_completed(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    names = [f"{number}" for number in range(100)]
    async with sdk_queue(emulated, flavour) as it:
        await it.send(*names)
        first = await it.take(40)
        second = await it.take(60)
        for message in first + second:
            await it.receiver.complete_message(message)
        assert it.stored() == 0
        assert await it.receiver.receive_messages(max_wait_time=MOMENT) == []
    assert texts(first + second) == names


@both
async def test_an_abandoned_message_is_redelivered_in_its_place_with_one_delivery_more(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.send("first", "second")
        first = await it.take_one()
        assert first.delivery_count == 0
        await it.receiver.abandon_message(first)
        again, second = await it.take(2)
    assert (text(again), again.delivery_count, again.sequence_number) == ("first", 1, first.sequence_number)
    assert again.lock_token != first.lock_token
    assert (text(second), second.delivery_count) == ("second", 0)


@both
async def test_receive_and_delete_hands_out_a_message_once_and_without_a_lock(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as it:
        await it.send("one", "two")
        received = await it.take(2)
        assert it.stored() == 0
        assert received[0].lock_token is None
        assert received[0].locked_until_utc is None
        with pytest.raises(ValueError, match="RECEIVE_AND_DELETE"):
            await it.receiver.complete_message(received[0])
    assert texts(received) == ["one", "two"]


@both
async def test_an_iterator_ends_when_nothing_more_comes(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour, max_wait_time=0.5) as it:
        await it.send("one", "two", "three")
        seen: list[str] = []
        async with asyncio.timeout(TIMEOUT):
            while len(seen) < 3:  # a busy machine may bring nothing for as long before the last has come
                async for message in it.receiver:
                    seen.append(text(message))
                    await it.receiver.complete_message(message)
        assert it.stored() == 0
    assert seen == ["one", "two", "three"]


@asynchronous
async def test_competing_receivers_get_each_message_once_between_them(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    names = {f"{number}" for number in range(120)}
    async with sdk_queue(emulated, flavour) as it:
        others = await asyncio.gather(*(it.open_receiver() for _ in range(2)))
        await it.send(*names)
        seen: list[list[str]] = [[], [], []]

        async def work(place: int) -> None:
            receiver = (it.receiver, *others)[place]
            while it.stored():
                for message in await receiver.receive_messages(max_message_count=5, max_wait_time=0.3):
                    seen[place].append(text(message))
                    await receiver.complete_message(message)

        await asyncio.gather(*(work(place) for place in range(3)))
    assert all(seen), "each of them has got some"
    assert sorted(name for share in seen for name in share) == sorted(names)


@both
async def test_a_receive_on_an_empty_queue_ends_after_its_wait_and_a_pending_one_gets_what_comes(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        assert await it.receiver.receive_messages(max_wait_time=MOMENT) == []
        waiting = asyncio.ensure_future(it.receiver.receive_messages(max_message_count=1, max_wait_time=SOON * 4))
        await it.sender.send_messages(ServiceBusMessage("late"))
        assert texts(await waiting) == ["late"]


@synchronous
async def test_a_message_is_settled_once(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.send("one", "two")
        one, two = await it.take(2)
        await it.receiver.complete_message(one)
        await it.receiver.abandon_message(two)
        with pytest.raises(MessageAlreadySettled):
            await it.receiver.complete_message(one)
        with pytest.raises(MessageAlreadySettled):
            await it.receiver.dead_letter_message(two)
        assert it.stored() == 1


async def test_released_leaves_the_delivery_count_alone_and_modified_raises_it(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders", max_delivery_count=3))
    counts = []
    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        await client.send(sender, b"\x00\x53\x75\xa0\x01x")
        receiver = await client.attach_receiver("orders")
        for outcome in (*[Released()] * 4, Modified(True), Released(), Modified(True), Accepted()):
            client.grant(receiver, 1)
            arrival = await client.receive(receiver)
            counts.append(Message(arrival.payload).header().delivery_count)
            echo = await client.settle(arrival, outcome)
            assert type(echo) is type(outcome)
    assert counts == [0, 0, 0, 0, 0, 1, 1, 2]
    assert len(emulated.namespace.message_queue("orders")) == 0


async def test_an_abandoning_receiver_may_change_application_properties(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        await client.send(sender, b"\x00\x53\x75\xa0\x01x")
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        await client.settle(await client.receive(receiver), Modified(True, None, Map.symbols({"tried": "yes"})))
        client.grant(receiver, 1)
        again = Message((await client.receive(receiver)).payload)
    assert again.application_properties() == Map.of({"tried": "yes"})
    assert again.bare().endswith(b"\x00\x53\x75\xa0\x01x")


@pytest.mark.timeout(400)  # so many messages take their time where the machine has other work as well
@synchronous
async def test_a_queue_of_twenty_thousand_messages_is_received_and_peeked_through(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    count, page = 20_000, 1_000
    async with sdk_queue(emulated, flavour, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as it:
        for start in range(0, count, page):
            await it.send(*(f"{number}" for number in range(start, start + page)))

        peeked: list[int] = []
        while found := await it.receiver.peek_messages(250, sequence_number=peeked[-1] + 1 if peeked else 1):
            peeked += [message.sequence_number for message in found if message.sequence_number]
        assert peeked == list(range(1, count + 1))

        received: list[str] = []
        while len(received) < count:
            received += texts(await it.take(page))
        # Their order is the peeking's to prove: after half a minute the SDK's second thread reads along, and shuffles.
        assert sorted(map(int, received)) == list(range(count))
        assert it.stored() == 0


@asynchronous
async def test_dead_letters_are_received_like_any_other_messages(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        letters = await it.open_receiver(sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        await it.send("one", "two")
        for message in await it.take(2):
            await it.receiver.dead_letter_message(message)
        one, two = await take(letters, 2)
        await letters.abandon_message(one)
        await letters.complete_message(two)
        (again,) = await take(letters)
    assert (text(again), again.delivery_count) == ("one", 0)
    assert len(it.queue.dead) == 1
