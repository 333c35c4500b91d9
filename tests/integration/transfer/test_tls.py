"""The pump over TLS, as on Azure, on AMQP's own port and in WebSockets.

TLS may hold decrypted bytes while the socket has nothing to read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient
from pydantic import SecretStr

from syphon.backlog.check import Level, preflight_checks, secondary_administration
from syphon.backlog.provisioning import plan, provision
from syphon.backlog.queues import queue_names
from syphon.config import DestinationSettings, PairSettings, Transport
from syphon.config import SideSettings as Settings
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, QueueDescription
from syphon.servicebus.factory import client_of, namespace_of
from syphon.servicebus.namespace import Namespace
from tests.integration.transfer.conftest import BACKLOG, TwoNamespaces, aliased


class TlsNamespaces(TwoNamespaces):
    """Two namespaces that can be reached only over TLS."""

    transport = Transport.AMQP

    def settings(self, name: str) -> Settings:
        string = self.emulator[name].connection_string.replace("UseDevelopmentEmulator=true;", "")
        return Settings(connection_string=SecretStr(string), ca_file=self.emulator.ca_file, transport=self.transport)

    def client(self, name: str) -> ServiceBusClient:
        client = client_of(self.settings(name))
        self.clients.append(client)
        return client

    def namespace(self, name: str, entity: str) -> Namespace:
        return namespace_of(self.settings(name), entity)


@pytest.fixture(params=list(Transport))
def secure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TlsNamespaces]:
    both = [NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=both, state=tmp_path, tls=True)) as emulator:
        emulator.call(lambda: emulator["contoso-dr"].namespace.create_queue(QueueDescription(BACKLOG)))
        namespaces = TlsNamespaces(emulator)
        namespaces.transport = request.param
        try:
            yield namespaces
        finally:
            namespaces.close()


def test_messages_smaller_and_larger_than_a_record_arrive_whole(secure: TlsNamespaces) -> None:  # S2, M2, X5
    secure.queue("orders")
    chance = random.Random(7)
    bodies = {f"{number}": chance.randbytes(10 ** (number % 6)) for number in range(120)}
    bodies |= {f"large {number}": chance.randbytes(200_000) for number in range(10)}
    with secure.client("contoso-dr").get_queue_sender(BACKLOG) as sender:
        for name, body in bodies.items():
            sender.send_messages(aliased(body, "orders", message_id=name))
    pump, _ = secure.run()
    assert (pump.counters.forwarded, pump.counters.possible_duplicates) == (len(bodies), 0)
    arrived = {message.message_id: b"".join(message.body) for message in secure.take("orders", len(bodies))}
    assert arrived == bodies


def test_queues_are_made_and_doors_are_tried(secure: TlsNamespaces) -> None:  # P1, P6
    secure.queue("orders")
    pair = PairSettings(
        name="contoso",
        primary=secure.settings("contoso"),
        secondary=secure.settings("contoso-dr"),
        destinations=DestinationSettings(allow=["orders"]),
    )
    administration = secondary_administration(pair)
    assert provision(administration, plan(administration, queue_names(pair))).count == 10
    administration.close()
    found = [finding for look in preflight_checks(pair) for finding in look.findings()]
    assert {finding.level for finding in found} <= {Level.FINE, Level.WARNING}
    assert {"can be received from", "can be sent to"} < {finding.text for finding in found}
