"""The source of a receiver: its filters, and the temporary queue of a dynamic one."""

from __future__ import annotations

import pytest

from syphon.amqp import Described, Map, Symbol, ULong, Value
from syphon.amqp.frames import Accepted, Attach, Detach, Source, Target
from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.integration.emulator.test_deliveries import PAYLOAD
from tests.support.raw_client import LinkEnded, raw_client
from tests.support.waiting import async_eventually


async def test_a_filter_that_does_not_apply_is_not_echoed(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(emulated) as client:
        selector = Map(((Symbol("apache.org:selector-filter:string"), "colour = 'red'"),))
        client.post(Attach("r", 0, True, 0, 1, source=Source("orders", filter=selector), target=Target("raw")))
        source = (await client.next(Attach))[0].source
    assert isinstance(source, Source)
    assert (source.address, source.filter) == ("orders", None)


@pytest.mark.parametrize("asked", ["a", Described(ULong(0x137000000C), "a")], ids=["plain", "described"])
async def test_the_session_filter_comes_back_as_it_was_written(emulated: EmulatedNamespace, asked: Value) -> None:
    emulated.namespace.create_queue(QueueDescription("chats", requires_session=True))
    async with raw_client(emulated) as client:
        session = Map(((Symbol("com.microsoft:session-filter"), asked),))
        client.post(Attach("r", 0, True, 0, 1, source=Source("chats", filter=session), target=Target("raw")))
        source = (await client.next(Attach))[0].source
    assert isinstance(source, Source)
    assert source.filter == session


async def test_a_dynamic_source_is_a_temporary_queue_that_is_deleted_with_its_link(emulated: EmulatedNamespace) -> None:
    async with raw_client(emulated) as client, raw_client(emulated) as other:
        receiver = await client.attach_dynamic_receiver()
        sender = await other.attach_sender(receiver.address)
        assert await other.send(sender, PAYLOAD) == Accepted()
        client.grant(receiver.handle, 1)
        assert (await client.receive(receiver.handle)).payload.endswith(PAYLOAD)
        assert [queue.name for queue in emulated.namespace.queues()] == [receiver.address]
        await client.detach(receiver.handle)
        with pytest.raises(LinkEnded) as ended:
            await other.next(Detach)
        assert ended.value.condition == "amqp:not-found"
    assert emulated.namespace.queues() == []


async def test_a_temporary_queue_is_deleted_with_the_connection(emulated: EmulatedNamespace) -> None:
    async with raw_client(emulated) as client:
        await client.attach_dynamic_receiver()
        assert len(emulated.namespace.queues()) == 1
    await async_eventually(lambda: not emulated.namespace.queues())
