"""What the driver remembers of destinations that back off: a bounded number of them."""

from __future__ import annotations

import pytest

from syphon.amqp import Map, Section, Timestamp, section_bytes
from syphon.model import DestinationError
from syphon.transfer import WaitingMessages
from syphon.transfer.backoff_gate import MOST_REMEMBERED
from syphon.transfer.pump import DestinationBackoff
from syphon.worker.pausable_gate import PausableGate
from syphon.worker.pauses import Pause, Pauses


def waits(path: str, reason: str = "full") -> DestinationBackoff:
    return DestinationBackoff(path, 10.0, reason, 1)


def aliased(path: str, enqueued_at: int) -> bytes:
    """A message of the backlog, as the broker delivers it."""
    stamps = Map.symbols({"x-opt-enqueued-time": Timestamp(enqueued_at)})
    properties = section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"x-ms-path": path}))
    return section_bytes(Section.MESSAGE_ANNOTATIONS, stamps) + properties


def test_a_destination_that_waits_again_for_the_same_reason_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    backoffs = PausableGate("contoso", now=lambda: now[0])
    for _ in range(3):
        backoffs.record([waits("orders")])
        now[0] += 60
    backoffs.record([waits("orders", "throttled")])
    assert [record.getMessage().count("is unavailable: full") for record in caplog.records] == [1, 0]


def test_messages_that_are_not_counted_yet_are_not_called_none(caplog: pytest.LogCaptureFixture) -> None:  # X7
    backoffs = PausableGate("contoso")
    backoffs.record([waits("orders")._replace(left=0), waits("billing")._replace(left=1200)])
    assert [record.getMessage().partition("; ")[2] for record in caplog.records] == [
        "its messages stay in the backlog; retrying in 10 s",
        "at least 1,200 stay in the backlog; retrying in 10 s",
    ]


def test_a_back_off_whose_time_is_over_is_still_known() -> None:
    now = [0.0]
    backoffs = PausableGate("contoso", now=lambda: now[0])
    backoffs.record([waits("orders")])
    now[0] = 11.0
    assert backoffs.backing_off() == ()
    assert [(known.path, known.seconds) for known in backoffs.failing()] == [("orders", 0.0)]


def test_those_that_have_waited_are_forgotten_when_there_are_many(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    backoffs = PausableGate("contoso", now=lambda: now[0])
    for day in range(5):
        backoffs.record(waits(f"{day}-{number}") for number in range(MOST_REMEMBERED // 2))
        assert len(backoffs.backing_off()) == MOST_REMEMBERED // 2
        assert len(backoffs._until) <= MOST_REMEMBERED + 1
        now[0] += 60


def test_messages_that_start_no_job_are_counted_and_reading_them_changes_nothing() -> None:
    backoffs = PausableGate("contoso")
    backoffs.record([waits("orders")])
    assert backoffs.is_worth_a_job("q", aliased("news", 100))
    for enqueued_at in (300, 200):
        assert not backoffs.is_worth_a_job("q", aliased("/Orders", enqueued_at))
    assert backoffs.skipped_count == 2
    for _ in range(2):
        assert backoffs.skipped(0, 2) == {("q", "orders"): WaitingMessages(2, 200)}
    assert backoffs.skipped(1, 2) == {("q", "orders"): WaitingMessages(1, 200)}
    assert backoffs.skipped(2, 2) == {}


def test_a_message_that_cannot_be_restored_is_worth_a_job_although_its_destination_backs_off() -> None:  # M4
    backoffs = PausableGate("contoso")
    backoffs.record([waits("orders")])
    aliases = Map.of({"x-ms-path": "orders", "x-ms-timetolive": "soon"})
    assert backoffs.is_worth_a_job("q", section_bytes(Section.APPLICATION_PROPERTIES, aliases))
    assert backoffs.skipped_count == 0


def test_a_destination_can_move_if_it_neither_backs_off_nor_is_paused() -> None:  # D16
    now = [0.0]
    pauses = Pauses()
    backoffs = PausableGate("contoso", pauses, now=lambda: now[0])
    backoffs.record([waits("Orders")])
    pauses.add([Pause(pair="contoso", destination="news")])
    assert [backoffs.can_move(path) for path in ("orders", "news", "others")] == [False, False, True]
    now[0] = 10.0
    pauses.end(pauses.all())
    assert [backoffs.can_move(path) for path in ("orders", "news")] == [True, True]


def test_each_try_that_fails_doubles_the_pause_although_a_new_slot_begins_with_the_shortest() -> None:  # S9
    now = [0.0]
    backoffs = PausableGate("contoso", now=lambda: now[0])
    backoffs.record([waits("orders")])
    pauses = []
    for _ in range(6):
        now[0] += backoffs.backing_off()[0].seconds
        backoffs.record([waits("orders")])
        pauses.append(backoffs.backing_off()[0].seconds)
    assert pauses == [20, 40, 80, 120, 120, 120]
    now[0] += 120
    backoffs.forget("orders")  # it has worked in between
    backoffs.record([waits("orders")])
    assert backoffs.backing_off()[0].seconds == 10
    now[0] += 10
    backoffs.record([waits("orders")._replace(failures=5, seconds=100)])  # a slot that has counted them
    assert backoffs.backing_off()[0][1:5] == (100, "full", 1, 5)


def test_a_destination_that_is_retried_can_move_at_once_and_its_next_failure_counts_on() -> None:  # S9
    now = [0.0]
    backoffs = PausableGate("contoso", now=lambda: now[0])
    backoffs.record([waits("Orders")])
    assert (backoffs.can_move("orders"), backoffs.retry("ORDERS"), backoffs.can_move("orders")) == (False, True, True)
    assert backoffs.retry("orders") is False  # it does not back off any more
    backoffs.record([waits("Orders")])
    assert [(known.failures, known.seconds) for known in backoffs.backing_off()] == [(2, 20.0)]


def test_the_quiet_that_a_throttled_service_asks_for_is_kept_when_a_destination_is_retried() -> None:  # S5
    backoffs = PausableGate("contoso", now=lambda: 0.0)
    backoffs.record([waits("orders")._replace(error=DestinationError.BUSY)])
    assert backoffs.retry("orders") is False
