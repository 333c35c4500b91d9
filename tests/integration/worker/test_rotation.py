"""A key is rotated under a running worker, which goes on with the new one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage, QueueDescription
from tests.support.processes import Running, aliased
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(600)

BACKLOG = "contoso/x-servicebus-transfer/0"
SIDES = ("contoso", "contoso-dr")


class Rotated:
    """Two namespaces, and the files with their connection strings."""

    def __init__(self, emulator: BackgroundEmulator, folder: Path) -> None:
        self.emulator, self.folder = emulator, folder
        for name, queue in zip(SIDES, ("orders", BACKLOG), strict=True):
            description = QueueDescription(queue, max_delivery_count=100)
            emulator.call(lambda n=name, d=description: emulator[n].namespace.create_queue(d))  # type: ignore[misc]
        self.write()

    def write(self) -> None:
        for name in SIDES:
            (self.folder / name).write_text(self.emulator[name].connection_string)

    def rotate(self) -> None:
        """Makes all keys invalid that were given out, and cuts all connections."""
        for name in SIDES:
            namespace = self.emulator[name].namespace
            for policy in list(namespace.access.policies.values()):
                namespace.access.policies[policy.name] = replace(policy, key=f"{policy.key}-rotated")
        for name in SIDES:
            faults = self.emulator[name].namespace.faults
            self.emulator.call(lambda f=faults: f.begin_outage(Outage.REFUSE))  # type: ignore[misc]
        self.write()
        for name in SIDES:
            self.emulator.call(self.emulator[name].namespace.faults.end_outage)

    def put(self, number: int) -> None:
        string = self.emulator[SIDES[1]].connection_string
        with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender(BACKLOG) as sender:
            sender.send_messages(aliased(number, "orders"))

    def arrived(self) -> int:
        return self.emulator.call(lambda: self.emulator[SIDES[0]].namespace.runtime("orders").active)


@pytest.fixture
def rotated(tmp_path: Path) -> Iterator[Rotated]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name=name) for name in SIDES])
    with BackgroundEmulator(settings) as emulator:
        yield Rotated(emulator, tmp_path)


def test_a_worker_goes_on_with_a_key_that_was_rotated(rotated: Rotated, tmp_path: Path) -> None:  # T10
    config = tmp_path / "config.yaml"
    config.write_text(
        "pairs:\n  - name: contoso\n    backlog_queue_count: 1\n"
        "    primary: {name: contoso, connection_string: '${file:contoso}'}\n"
        "    secondary: {connection_string: '${file:contoso-dr}'}\n"
        "status: {listen: '127.0.0.1:0'}\npipeline: {ledger: ledger}\n"
    )
    worker = Running(["run", "-c", str(config)], tmp_path)
    try:
        worker.until("listening on")
        rotated.put(1)
        eventually(lambda: rotated.arrived() == 1, what=lambda: worker.said)
        rotated.rotate()
        rotated.put(2)
        eventually(lambda: rotated.arrived() == 2 or worker.process.poll() is not None, what=lambda: worker.said)
        assert rotated.arrived() == 2, worker.said
        assert worker.stop()[0] == 0
    finally:
        worker.close()
