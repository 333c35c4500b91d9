"""Performatives have all their fields, also null ones at the end: azure-servicebus 7.10 to 7.14 indexes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import SupportsIndex

import pytest

from syphon.amqp import decode
from syphon.amqp.frames import AMQP_HEADER, Accepted, Close, End, Rejected
from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.integration.emulator.test_deliveries import PAYLOAD
from tests.support.raw_client import LinkEnded, RawClient

FIELDS = {0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1}
"""The number of fields of each performative, from open to close."""


class Tap(asyncio.StreamReader):
    """A reader that remembers what it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = b""

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        self.seen += bytes(data)
        super().feed_data(data)

    def performatives(self) -> list[tuple[int, int]]:
        """The code and the number of fields of each frame after the handshake."""
        found = []
        rest = self.seen[self.seen.index(AMQP_HEADER) + 8 :]
        while rest:
            size = int.from_bytes(rest[:4], "big")
            fields, _ = decode(rest[:size], 11)
            assert isinstance(fields, list)
            found.append((rest[10], len(fields)))
            rest = rest[size:]
        return found


async def test_every_performative_has_all_its_fields(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    loop, tap = asyncio.get_running_loop(), Tap()
    transport, protocol = await loop.create_connection(
        lambda: asyncio.StreamReaderProtocol(tap), "127.0.0.1", emulated.running.amqp_port
    )
    client = RawClient(tap, asyncio.StreamWriter(transport, protocol, tap, loop))
    try:
        await client.sign_in()
        sender = await client.attach_sender("orders")
        assert await client.send(sender, PAYLOAD) == Accepted()
        assert await client.send(sender, PAYLOAD + b"\x00\x53\x75\xb0\x00\x02\x00\x00" + bytes(0x20000)) == Accepted()
        assert isinstance(await client.send(sender, b"no message"), Rejected)
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        assert await client.settle(await client.receive(receiver), Accepted()) == Accepted()
        client.grant(receiver, 1)
        await client.receive(receiver)  # in several frames
        await client.detach(receiver)
        await client.attach_receiver("missing")
        with pytest.raises(LinkEnded, match="amqp:not-found"):
            await client.next(Close)
        client.post(End())
        client.post(Close())
        await client.next(Close)
    finally:
        transport.abort()
    found = tap.performatives()
    assert {code for code, _ in found} == set(FIELDS)
    assert [(code, count) for code, count in found if FIELDS[code] != count] == []
