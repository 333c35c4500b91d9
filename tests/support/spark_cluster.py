"""A standalone Spark cluster on loopback: a master and two workers, all from the Python package. It has a secret."""

from __future__ import annotations

import json
import os
import secrets
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

from syphon.spark.java import java_environment
from tests.support.processes import command_line
from tests.support.quick_java import quick_java
from tests.support.waiting import eventually


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Cluster:
    """A running cluster."""

    url: str
    page: str
    secret: str
    workers: list[subprocess.Popen[bytes]]

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.page}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def executors(self) -> list[int]:
        """The process ids of the JVMs that run tasks: each is a child of a worker."""
        found = []
        for worker in self.workers:
            children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children")
            # A JVM forks from any of its threads.
            for task in children.parent.parent.iterdir():
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return [pid for pid in found if "CoarseGrainedExecutorBackend" in command_line(pid)]


@contextmanager
def cluster(folder: Path, cores: int = 1) -> Iterator[Cluster]:
    home = Path(pyspark.__file__).parent
    # The Python of the executors has the dependencies of syphon; syphon itself must come from the driver.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {
        **clean,
        **java_environment(os.environ),
        **quick_java(),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_NO_DAEMONIZE": "1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    port, page = free_port(), free_port()
    settings, secret = folder / "cluster.properties", secrets.token_urlsafe(32)
    settings.touch(0o600)
    settings.write_text(f"spark.authenticate=true\nspark.authenticate.secret={secret}\n")
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
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            str(page),
            "--properties-file",
            str(settings),
        )
        url = f"spark://127.0.0.1:{port}"
        workers = [
            start(
                "org.apache.spark.deploy.worker.Worker",
                "--host",
                "127.0.0.1",
                "--webui-port",
                str(free_port()),
                "--cores",
                str(cores),
                "--memory",
                "1g",
                "--properties-file",
                str(settings),
                url,
            )
            for _ in range(2)
        ]
        running = Cluster(url, f"http://127.0.0.1:{page}", secret, workers)
        eventually(lambda: _alive(running) == 2, what=lambda: (folder / "spark-0.log").read_text()[-2000:])
        yield running
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _alive(running: Cluster) -> int:
    try:
        return sum(worker["state"] == "ALIVE" for worker in running.state()["workers"])
    except (OSError, ValueError):  # while it starts, it does not answer, or answers with a page instead of JSON
        return 0
