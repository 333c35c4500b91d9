"""The control server over real HTTP: which reports it accepts, and what it answers (D7)."""

from __future__ import annotations

import http.client
import itertools
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import pytest

from syphon.backlog import TraceContext
from syphon.control import control_server
from syphon.control.control_server import ControlServer
from syphon.control.protocol import (
    REPORT_PATH,
    SIGNATURE,
    HandOver,
    Purpose,
    QueueReport,
    SlotOrder,
    SlotReport,
    signature,
)
from syphon.control.slot_control import Traced
from syphon.model.outcomes import Counters
from syphon.transfer.traces import BatchTrace
from tests.support.waiting import eventually


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


NUMBERS = itertools.count(1)
TRACE = BatchTrace("orders", 3, [TraceContext("a" * 32, "b" * 16)], 1, 2, 3, settled=4)


def slot_report(job: str = "j", slot: int = 0, attempt: int = 0, **counts: Any) -> SlotReport:
    queue = QueueReport(queue="q", number=1, counters=Counters(received=counts.pop("received", 0)))
    return SlotReport(
        pair="contoso",
        job=job,
        slot=slot,
        attempt=attempt,
        started_at=0,
        queues=(queue,),
        number=next(NUMBERS),
        **counts,
    )


def post(server: ControlServer, body: bytes, secret: str | None = None, path: str = REPORT_PATH) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.address.host, server.address.port, timeout=10)
    try:
        signed = signature(server.address.secret if secret is None else secret, Purpose.REPORT, body)
        connection.request("POST", path, body, {SIGNATURE: signed})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def report(server: ControlServer, reported: SlotReport) -> SlotOrder:
    status, body = post(server, reported.model_dump_json().encode())
    assert status == 200
    return SlotOrder.model_validate_json(body)


def test_a_task_of_an_open_job_is_told_to_go_on_and_is_counted(server: ControlServer) -> None:
    server.open_job("j")
    assert report(server, slot_report(received=7)) == SlotOrder(stop=False, rate=None)
    assert [found.counters.received for found in server.live_reports()] == [7]
    report(server, slot_report(received=9, finished=True))
    assert [found.counters.received for found in server.close_job("j")] == [9]
    assert server.live_reports() == []


def test_rows_arrive_as_they_are_and_are_kept_until_the_job_is_closed(server: ControlServer) -> None:  # D9
    file = bytes(range(256))
    server.open_job("j")
    report(server, slot_report().model_copy(update={"rows": (file,)}))
    assert server.rows_of("j") == [file]
    assert [found.rows for found in server.live_reports()] == [()]
    server.close_job("j")
    assert server.rows_of("j") == []


def test_a_task_whose_job_is_over_is_told_to_stop_and_not_counted(server: ControlServer) -> None:
    server.open_job("j")
    server.close_job("j")
    assert report(server, slot_report(received=7)).stop
    assert server.live_reports() == []


def test_a_task_that_was_started_again_elsewhere_is_told_to_stop(server: ControlServer) -> None:
    server.open_job("j")
    assert not report(server, slot_report(attempt=1)).stop
    assert report(server, slot_report(attempt=0)).stop
    assert not report(server, slot_report(slot=1, attempt=0)).stop


def test_one_job_can_be_stopped_and_others_go_on(server: ControlServer) -> None:
    server.open_job("j")
    server.open_job("k")
    server.stop_job("j")
    assert report(server, slot_report()).stop
    assert not report(server, slot_report(job="k")).stop


def test_a_slot_is_told_which_queues_it_serves(server: ControlServer) -> None:  # D15
    first, second = HandOver(queue="q", waiting=("orders",)), HandOver(queue="r", number=3)
    server.open_job("j", (first,))
    assert report(server, slot_report()).queues == (first,)
    server.hand_over("j", second)
    assert report(server, slot_report()).queues == (first, second)
    server.take_back("j", "q")
    assert report(server, slot_report()).queues == (second,)
    server.hand_over("gone", first)
    assert report(server, slot_report(job="gone")).stop


def test_an_answer_is_held_until_there_is_a_queue_for_the_slot(
    server: ControlServer, monkeypatch: pytest.MonkeyPatch
) -> None:  # D15
    """Without it, a queue that rings would wait for the next report."""
    monkeypatch.setattr(control_server, "LONGEST_HOLD", 600.0)  # only news can end it
    server.open_job("j", (HandOver(queue="q"),))
    with ThreadPoolExecutor() as threads:
        held = threads.submit(report, server, slot_report(hold=600.0))
        eventually(lambda: server.live_reports(), within=10)
        handed = HandOver(queue="r", number=1)
        server.hand_over("j", handed)
        assert handed in held.result(60).queues


