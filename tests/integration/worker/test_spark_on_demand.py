"""Spark on demand with real processes: it starts with the first message and stops without work, whatever happens to it
meanwhile (D20, X8)."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broken_java import BrokenJava
from tests.support.processes import STOPPED_WITHIN, EmulatedPair, Running, aliased, emulated_pair
from tests.support.waiting import eventually

pytestmark = [pytest.mark.timeout(600)]
LONG = 400
"""Seconds for a start, a job and a stop of Spark, on the busiest machine."""
SOON = {"idle_shutdown": "2s"}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path) as pair:
        yield pair


def jvms(worker: Running) -> list[int]:
    """The JVMs of a worker, Spark's launcher included."""
    return [pid for pid, command in worker.descendants() if "java" in command.partition(" ")[0]]


def status(worker: Running) -> dict[str, Any]:
    url = worker.until("status on http").rpartition(" ")[2]

    def found() -> dict[str, Any] | None:
        with urllib.request.urlopen(f"{url}/status", timeout=60) as answer:
            whole: dict[str, Any] = json.load(answer)
            return whole if whole["spark"] is not None else None

    return eventually(found, what=lambda: worker.said)


def state(worker: Running) -> str:
    return str(status(worker)["spark"]["state"])


def arrives(pair: EmulatedPair, worker: Running, number: int) -> None:
    pair.put([aliased(number, "orders")])
    eventually(lambda: f"m{number}" in pair.arrived("orders"), what=lambda: worker.said, within=LONG)


def count(worker: Running, words: str) -> int:
    return sum(words in line for line in worker.lines)


def has_said(worker: Running, words: str, times: int) -> None:
    eventually(lambda: count(worker, words) >= times, what=lambda: worker.said, within=LONG)


def ends_in_time(worker: Running) -> None:
    code, _ = worker.stop()
    assert code == 0, worker.said
    worker.check_end_took(STOPPED_WITHIN)
    assert "Traceback" not in worker.said


def test_spark_runs_while_there_is_work_and_its_processes_are_gone_when_there_is_none_whatever_happens_as_it_stops(
    pair: EmulatedPair,
) -> None:
    """It stops in order, is killed while it stops, and freezes then. At last it is told to end as it starts (X11)."""
    worker = pair.worker(config=pair.config(pipeline=SOON))
    assert worker.descendants() == []
    assert state(worker) == "stopped"
    for turn, number in enumerate((None, signal.SIGKILL, signal.SIGSTOP), start=1):
        arrives(pair, worker, turn)
        found = jvms(worker)
        has_said(worker, "stopping Spark", turn)
        for pid in found:
            if number is not None and Path(f"/proc/{pid}").exists():
                os.kill(pid, number)
        has_said(worker, "Spark has stopped", turn)
        eventually(lambda: not jvms(worker), what=lambda: worker.descendants())
    eventually(lambda: state(worker) == "stopped", what=lambda: worker.said)
    assert status(worker)["totals"]["forwarded"] == 3
    assert count(worker, "starting Spark") == 3
    pair.put([aliased(4, "orders")])
    has_said(worker, "starting Spark", 4)
    ends_with_all_it_has_started(worker)
    assert set(pair.arrived("orders") + pair.in_backlog(0)) == {"m1", "m2", "m3", "m4"}


@pytest.mark.nightly
def test_a_spark_that_never_stops_starts_with_the_worker(pair: EmulatedPair) -> None:
    worker = pair.worker(config=pair.config(pipeline={"idle_shutdown": "0s"}))
    worker.until("Spark runs, after")
    eventually(lambda: state(worker) == "running", what=lambda: worker.said)
    ends_in_time(worker)


def test_a_spark_that_does_not_start_is_critical_and_messages_wait_until_it_does(  # X9
    pair: EmulatedPair, tmp_path: Path
) -> None:
    """Then the worker is told to end as Spark stops."""
    java = BrokenJava(tmp_path)
    worker = pair.start("run", "-c", str(pair.config(pipeline=SOON)), environment=java.environment)
    worker.until("listening on")
    pair.put([aliased(1, "orders")])
    worker.until("starting Spark again in 4 s")
    found = status(worker)
    assert found["outlook"]["flow"] == "blocked"
    assert [problem["severity"] for problem in found["problems"]] == ["critical"]
    assert "Error: no memory" in found["problems"][0]["text"]
    assert found["spark"]["failing_since"] is not None
    assert list(pair.in_backlog(0)) == ["m1"]
    java.repair()
    eventually(lambda: "m1" in pair.arrived("orders"), what=lambda: worker.said, within=LONG)
    eventually(lambda: not status(worker)["problems"], what=lambda: status(worker))
    worker.until("stopping Spark")
    ends_with_all_it_has_started(worker)


def test_a_jvm_that_is_killed_is_started_again_and_nothing_is_lost(pair: EmulatedPair) -> None:  # X7
    """While it starts, in the middle of a job, and while nothing runs: then the next message starts it."""
    worker = pair.worker(config=pair.config(pair={"rate": 200}))
    pair.put([aliased(number, "orders") for number in range(1000)])
    worker.until("starting Spark")
    kill_jvms(worker)
    worker.until("starting Spark again in")
    eventually(lambda: len(pair.arrived("orders")) > 100, what=lambda: worker.said, within=LONG)
    kill_jvms(worker)
    worker.until("Spark's JVM was killed by signal 9 (SIGKILL)")
    eventually(lambda: len(pair.arrived("orders")) == 1000, what=lambda: worker.said, within=LONG)
    worker.until("job ended")
    kill_jvms(worker)
    has_said(worker, "Spark's JVM was killed by signal 9 (SIGKILL)", 2)
    arrives(pair, worker, 1000)
    ends_in_time(worker)
    assert not list((pair.folder / "ledger" / "open").glob("*.json")), "the job that was cut off is on record"


def kill_jvms(worker: Running) -> None:
    for pid in eventually(lambda: jvms(worker), what=lambda: worker.said):
        os.kill(pid, signal.SIGKILL)


def ends_with_all_it_has_started(worker: Running) -> None:
    started = [pid for pid, _ in worker.descendants()]
    ends_in_time(worker)
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))


def test_check_starts_spark_on_request_and_says_why_it_does_not(pair: EmulatedPair, tmp_path: Path) -> None:
    java, command = BrokenJava(tmp_path), ("check", "-c", str(pair.config()), "--spark")
    code, out = pair.start(*command, environment=java.environment).end()
    assert code == 1, out
    assert "Error: no memory" in out
    java.repair()
    code, out = pair.start(*command, environment=java.environment).end()
    assert code == 0, out
    assert "starts in" in out
    assert "which reach the driver" in out
