"""A queue that is empty again costs what it did before: nothing of its messages and connections is kept."""

from __future__ import annotations

import asyncio
import gc
import sys

from syphon.amqp import Int, Map, Properties, Section, data_section, properties_bytes, section_bytes
from syphon.amqp.frames import Accepted, Disposition
from syphon.emulator.broker.descriptions import QueueDescription, TopicDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import raw_client
from tests.support.waiting import async_eventually

MESSAGES = 500


async def a_round(emulated: EmulatedNamespace, start: int) -> None:
    """On connections of its own: messages for a queue, which are received and completed, and for a topic."""
    async with raw_client(emulated) as client:
        orders, news = await client.attach_sender("orders"), await client.attach_sender("news")
        receiver = await client.attach_receiver("orders")
        for number in range(start, start + MESSAGES):
            message = properties_bytes(Properties(message_id=f"m{number}", group_id=f"s{number}"))
            message += section_bytes(Section.APPLICATION_PROPERTIES, Map.of({f"p{number}": Int(number)}))
            for link in (orders, news):
                assert await client.send(link, message + data_section(b"x" * 100)) == Accepted()
        client.grant(receiver, MESSAGES)
        arrivals = [await client.receive(receiver) for _ in range(MESSAGES)]
        for arrival in arrivals:
            client.post(Disposition(True, arrival.delivery_id, None, False, Accepted()))
        for _ in arrivals:
            assert await client.outcome() == Accepted()
    await async_eventually(lambda: emulated.running.connection_count == 0, what="the connection is closed")
    await asyncio.sleep(0)


async def test_nothing_is_left_of_messages_and_connections(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    emulated.namespace.create_topic(TopicDescription("news"))
    blocks = []
    for place in range(4):
        await a_round(emulated, place * MESSAGES)
        gc.collect()
        blocks.append(sys.getallocatedblocks())
    # The first round also loads code and fills caches of a fixed size. One block for each message would be a leak.
    assert blocks[3] - blocks[1] < MESSAGES, blocks
