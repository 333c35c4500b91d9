"""A slot in this process, between a real emulator and a real desk: what it tells the driver, whatever happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pydantic import SecretStr

from syphon.config import NamespaceSettings as Side
from syphon.config import PairSettings
from syphon.emulator import (
    Action,
    BackgroundEmulator,
    EmulatorSettings,
    Fault,
    NamespaceSettings,
    Operation,
    Outage,
    QueueDescription,
)
from syphon.model.errors import NotAuthorized
from syphon.model.outcome import Outcome
from syphon.model.stats import Stats
from syphon.spark.control_protocol import ControlAddress
from syphon.spark.control_server import ControlServer
from syphon.spark.task import DriverUnreachable, Slot, SlotAssignment
from syphon.spark.totals import Totals
from syphon.transfer.options import PumpOptions

BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name=name) for name in ("contoso", "contoso-dr")])
    with BackgroundEmulator(settings) as running:
        running.call(lambda: running["contoso"].namespace.create_queue(QueueDescription("orders")))
        backlog = QueueDescription(BACKLOG, max_delivery_count=2**31 - 1)
        running.call(lambda: running["contoso-dr"].namespace.create_queue(backlog))
        yield running


@pytest.fixture
def desk() -> Iterator[ControlServer]:
    with ControlServer() as desk:
        desk.open_job("j")
        yield desk


def put(emulator: BackgroundEmulator, *paths: str) -> None:
    with (
        ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string) as client,
        client.get_queue_sender(BACKLOG) as sender,
    ):
        messages = [ServiceBusMessage("x", application_properties={"x-ms-path": path}) for path in paths]
        for start in range(0, len(messages), 200):
            sender.send_messages(messages[start : start + 200])


def slot(emulator: BackgroundEmulator, desk: ControlAddress, **options: Any) -> Slot:
    primary, secondary = (
        Side(connection_string=SecretStr(emulator[name].connection_string)) for name in ("contoso", "contoso-dr")
    )
    pair = PairSettings(name="contoso", primary=primary, secondary=secondary)
    return Slot(
        SlotAssignment(pair, BACKLOG, "j", PumpOptions.for_pair(pair, quiet=5.0, lease=60.0, **options), desk), 0, 0
    )


def in_backlog(emulator: BackgroundEmulator) -> int:
    return emulator.call(lambda: emulator["contoso-dr"].namespace.runtime(BACKLOG).active)


def test_where_the_driver_cannot_be_reached_no_message_is_taken(emulator: BackgroundEmulator) -> None:
    """What it did would be on nobody's account (D7): a drain would move messages, and say that it had moved none."""
    put(emulator, "orders")
    with ControlServer() as gone:
        address = gone.address
    with pytest.raises(DriverUnreachable, match=f"does not answer at 127.0.0.1:{address.port}"):
        list(slot(emulator, address).rows())
    assert in_backlog(emulator) == 1
    assert emulator.call(lambda: emulator["contoso"].namespace.runtime("orders").active) == 0


def test_an_attempt_that_ends_with_a_mistake_of_ours_counts_as_lost(
    emulator: BackgroundEmulator, desk: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark drops its rows: the account must not balance without them (D9)."""
    put(emulator, "orders", "orders")
    broken = slot(emulator, desk.address)

    def note(census: Stats, outcome: Outcome) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Stats, "note", note)
    with pytest.raises(RuntimeError, match="a mistake"):
        list(broken.rows())
    (sheet,) = desk.close_job("j")
    account = Totals().add([sheet])
    assert not sheet.finished
    assert account.killed == 1
    assert account.received == account.forwarded + account.dead_lettered + account.left + account.unaccounted
    assert account.received > 0


def test_the_driver_hears_of_a_slot_however_many_destinations_its_messages_name(
    emulator: BackgroundEmulator, desk: ControlServer
) -> None:
    """A report that is too large is refused, and a slot that is not heard stops: anybody could bring that about."""
    put(emulator, *(f"{'𝒙' * 240}{number}" for number in range(700)))
    emulator.call(lambda: emulator["contoso"].namespace.faults.begin_outage(Outage.BUSY))
    rows = sum(batch.num_rows for batch in slot(emulator, desk.address).rows())
    (sheet,) = desk.close_job("j")
    assert sheet.finished
    assert (rows, sheet.counters.received) == (700, 700)


def test_the_five_second_rule_holds_in_a_slot_as_well(
    emulator: BackgroundEmulator, desk: ControlServer
) -> None:  # C1, D8
    """The primary is faulted, and the secondary does not let us give back what we have."""
    put(emulator, "orders")
    hung = Fault(Action.HANG, Operation.SETTLE, BACKLOG)
    emulator.call(lambda: emulator["contoso-dr"].namespace.faults.add(hung))
    emulator.call(lambda: emulator["contoso"].namespace.faults.begin_outage(Outage.HANG))
    carrying = slot(emulator, desk.address)
    primary, secondary = carrying._pair.sides
    rows = 0
    for batch in during(carrying, lambda: primary.fault(NotAuthorized("the key was refused"))):
        rows += batch.num_rows
    (sheet,) = desk.close_job("j")
    assert hung.struck == 1
    assert "the key was refused" in str(secondary.reason)
    assert secondary.since - primary.since >= 5.0
    assert sheet.fault is not None
    assert (sheet.fault.side, sheet.fault.denied, rows) == ("primary", True, 1)


def during(carrying: Slot, strike: Callable[[], None]) -> Iterator[Any]:
    """What a slot yields; something happens as soon as it has a message."""

    def wait() -> None:
        while not carrying._pump.counters.in_hand:
            time.sleep(0.01)
        strike()

    thread = threading.Thread(target=wait)
    thread.start()
    yield from carrying.rows()
    thread.join()
