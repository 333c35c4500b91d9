"""Processes killed with -9 while they move messages: nothing is lost, and only messages in flight repeat (S2, D9)."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from azure.servicebus import ServiceBusMessage

import syphon
from syphon.time_budget import ROWS_SENT_EVERY
from syphon.worker import DrainProgress
from tests.support.processes import (
    HAS_RECEIVED,
    EmulatedPair,
    Running,
    aliased,
    emulated_pair,
    parent_of,
    python_workers,
)
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(600)]
on_shared_spark = pytest.mark.usefixtures("spark")
"""For tests in which the killed process is not the drain, or is not the only one."""

MESSAGES = 3000
WINDOW = 4000
"""The messages that a slot may have in flight: no more can arrive twice."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path, queues=1) as pair:
        yield pair


def check(pair: EmulatedPair) -> int:
    """Checks that every message is at its destination. Returns how many arrived twice."""
    arrived = pair.arrived("orders")
    assert set(arrived) == {f"m{number}" for number in range(MESSAGES)}
    assert not pair.in_backlog(0)
    repeated = sum(arrived.values()) - MESSAGES
    assert repeated <= WINDOW
    return repeated


class WorkersKilled:
    """Kills Spark's Python workers once, when a drain has moved so many messages."""

    def __init__(self, moved: int) -> None:
        self.moved, self.pids = moved, list[int]()

    def __call__(self, progress: DrainProgress) -> None:
        if progress.moved > self.moved and not self.pids:
            self.pids = python_workers()
            for pid in self.pids:
                os.kill(pid, signal.SIGKILL)


def test_a_python_worker_that_is_killed_is_replaced_and_the_drain_goes_on(
    pair: EmulatedPair, spark: SparkSession
) -> None:
    pair.put([aliased(number, "orders") for number in range(MESSAGES)])
    sent_by_then = int(300 * ROWS_SENT_EVERY)
    killed = WorkersKilled(sent_by_then + 450)
    summary = syphon.drain(pair.config(), spark, rate="300/s", progress=killed)
    assert killed.pids
    assert summary.exit_code == 0, summary
    account = summary.account
    assert account.killed >= 1
    assert account.received == account.forwarded + account.dead_lettered + account.left + account.unaccounted
    assert account.possible_duplicates >= check(pair)
    rows = pq.read_table(pair.folder / "ledger" / "transfers", columns=["attempt"])["attempt"].to_pylist()
    assert rows.count(0) > sent_by_then / 2, "the driver has the rows that the killed slot had sent"


def test_deferred_messages_survive_a_killed_worker(pair: EmulatedPair, spark: SparkSession) -> None:
    pair.defer([aliased(number, "orders") for number in range(300)])
    killed = WorkersKilled(30)
    summary = syphon.drain(pair.config(), spark, rate="30/s", progress=killed)
    assert killed.pids
    assert summary.exit_code == 0, summary
    assert set(pair.arrived("orders")) == {f"m{number}" for number in range(300)}
    assert not pair.in_backlog(0)


def test_a_drain_whose_job_is_cancelled_in_spark_stops_and_counts_every_message(
    pair: EmulatedPair, spark: SparkSession
) -> None:
    """Its slots go on until they hear of it: the summary waits for what they have done."""
    pair.put([aliased(number, "orders") for number in range(MESSAGES)])

    context = spark.sparkContext

    def cancel(progress: DrainProgress) -> None:
        if progress.moved > 200:
            context.cancelJobGroup("nightly")

    context.setJobGroup("nightly", "Of the caller")  # the drain's jobs run in other threads, and are in it all the same
    try:
        summary = syphon.drain(pair.config(), spark, rate="300/s", progress=cancel)
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description"):
            context.setLocalProperty(name, None)  # type: ignore[arg-type]
    arrived = sum(pair.arrived("orders").values())
    account = summary.account
    assert account.forwarded <= arrived <= account.forwarded + account.unaccounted
    assert account.received == account.forwarded + account.left + account.unaccounted
    assert summary.exit_code == 1
    assert {queue.state for queue in summary.queues} == {"stopped"}
    assert "was cancelled in Spark" in summary.queues[0].error
    code, result = pair.drained_here()
    assert code == 0, result
    assert check(pair) <= account.possible_duplicates + account.unaccounted


