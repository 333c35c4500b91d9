"""The syphon inside the application (`enable_syphon`)."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from syphon.backlog import QueueName
from syphon.emulator import Action, EntityStatus, Fault, Kind, Operation, Outage, QueueDescription
from syphon.emulator.broker.message import StoredState
from syphon.model.errors import DestinationMissing, NotAuthorized
from syphon.sender import embedded
from syphon.sender.embedded import EmbeddedSyphon
from syphon.time_budget import EMBEDDED_REST
from syphon.transfer import Pump
from syphon.transfer.backlog_listener import Listener
from tests.integration.sender.conftest import QUEUE_0, QUEUE_1, PairedEmulator, leftovers
from tests.support.waiting import eventually

pytestmark = leftovers
QUICKLY: dict[str, Any] = {"enable_syphon": True, "ping_primary_interval": timedelta(seconds=1), "manual_clock": False}


def test_the_backlog_is_moved_to_the_primary_when_it_can_be_reached_again(paired: PairedEmulator) -> None:
    client = paired.pair(**QUICKLY)
    sender = client.get_queue_sender("orders")
    eventually(lambda: is_connected(client.syphon))
    paired.outage(Outage.REFUSE)
    eventually(lambda: is_out(client.syphon))
    for number in range(5):
        sender.send_messages(ServiceBusMessage("x", message_id=str(number), session_id="s"))
    assert paired.in_backlog() == 5
    paired.outage(None)
    eventually(lambda: paired.active("orders") == 5)
    assert sorted(str(message.message_id) for message in paired.take("orders", 5)) == list("01234")
    eventually(lambda: client.syphon.forwarded == 5)
    assert paired.in_backlog() == 0


@pytest.mark.parametrize("api", ["sync"])
def test_the_backlog_of_a_second_outage_is_moved_like_that_of_the_first(paired: PairedEmulator) -> None:
    client = paired.pair(backlog_queue_count=1, **QUICKLY)
    sender = client.get_queue_sender("orders")
    syphon = client.syphon
    for arrived in (1, 2):
        eventually(lambda: is_connected(syphon))
        paired.outage(Outage.REFUSE)
        eventually(lambda: is_out(syphon))
        sender.send_messages(ServiceBusMessage("x"))
        paired.outage(None)
        eventually(partial(lambda count: paired.active("orders") == count, arrived))
        eventually(lambda: not client.failed_over)


def is_connected(syphon: EmbeddedSyphon) -> bool:
    return syphon._listener.pair.primary.is_connected


def is_out(syphon: EmbeddedSyphon) -> bool:
    """It knows of the outage. Otherwise it receives a message, and must leave it until its lock ends."""
    return syphon._pump is None and not is_connected(syphon)


def test_messages_of_an_entity_that_is_disabled_are_kept_for_it(paired: PairedEmulator) -> None:  # S4
    """The disabled entity is the reason why they are in the backlog."""
    client = paired.pair(**QUICKLY)
    disabled = QueueDescription("orders", status=EntityStatus.SEND_DISABLED)
    paired.emulator.call(lambda: paired.primary.update_queue(disabled))
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("y"))
    assert client.failed_over == ("orders",)
    eventually(lambda: client.syphon.left)
    assert client.syphon.dead_lettered == 0
    assert paired.in_backlog() == 2


@pytest.mark.parametrize("api", ["sync"])
def test_a_queue_does_not_wait_for_the_end_of_another(paired: PairedEmulator) -> None:  # S10, D15
    syphon = paired.pair(enable_syphon=True, manual_clock=False).syphon
    paired.queue("silent")
    paired.fault(Fault(Action.HANG, Operation.SEND, "silent"))
    put(paired, QUEUE_0, "silent")
    eventually(lambda: set(syphon._served) == {QUEUE_0})
    put(paired, QUEUE_1, "orders")
    eventually(lambda: set(syphon._served) == {QUEUE_0, QUEUE_1})
    eventually(lambda: paired.active("orders") == 1)
    assert QUEUE_0 in syphon._served


@pytest.mark.parametrize("api", ["sync"])
def test_messages_for_a_disabled_entity_are_not_received_again_and_again(paired: PairedEmulator) -> None:  # S7, D16
    disabled = QueueDescription("orders", status=EntityStatus.SEND_DISABLED)
    paired.emulator.call(lambda: paired.primary.update_queue(disabled))
    syphon = paired.pair(enable_syphon=True, manual_clock=False).syphon
    put(paired, QUEUE_0, *["orders"] * 20)
    eventually(lambda: syphon.left >= 20)
    counters = paired.secondary.counters
    backlog = paired.secondary.message_queue(QUEUE_0)
    eventually(lambda: paired.emulator.call(lambda: backlog.count(StoredState.DEFERRED)) == 20)
    assert paired.emulator.call(lambda: counters.of(QUEUE_0, Kind.RECEIVE)) <= 21  # one rang


def put(paired: PairedEmulator, queue: str, *destinations: str) -> None:
    """Puts messages into a backlog queue, as another application does."""
    with (
        ServiceBusClient.from_connection_string(paired.emulator["contoso-dr"].connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(
            [ServiceBusMessage("x", application_properties={"x-ms-path": path}) for path in destinations]
        )


def test_without_it_the_backlog_is_left_alone(paired: PairedEmulator) -> None:
    assert paired.pair().syphon is None


@pytest.mark.parametrize("api", ["sync"])
def test_when_one_side_is_faulted_the_other_gets_five_seconds_and_the_syphon_ends(
    paired: PairedEmulator, caplog: pytest.LogCaptureFixture
) -> None:  # C1, C3
    syphon = paired.pair(enable_syphon=True).syphon
    syphon._listener.pair.primary.fault(NotAuthorized("the key was taken back"))
    paired.clock.advance(4.9)
    assert not syphon._listener.pair.secondary.has_ended
    paired.clock.advance(0.1)
    eventually(lambda: not syphon._thread.is_alive())
    assert syphon._listener.pair.secondary.has_ended
    assert isinstance(syphon.fault, NotAuthorized)
    assert "the key was taken back" in caplog.text


@pytest.mark.parametrize("api", ["sync"])
@pytest.mark.parametrize("part", [EmbeddedSyphon, Listener])
def test_a_syphon_that_ends_by_a_mistake_of_its_own_says_so(
    paired: PairedEmulator,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    part: type[EmbeddedSyphon] | type[Listener],
) -> None:
    """Otherwise the application would believe that its backlog is still being moved."""

    def turn(_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(part, "_turn", turn)
    syphon = paired.pair(enable_syphon=True).syphon
    eventually(lambda: not syphon._thread.is_alive())
    assert "a mistake" in str(syphon.fault)
    assert "messages stay in the backlog: RuntimeError: a mistake" in caplog.text


def test_a_queue_that_cannot_be_received_from_is_listened_to_again_after_a_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # S3
    now, armed = 1000.0, list[str]()
    primary, secondary = (cast(Any, SimpleNamespace(fully_qualified_namespace=name)) for name in ("primary", "dr"))
    syphon = EmbeddedSyphon(primary, secondary, [QueueName(QUEUE_0), QueueName(QUEUE_1)], lambda: now)
    monkeypatch.setattr(embedded, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(syphon._listener, "arm", lambda name, **_: armed.append(name))
    over = SimpleNamespace(is_served=False, ended=None, counters=SimpleNamespace(received=0))
    queues = {
        QUEUE_0: SimpleNamespace(**vars(over), error=DestinationMissing("It is gone.")),
        QUEUE_1: SimpleNamespace(**vars(over), error=None),
    }
    syphon._served = {QUEUE_0: 0, QUEUE_1: 0}
    syphon._take_back(
        cast(Pump, SimpleNamespace(queues=queues, backing_off=lambda: (), destinations=SimpleNamespace(recovered=list)))
    )
    assert armed == [QUEUE_1]
    now = 1000.0 + EMBEDDED_REST - 0.1
    syphon._arm_troubled()
    assert armed == [QUEUE_1]
    now = 1000.0 + EMBEDDED_REST
    for _ in range(2):
        syphon._arm_troubled()
    assert armed == [QUEUE_1, QUEUE_0]
