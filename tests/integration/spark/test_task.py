"""A slot in this process, between a real emulator and a real control server: what it reports to the driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pydantic import SecretStr

from syphon.config import PairSettings
from syphon.config import SideSettings as Side
from syphon.control.control_server import ControlServer
from syphon.control.protocol import ControlAddress, HandOver
from syphon.control.reporter import DriverUnreachable
from syphon.control.totals import QueueAttempt, Totals
from syphon.emulator import (
    Action,
    BackgroundEmulator,
    EmulatorSettings,
    Fault,
    NamespaceSettings,
    Operation,
    QueueDescription,
)
from syphon.model.errors import NotAuthorized
from syphon.model.outcomes import Outcome, Stats
from syphon.spark import task
from syphon.spark.task import Slot, SlotAssignment
from syphon.transfer.pump_options import PumpOptions

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
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        server.open_job("j", (HandOver(queue=BACKLOG),))
        yield server


def put(emulator: BackgroundEmulator, *paths: str) -> None:
    with (
        ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string) as client,
        client.get_queue_sender(BACKLOG) as sender,
    ):
        messages = [ServiceBusMessage("x", application_properties={"x-ms-path": path}) for path in paths]
        for start in range(0, len(messages), 200):
            sender.send_messages(messages[start : start + 200])


def slot(emulator: BackgroundEmulator, server: ControlAddress, **options: Any) -> Slot:
    primary, secondary = (
        Side(connection_string=SecretStr(emulator[name].connection_string)) for name in ("contoso", "contoso-dr")
    )
    pair = PairSettings(name="contoso", primary=primary, secondary=secondary)
    return Slot(
        SlotAssignment(
            pair, (HandOver(queue=BACKLOG),), "j", PumpOptions.for_pair(pair, quiet=5.0, lease=60.0, **options), server
        ),
        0,
        0,
    )


def in_backlog(emulator: BackgroundEmulator) -> int:
    return emulator.call(lambda: emulator["contoso-dr"].namespace.runtime(BACKLOG).active)


def test_where_the_driver_cannot_be_reached_no_message_is_taken(emulator: BackgroundEmulator) -> None:
    """Its work would be in no totals (D7): a drain would move messages, and say that it had moved none."""
    put(emulator, "orders")
    with ControlServer() as gone:
        address = gone.address
    with pytest.raises(DriverUnreachable, match=f"does not answer at 127.0.0.1:{address.port}"):
        list(slot(emulator, address).rows())
    assert in_backlog(emulator) == 1
    assert emulator.call(lambda: emulator["contoso"].namespace.runtime("orders").active) == 0


def test_an_attempt_that_ends_with_a_mistake_of_ours_counts_as_lost(
    emulator: BackgroundEmulator, server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark drops its rows: the totals must not balance without them (D9)."""
    put(emulator, "orders", "orders")
    broken = slot(emulator, server.address)

    def count_all(stats: Stats, outcomes: Sequence[Outcome]) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Stats, "count_all", count_all)
    with pytest.raises(RuntimeError, match="a mistake"):
        list(broken.rows())
    (report,) = server.close_job("j")
    totals = Totals().with_ended([QueueAttempt(report, report.queues[0])])
    assert not report.finished
    assert totals.killed == 1
    assert totals.received == totals.forwarded + totals.dead_lettered + totals.left + totals.unaccounted
    assert totals.received > 0


def test_the_driver_hears_of_a_slot_however_many_destinations_its_messages_name(
    emulator: BackgroundEmulator, server: ControlServer
) -> None:
    """A report that is too large is refused, and a slot without answers stops: any sender could cause that."""
    put(emulator, *(f"{'𝒙' * 240}{number}" for number in range(700)))
    busy = Fault(Action.ERROR, Operation.ATTACH, condition="com.microsoft:server-busy")
    emulator.call(lambda: emulator["contoso"].namespace.faults.add(busy))
    rows = counted(server, slot(emulator, server.address).rows())
    (report,) = server.close_job("j")
    assert report.finished
    assert report.started_at <= report.reported_at <= time.time() * 1000
    assert (rows, report.counters.received) == (700, 700)


def test_the_five_second_rule_holds_in_a_slot_as_well(
    emulator: BackgroundEmulator, server: ControlServer
) -> None:  # C1, D8
    """The primary is faulted, and the secondary does not answer when the slot gives its messages back."""
    put(emulator, "orders")
    hung = Fault(Action.HANG, Operation.SETTLE, BACKLOG)
    emulator.call(lambda: emulator["contoso-dr"].namespace.faults.add(hung))
    silent = Fault(Action.HANG, Operation.SEND, "orders")
    emulator.call(lambda: emulator["contoso"].namespace.faults.add(silent))
    running = slot(emulator, server.address)
    primary, secondary = running._pair.sides
    rows = counted(server, during(running, lambda: primary.fault(NotAuthorized("the key was refused"))))
    (report,) = server.close_job("j")
    assert hung.struck == 1
    assert "the key was refused" in str(secondary.reason)
    assert secondary.since - primary.since >= 5.0
    assert report.fault is not None
    assert (report.fault.side, report.fault.denied, rows) == ("primary", True, 1)


def test_a_slot_sends_its_rows_while_it_works_and_yields_what_the_driver_has_not_confirmed(
    emulator: BackgroundEmulator, server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # D9
    """If it is killed, Spark has nothing of it: the driver has what it has sent."""
    monkeypatch.setattr(task, "ROWS_SENT_EVERY", 0.0)
    put(emulator, *["orders"] * 300)
    assert counted(server, slot(emulator, server.address).rows()) == 300
    assert server.rows_of("j")


def counted(server: ControlServer, files: Iterable[bytes]) -> int:
    """How many outcomes a slot has recorded: those that it yields, and those that it has sent."""
    every = dict.fromkeys([*files, *server.rows_of("j")])  # the files first: meanwhile the slot works
    return sum(pq.read_metadata(pa.BufferReader(file)).num_rows for file in every)


def during(running: Slot, strike: Callable[[], None]) -> Iterator[bytes]:
    """The rows of a slot; `strike` is called as soon as it has a message."""

    def wait() -> None:
        while not running._pump.counters.in_flight:
            time.sleep(0.01)
        strike()

    thread = threading.Thread(target=wait)
    thread.start()
    yield from running.rows()
    thread.join()