def test_an_answer_is_held_no_longer_than_the_slot_allows(server: ControlServer) -> None:
    server.open_job("j", (HandOver(queue="q"),))
    assert not report(server, slot_report(hold=0.01)).stop


def test_a_held_answer_says_stop_at_once(server: ControlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_server, "LONGEST_HOLD", 600.0)  # only news can end it
    server.open_job("j", (HandOver(queue="q"),))
    with ThreadPoolExecutor() as threads:
        held = threads.submit(report, server, slot_report(hold=600.0))
        eventually(lambda: server.live_reports(), within=10)
        server.stop_all()
        assert held.result(60).stop


def test_a_paused_queue_is_released_and_the_others_are_served() -> None:
    class Paused:
        def holds_queue(self, pair: str, queue: str) -> bool:
            return (pair, queue) == ("contoso", "q")

        def destinations(self, pair: str) -> tuple[str, ...]:
            return (f"orders of {pair}",)

    with ControlServer(pauses=Paused()) as server:
        server.open_job("j", (HandOver(queue="q"), HandOver(queue="r")))
        order = report(server, slot_report())
    assert ([handed.queue for handed in order.queues], order.released) == (["r"], ("q",))
    assert order.paused == ("orders of contoso",)


def test_what_the_slots_of_a_job_have_counted_is_passed_on_with_each_report() -> None:  # D17
    told = list[tuple[str, dict[str, Counters]]]()
    with ControlServer(on_progress=lambda job, counters: told.append((job, dict(counters)))) as server:
        server.open_job("j")
        report(server, slot_report(slot=0, received=7))
        report(server, slot_report(slot=1, received=2))
        report(server, slot_report(job="closed", received=5))
    assert [(job, counters["q"].received) for job, counters in told] == [("j", 7), ("j", 9)]


def test_when_everything_is_to_stop_every_task_hears_of_it(server: ControlServer) -> None:
    server.open_job("j")
    server.stop_all()
    assert report(server, slot_report()).stop


def test_the_rate_of_a_pair_is_shared_by_the_tasks_that_work() -> None:
    now = 100.0
    with ControlServer(now=lambda: now) as server:
        server.open_job("j")
        server.set_rate("contoso", 300.0)
        assert report(server, slot_report(slot=0)).rate == 300.0
        assert report(server, slot_report(slot=1)).rate == 150.0
        assert report(server, slot_report(slot=2)).rate == 100.0
        report(server, slot_report(slot=2, finished=True))
        assert report(server, slot_report(slot=0)).rate == 150.0
        now += 60.0  # slot 1 has not been heard of since: it was killed
        assert report(server, slot_report(slot=0)).rate == 300.0
        server.set_rate("contoso", 0.0)
        assert report(server, slot_report(slot=0)).rate == 0.0


@pytest.mark.parametrize("secret", ["", "guess"])
def test_a_report_that_is_not_signed_with_the_secret_is_refused(server: ControlServer, secret: str) -> None:  # T4
    server.open_job("j")
    assert post(server, slot_report().model_dump_json().encode(), secret)[0] == 401
    assert server.live_reports() == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"pair": 1}', json.dumps({"job": "j"}).encode(), b"\xff" * 99])
def test_an_invalid_report_is_refused_and_the_server_continues(server: ControlServer, body: bytes) -> None:
    server.open_job("j")
    assert post(server, body)[0] == 400
    assert not report(server, slot_report()).stop


def test_a_report_of_twenty_megabytes_is_refused(server: ControlServer) -> None:
    assert post(server, b" " * 20_000_000)[0] == 413


def test_the_secret_is_in_no_repr(server: ControlServer) -> None:
    assert server.address.secret not in repr(server.address) + repr(server)


def test_tasks_trace_when_the_driver_collects_traces_and_each_trace_is_passed_on_once(server: ControlServer) -> None:
    server.open_job("j")
    assert not report(server, slot_report(traces=(TRACE,))).traces
    traces: deque[Traced] = deque()
    server.collect_traces(traces)
    assert report(server, slot_report(traces=(TRACE,))).traces
    ((pair, told),) = traces
    assert pair == "contoso"
    assert asdict(told) == asdict(TRACE)
    assert [found.traces for found in server.close_job("j")] == [()]


def test_a_report_that_is_repeated_after_its_job_passes_no_trace_on_again(server: ControlServer) -> None:
    traces: deque[Traced] = deque()
    server.collect_traces(traces)
    server.open_job("j")
    last = slot_report(traces=(TRACE,), finished=True)
    report(server, last)
    server.close_job("j")
    assert report(server, last).stop
    assert len(traces) == 1
