"""The pump over TLS, as on Azure: its socket hands out records, and what looks quiet may not be."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, TransportType

from syphon.bus.connection import Connection
from syphon.bus.namespace import Namespace
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, QueueDescription

from .conftest import BACKLOG, Bench, aliased


class SecureBench(Bench):
    """Two namespaces that are reached over TLS, and no other way."""

    def client(self, name: str) -> ServiceBusClient:
        running = self.emulator[name]
        client = ServiceBusClient.from_connection_string(
            running.connection_string.replace("UseDevelopmentEmulator=true;", ""),
            connection_verify=str(self.emulator.ca_file),
            # The SDK knows one port for TLS. Ours is another.
            custom_endpoint_address=f"sb://127.0.0.1:{running.amqp_port}",
            transport_type=TransportType.Amqp,
            retry_total=0,
        )
        self.clients.append(client)
        return client

    def reach(self, name: str, entity: str) -> Namespace:
        client = self.client(name)
        return Namespace(name, lambda: Connection(client, entity))


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[SecureBench]:
    namespaces = [NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces, state=tmp_path, tls=True)) as emulator:
        emulator.call(lambda: emulator["contoso-dr"].namespace.create_queue(QueueDescription(BACKLOG)))
        bench = SecureBench(emulator)
        try:
            yield bench
        finally:
            bench.close()


def test_messages_smaller_and_larger_than_a_record_arrive_whole(secure: SecureBench) -> None:  # S2, M2
    secure.queue("orders")
    chance = random.Random(7)
    bodies = {f"{number}": chance.randbytes(10 ** (number % 6)) for number in range(120)}
    bodies |= {f"large {number}": chance.randbytes(200_000) for number in range(10)}
    with secure.client("contoso-dr").get_queue_sender(BACKLOG) as sender:
        for name, body in bodies.items():
            sender.send_messages(aliased(body, "orders", message_id=name))
    pump, _ = secure.run()
    assert (pump.tally.forwarded, pump.tally.possible_duplicates) == (len(bodies), 0)
    arrived = {message.message_id: b"".join(message.body) for message in secure.take("orders", len(bodies))}
    assert arrived == bodies