@on_shared_spark
def test_a_drain_whose_driver_is_killed_can_be_started_again_and_the_report_does_not_claim_to_be_complete(
    pair: EmulatedPair,
) -> None:  # X7, D17
    pair.put([aliased(number, "orders") for number in range(MESSAGES)])
    drain = pair.drain("--json", "--rate", "300")
    eventually(lambda: drain.progress().get("moved", 0) > 200, what=lambda: drain.said)
    on_record = pair.folder / "ledger" / "open"
    eventually(lambda: any(HAS_RECEIVED.search(file.read_text()) for file in on_record.glob("*.progress")))
    children = [pid for pid, _ in drain.descendants()]
    drain.process.kill()
    drain.process.wait()
    # Spark and its workers end with their driver
    eventually(lambda: not any(parent_of(pid) for pid in children))
    code, result = pair.drained_here()
    assert code == 0, result
    check(pair)
    report = pair.start("report", "-c", str(pair.config()), "--json")
    code, out = report.end(150)
    (cut_off,) = json.loads(out)["open_jobs"]
    assert cut_off["queues"][0]["received"] > 0
    assert code == 1, report.said
    assert "Every delivery is accounted for" not in out


@on_shared_spark
def test_a_drain_beside_a_running_worker_moves_every_message_once(pair: EmulatedPair) -> None:  # X1
    config = pair.config(pair={"rate": 300})
    worker = pair.worker(config=config)
    pair.put([aliased(number, "orders") for number in range(MESSAGES)])
    code, result = pair.drained_here(config=pair.config("drain.yaml"))
    assert code == 0, result
    eventually(lambda: sum(pair.arrived("orders").values()) >= MESSAGES, what=lambda: worker.said)
    assert worker.stop()[0] == 0
    assert pair.arrived("orders") == Counter(f"m{number}" for number in range(MESSAGES))
    assert result["account"]["forwarded"] <= MESSAGES


@on_shared_spark
def test_a_ledger_that_cannot_be_written_stops_no_transfer_and_is_reported(pair: EmulatedPair) -> None:  # D9
    (pair.folder / "taken").write_text("a file where a folder should be")
    config = pair.config(pipeline={"ledger": str(pair.folder / "taken" / "ledger")})
    pair.put([aliased(number, "orders") for number in range(100)])
    code, result = pair.drained_here(config=config)
    assert code == 0, result
    assert result["account"]["forwarded"] == 100
    assert "cannot be written" in result["ledger_error"]
    assert pair.arrived("orders") == Counter(f"m{number}" for number in range(100))


def test_sessions_keep_their_order_when_the_worker_and_its_slots_are_killed(pair: EmulatedPair) -> None:  # X10, D21
    config, sessions = pair.config(pair={"session_order": True, "rate": 500}), 50
    worker = pair.worker(config=config)
    pair.put([with_session(number, number % sessions) for number in range(MESSAGES)])
    eventually(partial(has_moved, pair, 0.3), what=lambda: worker.said)
    kill(worker)
    worker = pair.worker(config=config)
    eventually(lambda: len(pair.arrived("orders")) == MESSAGES, what=lambda: worker.said, within=120)
    assert worker.stop()[0] == 0
    seen: dict[int, list[int]] = {}
    for name in pair.arrived("orders"):  # in the order of their first copies
        seen.setdefault(int(name[1:]) % sessions, []).append(int(name[1:]))
    assert seen == {session: list(range(session, MESSAGES, sessions)) for session in range(sessions)}


def kill(worker: Running) -> None:
    for pid in python_workers(worker):
        os.kill(pid, signal.SIGKILL)
    worker.process.kill()
    worker.process.wait()


def has_moved(pair: EmulatedPair, share: float) -> bool:
    return len(pair.arrived("orders")) > share * MESSAGES


def with_session(number: int, session: int) -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {"x-ms-path": "orders", "x-ms-sessionid": f"s{session}"}
    return ServiceBusMessage("x", message_id=f"m{number}", application_properties=properties)
