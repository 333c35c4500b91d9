"""A standalone cluster on loopback: a master, two workers and their executors, all from the Python package (D3, X2)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest

from syphon.pipeline.java import java_environment

from .plant import Plant, aliased, command_line, eventually, plant

pytestmark = [pytest.mark.timeout(300), pytest.mark.alone]

MESSAGES = 3000


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Cluster:
    """A running one."""

    url: str
    page: str
    workers: list[subprocess.Popen[bytes]]

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def executors(self) -> list[int]:
        """The JVMs that run tasks: each is a child of a worker."""
        found = []
        for worker in self.workers:
            children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
            # A JVM forks from any of its threads.
            for task in children.parent.parent.iterdir():
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return [pid for pid in found if "CoarseGrainedExecutorBackend" in command_line(pid)]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    home = Path(pyspark.__file__).parent
    # The executors' Python has what syphon depends on; syphon itself has to come from the driver.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {
        **clean, **java_environment(os.environ), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"), "SPARK_NO_DAEMONIZE": "1", "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip
    port, page = free_port(), free_port()
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> subprocess.Popen[bytes]:
        log = (folder / f"spark-{len(started)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), *command], env=environment, stdout=log, stderr=log, cwd=folder
            )
        started.append(process)
        return process

    try:
        start(
            "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", str(page),
        )  # fmt: skip
        url = f"spark://127.0.0.1:{port}"
        workers = [
            start(
                "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", str(free_port()),
                "--cores", "1", "--memory", "1g", url,
            )
            for _ in range(2)
        ]  # fmt: skip
        made = Cluster(url, f"http://127.0.0.1:{page}", workers)
        eventually(lambda: _alive(made) == 2, explain=lambda: (folder / "spark-0.log").read_text()[-2000:])
        yield made
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _alive(made: Cluster) -> int:
    try:
        return sum(worker["state"] == "ALIVE" for worker in made.state()["workers"])
    except OSError:
        return 0


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Plant]:
    with plant(tmp_path, queues=2) as site:
        yield site


def test_a_drain_on_a_cluster_survives_an_executor_that_is_killed(site: Plant, tmp_path: Path) -> None:
    for index in range(2):
        share = range(index, MESSAGES, 2)
        site.put([aliased(number, "orders") for number in share], index)
    with cluster(tmp_path) as spark:
        settings = {
            "master": spark.url,
            "spark": {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.cores.max": 2},
        }
        drain = site.drain("--json", "--rate", "300", config=site.config(pipeline=settings))
        eventually(lambda: drain.progress().get("moved", 0) > 200, within=120, explain=lambda: drain.said)
        executors = spark.executors()
        assert len(executors) == 2, "both workers take part"
        os.kill(executors[0], signal.SIGKILL)
        code, out = drain.end(200)
        assert code == 0, drain.said
    result = json.loads(out)
    account = result["account"]
    assert account["killed"] >= 1
    assert account["received"] == (
        account["forwarded"] + account["dead_lettered"] + account["left"] + account["unaccounted"]
    )
    arrived = site.arrived("orders")
    assert set(arrived) == {f"m{number}" for number in range(MESSAGES)}
    assert not site.in_backlog(0)
    assert not site.in_backlog(1)
    assert sum(arrived.values()) - MESSAGES <= account["possible_duplicates"] + account["unaccounted"] + 300
