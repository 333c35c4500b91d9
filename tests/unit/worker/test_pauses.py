"""What the operator has paused: what it holds up, and that it survives a restart."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from syphon.control.control_server import is_news
from syphon.control.protocol import HandOver, SlotReport
from syphon.control.slot_control import SlotControl
from syphon.model import EntityPath
from syphon.time_budget import RETRY_REACHES_SLOTS
from syphon.worker.pauses import Pause, Pauses, StateUnreadable

QUEUE, DESTINATION, PAIR = Pause(pair="a", queue="q0"), Pause(pair="a", destination="Orders"), Pause(pair="b")


def test_a_pair_holds_its_queues_a_queue_itself_and_a_destination_no_queue() -> None:
    pauses = Pauses()
    assert not pauses.holds_queue("a", "q0")
    pauses.add([QUEUE, DESTINATION, PAIR])
    assert [pauses.holds_queue(*key) for key in (("a", "q0"), ("a", "q1"), ("b", "q0"))] == [True, False, True]
    assert pauses.holds_destination("a", "/orders")
    assert not pauses.holds_destination("b", "orders")
    pauses.end([PAIR])
    assert not pauses.holds_queue("b", "q0")


def test_it_is_remembered_over_a_restart_and_what_is_resumed_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "state.json"
    first = Pauses(file)
    first.add([QUEUE, DESTINATION, PAIR])
    assert Pauses(file).all() == first.all() == sorted([QUEUE, DESTINATION, PAIR], key=str)
    first.end([QUEUE, PAIR])
    assert Pauses(file).all() == [DESTINATION]
    assert [found.name for found in file.parent.iterdir()] == ["state.json"]  # nothing half-written is left


@pytest.mark.parametrize("text", ["", "{", '{"paused": [{"pear": "a"}]}', '{"paused": [], "more": 1}'])
def test_a_file_that_makes_no_sense_is_an_error_and_not_a_resume(tmp_path: Path, text: str) -> None:
    file = tmp_path / "state.json"
    file.write_text(text)
    with pytest.raises(StateUnreadable, match="Correct the file, or remove it"):
        Pauses(file)


def test_a_file_that_cannot_be_written_pauses_all_the_same_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    pauses = Pauses(tmp_path / "file" / "state.json")
    with caplog.at_level(logging.ERROR):
        pauses.add([PAIR])
    assert pauses.holds_pair("b")
    assert "pauses will not survive a restart" in caplog.text


def test_two_that_pause_at_once_are_both_remembered(tmp_path: Path) -> None:
    pauses = Pauses(tmp_path / "state.json")
    threads = [threading.Thread(target=pauses.add, args=([Pause(pair="a", queue=str(n))],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Pauses(tmp_path / "state.json").all()) == 8


def test_a_slot_releases_a_paused_queue_and_hears_which_destinations_to_leave_alone() -> None:  # D7
    pauses = Pauses()
    server = SlotControl(pauses=pauses)
    pauses.add([QUEUE, DESTINATION])
    server.open_job("j", (HandOver(queue="q0"), HandOver(queue="q1")))
    slot = SlotReport(pair="a", job="j", slot=0, attempt=0, started_at=0)
    order = server.order_for(slot)
    assert (order.stop, order.released, order.paused) == (False, ("q0",), ("Orders",))
    assert [handed.queue for handed in order.queues] == ["q1"]
    pauses.end([QUEUE, DESTINATION])
    order = server.order_for(slot)
    assert (order.released, order.paused, len(order.queues)) == ((), (), 2)


def test_slots_hear_once_that_the_operator_wants_a_destination_to_be_retried() -> None:  # D7
    now = [1000.0]
    server = SlotControl(now=lambda: now[0])
    server.open_job("j")
    slot = SlotReport(pair="a", job="j", slot=0, attempt=0, started_at=0)
    server.retry("a", EntityPath.of("Orders"))
    server.retry("other", EntityPath.of("news"))
    order = server.order_for(slot)
    assert (order.retries, order.retried, is_news(order, slot)) == (1, ("Orders",), True)
    assert server.unheard_retries(slot) == {"orders"}
    has_heard = slot.model_copy(update={"retries": 1})
    assert (server.unheard_retries(has_heard), is_news(server.order_for(has_heard), has_heard)) == (frozenset(), False)
    server.retry("a", EntityPath.of("Orders"))
    assert server.order_for(has_heard).retries == 2
    now[0] += RETRY_REACHES_SLOTS
    assert (server.order_for(slot).retries, server.order_for(slot).retried) == (2, ())
