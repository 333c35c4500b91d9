"""The driver's desk, over real HTTP: who may report, and what is answered (D7)."""

from __future__ import annotations

import http.client
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest

from syphon.backlog import TraceContext
from syphon.model.outcome import Counters
from syphon.spark.control_protocol import SlotOrder, SlotReport
from syphon.spark.control_server import ControlServer, Traced
from syphon.transfer.traces import BatchTrace


@pytest.fixture
def desk() -> Iterator[ControlServer]:
    with ControlServer() as desk:
        yield desk


def sheet(job: str = "j", slot: int = 0, attempt: int = 0, **counts: Any) -> SlotReport:
    counters = Counters(received=counts.pop("received", 0))
    return SlotReport(
        pair="contoso", queue="q", job=job, slot=slot, attempt=attempt, started_at=0, counters=counters, **counts
    )


def post(desk: ControlServer, body: bytes, secret: str | None = None, path: str = "/sheet") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(desk.address.host, desk.address.port, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {desk.address.secret if secret is None else secret}"}
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def report(desk: ControlServer, reported: SlotReport) -> SlotOrder:
    status, body = post(desk, reported.model_dump_json().encode())
    assert status == 200
    return SlotOrder.model_validate_json(body)


def test_a_task_of_an_open_job_is_told_to_go_on_and_is_counted(desk: ControlServer) -> None:
    desk.open_job("j")
    assert report(desk, sheet(received=7)) == SlotOrder(stop=False, rate=None)
    assert [found.counters.received for found in desk.sheets()] == [7]
    report(desk, sheet(received=9, finished=True))
    assert [found.counters.received for found in desk.close_job("j")] == [9]
    assert desk.sheets() == []


def test_a_task_whose_job_is_over_is_told_to_stop_and_not_counted(desk: ControlServer) -> None:
    desk.open_job("j")
    desk.close_job("j")
    assert report(desk, sheet(received=7)).stop
    assert desk.sheets() == []


def test_a_task_that_was_started_again_elsewhere_is_told_to_stop(desk: ControlServer) -> None:
    desk.open_job("j")
    assert not report(desk, sheet(attempt=1)).stop
    assert report(desk, sheet(attempt=0)).stop
    assert not report(desk, sheet(slot=1, attempt=0)).stop


def test_tasks_that_go_by_settings_of_yesterday_are_told_to_stop_and_later_ones_are_not(desk: ControlServer) -> None:
    desk.open_job("j")
    desk.supersede("another pair")
    assert not report(desk, sheet()).stop
    desk.supersede(sheet().pair)
    assert report(desk, sheet()).stop
    desk.open_job("k")
    assert not report(desk, sheet(job="k")).stop


def test_when_everything_is_to_stop_every_task_hears_of_it(desk: ControlServer) -> None:
    desk.open_job("j")
    desk.stop_all()
    assert report(desk, sheet()).stop


def test_the_rate_of_a_pair_is_shared_by_those_who_work() -> None:
    now = 100.0
    with ControlServer(now=lambda: now) as desk:
        desk.open_job("j")
        desk.limit("contoso", 300.0)
        assert report(desk, sheet(slot=0)).rate == 300.0
        assert report(desk, sheet(slot=1)).rate == 150.0
        assert report(desk, sheet(slot=2)).rate == 100.0
        report(desk, sheet(slot=2, finished=True))
        assert report(desk, sheet(slot=0)).rate == 150.0
        now += 60.0  # slot 1 has not been heard of since: it was killed
        assert report(desk, sheet(slot=0)).rate == 300.0
        desk.limit("contoso", 0.0)
        assert report(desk, sheet(slot=0)).rate == 0.0


@pytest.mark.parametrize("secret", ["", "guess"])
def test_who_does_not_know_the_secret_is_turned_away(desk: ControlServer, secret: str) -> None:
    desk.open_job("j")
    assert post(desk, sheet().model_dump_json().encode(), secret)[0] == 401
    assert desk.sheets() == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"pair": 1}', json.dumps({"job": "j"}).encode(), b"\xff" * 99])
def test_garbage_is_refused_and_the_desk_goes_on(desk: ControlServer, body: bytes) -> None:
    desk.open_job("j")
    assert post(desk, body)[0] == 400
    assert not report(desk, sheet()).stop


def test_a_sheet_of_five_megabytes_is_refused(desk: ControlServer) -> None:
    assert post(desk, b" " * 5_000_000)[0] == 413


def test_the_secret_is_in_no_repr(desk: ControlServer) -> None:
    assert desk.address.secret not in repr(desk.address) + repr(desk)


def test_tasks_trace_when_somebody_wants_it_and_what_they_traced_is_handed_on_once(desk: ControlServer) -> None:
    trace = BatchTrace("orders", 3, [TraceContext("a" * 32, "b" * 16)], 1, 2, 3, settled=4)
    desk.open_job("j")
    assert not report(desk, sheet(traces=(trace,))).traces
    traces: deque[Traced] = deque()
    desk.collect_traces(traces)
    assert report(desk, sheet(traces=(trace,))).traces
    ((queue, told),) = traces
    assert (queue.pair, queue.queue) == ("contoso", "q")
    assert asdict(told) == asdict(trace)
    assert [found.traces for found in desk.close_job("j")] == [()]
