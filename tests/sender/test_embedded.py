"""The syphon inside the application (`enable_syphon`)."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from syphon.emulator import EntityStatus, Outage, QueueDescription
from syphon.model.errors import NotAuthorized
from syphon.sender.embedded import EmbeddedSyphon
from tests.sender.conftest import Bench, leftovers
from tests.support.sender_faces import eventually

pytestmark = leftovers
QUICKLY: dict[str, Any] = {"enable_syphon": True, "ping_primary_interval": timedelta(seconds=1), "hand_clock": False}


def test_what_went_to_the_backlog_comes_home_when_the_primary_is_back(bench: Bench) -> None:
    client = bench.pair(**QUICKLY)
    sender = client.get_queue_sender("orders")
    eventually(lambda: client.syphon._primary.is_connected)
    bench.outage(Outage.REFUSE)
    eventually(lambda: is_out(client.syphon))
    for number in range(5):
        sender.send_messages(ServiceBusMessage("x", message_id=str(number), session_id="s"))
    assert bench.in_backlog() == 5
    bench.outage(None)
    eventually(lambda: bench.active("orders") == 5, within=30)
    assert sorted(str(message.message_id) for message in bench.take("orders", 5)) == list("01234")
    eventually(lambda: client.syphon.forwarded == 5)
    assert bench.in_backlog() == 0


@pytest.mark.parametrize("front", ["sync"])
def test_a_second_outage_is_carried_home_as_the_first_one_was(bench: Bench) -> None:
    client = bench.pair(backlog_queue_count=1, **QUICKLY)
    sender = client.get_queue_sender("orders")
    syphon = client.syphon
    for arrived in (1, 2):
        eventually(lambda: syphon._primary.is_connected, within=30)
        bench.outage(Outage.REFUSE)
        eventually(lambda: is_out(syphon), within=30)
        sender.send_messages(ServiceBusMessage("x"))
        bench.outage(None)
        eventually(partial(lambda count: bench.active("orders") == count, arrived), within=30)
        eventually(lambda: not client.failed_over, within=30)


def is_out(syphon: EmbeddedSyphon) -> bool:
    """It knows of the outage. Else it takes a message, and has to leave it for the time of its lock."""
    return syphon._pump is None and not syphon._primary.is_connected


def test_messages_of_an_entity_that_is_disabled_are_kept_for_it(bench: Bench) -> None:
    """That is why they are in the backlog. The syphon's own rule would dead-letter them."""
    client = bench.pair(**QUICKLY)
    disabled = QueueDescription("orders", status=EntityStatus.SEND_DISABLED)
    bench.emulator.call(lambda: bench.primary.update_queue(disabled))
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    client.get_queue_sender("orders").send_messages(ServiceBusMessage("y"))
    assert client.failed_over == ("orders",)
    eventually(lambda: client.syphon.left)
    assert client.syphon.dead_lettered == 0
    assert bench.in_backlog() == 2


def test_without_it_the_backlog_is_left_alone(bench: Bench) -> None:
    assert bench.pair().syphon is None


@pytest.mark.parametrize("front", ["sync"])
def test_when_one_side_is_faulted_the_other_gets_five_seconds_and_the_syphon_ends(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:  # C1, C3
    syphon = bench.pair(enable_syphon=True).syphon
    syphon._primary.fault(NotAuthorized("the key was taken back"))
    bench.clock.advance(4.9)
    assert not syphon._secondary.has_ended
    bench.clock.advance(0.1)
    eventually(lambda: not syphon._thread.is_alive())
    assert syphon._secondary.has_ended
    assert isinstance(syphon.fault, NotAuthorized)
    assert "the key was taken back" in caplog.text


@pytest.mark.parametrize("front", ["sync"])
def test_a_syphon_that_ends_by_a_mistake_of_its_own_says_so(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an application goes on believing that its backlog is carried home."""

    def turn(syphon: EmbeddedSyphon) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(EmbeddedSyphon, "_turn", turn)
    syphon = bench.pair(enable_syphon=True).syphon
    eventually(lambda: not syphon._thread.is_alive())
    assert "a mistake" in str(syphon.fault)
    assert "the backlog stays where it is: RuntimeError: a mistake" in caplog.text
