"""Slots that reach no port of the driver: they report with the results of their tasks (`slot_reports: at_end`)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import syphon
from syphon.control import ControlServer, HandOver, SlotReport, UnattendedControl, split_result
from syphon.model import ExitCode
from syphon.spark.task import reach_task
from tests.support.processes import EmulatedPair, aliased, emulated_pair, python_workers
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(600)]
AT_END = {"slot_reports": "at_end"}
MESSAGES = 1500


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path, queues=2) as pair:
        yield pair


def test_a_drain_whose_slots_nobody_attends_moves_and_counts_everything(
    pair: EmulatedPair, spark: SparkSession
) -> None:
    for index in range(2):
        pair.put([aliased(number, "orders") for number in range(index, MESSAGES, 2)], index)
    pair.put([aliased(MESSAGES, "$nowhere")])
    config = pair.config(pipeline=AT_END)
    summary = syphon.drain(config, spark)
    account = summary.account
    assert (account.received, account.forwarded, account.dead_lettered) == (MESSAGES + 1, MESSAGES, 1)
    assert {found.destination: found.forwarded for found in summary.destinations}["orders"] == MESSAGES
    assert (sum(pair.arrived("orders").values()), summary.remaining) == (MESSAGES, 0)
    report = syphon.report(config)
    assert (report.transfers.received, report.transfers.unaccounted, report.open_jobs) == (MESSAGES + 1, 0, [])


def test_what_a_killed_slot_did_that_nobody_attended_is_unknown_and_the_ledger_says_so(
    pair: EmulatedPair,
) -> None:  # X7
    pair.put([aliased(number, "orders") for number in range(MESSAGES)])
    drain = pair.drain("--json", "--rate", "150", config=pair.config(pipeline=AT_END))
    eventually(lambda: sum(pair.arrived("orders").values()) > 150, within=120, what=lambda: drain.said)
    for pid in python_workers(drain):
        os.kill(pid, signal.SIGKILL)
    code, out = drain.end(240)
    assert code == 0, drain.said
    account = json.loads(out)["account"]
    arrived = pair.arrived("orders")
    assert set(arrived) == {f"m{number}" for number in range(MESSAGES)}
    assert not pair.in_backlog(0)
    assert account["killed"] == 1
    assert account["possible_duplicates"] >= sum(arrived.values()) - MESSAGES
    report = syphon.report(pair.config())
    assert len(report.open_jobs) == 1
    assert not report.complete


def test_a_slot_that_nobody_attends_knows_the_attempts_that_were_killed_before_it() -> None:
    first = SlotReport(pair="contoso", job="j", slot=0, attempt=2, started_at=1, rows=(b"PAR1 rows",))
    control = UnattendedControl(first, (HandOver(queue="q"),), 30.0, 0.8)
    order = control.post(first)
    assert (order.rate, order.killed, order.stop, [handed.queue for handed in order.queues]) == (
        30.0,
        ("q",),
        False,
        ["q"],
    )
    rows, reports = split_result(control.result())
    assert rows == [b"PAR1 rows"]
    assert [(report.attempt, report.finished) for report in reports] == [(0, False), (1, False), (2, False)]


def test_check_says_that_executors_cannot_reach_the_driver_and_what_to_set() -> None:
    with ControlServer() as server:
        address = server.address
        assert list(reach_task(address)([0, 1])) == []
    (refused,) = reach_task(address)([0])
    assert f"does not answer at 127.0.0.1:{address.port}" in refused.decode()
    assert "set pipeline.slot_reports to at_end" in refused.decode()


def test_a_worker_whose_slots_nobody_can_attend_is_refused(pair: EmulatedPair) -> None:
    worker = pair.start("run", "-c", str(pair.config(pipeline=AT_END)))
    code, _ = worker.end(60)
    assert code == ExitCode.CONFIG
    assert "slot_reports: at_end is for drains" in worker.said
