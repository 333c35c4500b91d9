"""What the retired .NET client does and no other: SASL EXTERNAL, and a reply link with an id."""

from __future__ import annotations

import asyncio

from syphon.amqp import Map, Message, Properties, Section, properties_bytes, section_bytes
from syphon.amqp.frames import AMQP_HEADER, FRAME_SASL, SASL_HEADER, Begin, Open, SaslInit, SaslOutcome, frame
from syphon.emulator.broker.descriptions import QueueDescription
from syphon.emulator.settings import ROOT_KEY, ROOT_POLICY
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.amqp_peer import sas
from tests.support.raw_client import RawClient


async def test_the_handshake_of_the_retired_dotnet_client(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    reader, writer = await asyncio.open_connection("127.0.0.1", emulated.running.amqp_port)
    client = RawClient(reader, writer)
    try:
        writer.write(SASL_HEADER + frame(0, SaslInit("EXTERNAL").to_bytes(), FRAME_SASL))
        assert await reader.readexactly(8) == SASL_HEADER
        assert (await client.next(SaslOutcome))[0].code == 0
        writer.write(AMQP_HEADER)
        client.post(Open("net"))
        client.post(Begin(None, 0, 1 << 20, 1 << 20))
        assert await reader.readexactly(8) == AMQP_HEADER
        replies = await client.attach_receiver("$cbs/2f0e", deletes=True)
        requests = await client.attach_sender("$cbs")
        client.grant(replies, 1)
        put_token = properties_bytes(Properties(message_id="1", reply_to="$cbs/2f0e")) + section_bytes(
            Section.APPLICATION_PROPERTIES, Map.of({"operation": "put-token", "name": "sb://localhost/orders"})
        )
        token = sas("sb://localhost/orders", ROOT_POLICY, ROOT_KEY)
        await client.send(requests, put_token + section_bytes(Section.VALUE, token))
        reply = Message((await client.receive(replies)).payload).application_properties()
        assert reply.get("status-code") == 202
        await client.attach_sender("orders")
    finally:
        writer.transport.abort()
