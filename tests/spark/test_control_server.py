"""The control server over real HTTP: which reports it accepts, and what it answers (D7)."""

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
from syphon.spark.control_protocol import REPORT_PATH, SlotOrder, SlotReport
from syphon.spark.control_server import ControlServer, Traced
from syphon.transfer.traces import BatchTrace


@pytest.fixture
def server() -> Iterator[ControlServer]:
    with ControlServer() as server:
        yield server


def slot_report(job: str = "j", slot: int = 0, attempt: int = 0, **counts: Any) -> SlotReport:
    counters = Counters(received=counts.pop("received", 0))
    return SlotReport(
        pair="contoso", queue="q", job=job, slot=slot, attempt=attempt, started_at=0, counters=counters, **counts
    )


def post(server: ControlServer, body: bytes, secret: str | None = None, path: str = REPORT_PATH) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.address.host, server.address.port, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {server.address.secret if secret is None else secret}"}
        connection.request("POST", path, body, headers)
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


def test_tasks_with_old_settings_are_told_to_stop_and_later_ones_are_not(server: ControlServer) -> None:
    server.open_job("j")
    server.supersede("another pair")
    assert not report(server, slot_report()).stop
    server.supersede(slot_report().pair)
    assert report(server, slot_report()).stop
    server.open_job("k")
    assert not report(server, slot_report(job="k")).stop


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
def test_a_report_without_the_secret_is_refused(server: ControlServer, secret: str) -> None:
    server.open_job("j")
    assert post(server, slot_report().model_dump_json().encode(), secret)[0] == 401
    assert server.live_reports() == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"pair": 1}', json.dumps({"job": "j"}).encode(), b"\xff" * 99])
def test_an_invalid_report_is_refused_and_the_server_continues(server: ControlServer, body: bytes) -> None:
    server.open_job("j")
    assert post(server, body)[0] == 400
    assert not report(server, slot_report()).stop


def test_a_report_of_five_megabytes_is_refused(server: ControlServer) -> None:
    assert post(server, b" " * 5_000_000)[0] == 413


def test_the_secret_is_in_no_repr(server: ControlServer) -> None:
    assert server.address.secret not in repr(server.address) + repr(server)


def test_tasks_trace_when_the_driver_collects_traces_and_each_trace_is_passed_on_once(server: ControlServer) -> None:
    trace = BatchTrace("orders", 3, [TraceContext("a" * 32, "b" * 16)], 1, 2, 3, settled=4)
    server.open_job("j")
    assert not report(server, slot_report(traces=(trace,))).traces
    traces: deque[Traced] = deque()
    server.collect_traces(traces)
    assert report(server, slot_report(traces=(trace,))).traces
    ((queue, told),) = traces
    assert (queue.pair, queue.queue) == ("contoso", "q")
    assert asdict(told) == asdict(trace)
    assert [found.traces for found in server.close_job("j")] == [()]
