"""The filters of a receiver: the answer to its attach names those that apply."""

from __future__ import annotations

from syphon.amqp import Map, Symbol
from syphon.amqp.frames import Attach, Source, Target
from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import raw_client


async def test_a_filter_that_does_not_apply_is_not_echoed(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(emulated) as client:
        selector = Map(((Symbol("apache.org:selector-filter:string"), "colour = 'red'"),))
        client.post(Attach("r", 0, True, 0, 1, source=Source("orders", filter=selector), target=Target("raw")))
        source = (await client.next(Attach))[0].source
    assert isinstance(source, Source)
    assert (source.address, source.filter) == ("orders", None)
