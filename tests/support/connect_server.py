"""A Spark Connect server on loopback, from the Python package alone. Tasks run with this Python, and syphon must come
from the client.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from syphon.spark.java import java_environment
from tests.support.quick_java import quick_java
from tests.support.waiting import eventually

HOME = Path(pyspark.__file__).parent
SUBMIT = "org.apache.spark.deploy.SparkSubmit"
IS_IN_THE_PACKAGE = any((HOME / "jars").glob("spark-connect_*.jar"))
"""Spark 3.5 comes without the server."""


@dataclass
class ConnectServer:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    events: Path
    """The folder of its event logs."""

    @property
    def url(self) -> str:
        return f"sc://localhost:{self.port}"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def connect_server(folder: Path) -> Iterator[ConnectServer]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {
        **clean,
        **java_environment(os.environ),
        **quick_java(),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",
    }
    folder.mkdir(parents=True, exist_ok=True)
    log, events = folder / "server.log", folder / "events"
    events.mkdir()
    settings = {
        "spark.master": "local[2,4]",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.artifact.isolation.enabled": "true",
    }
    options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    service = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [HOME / "bin/spark-class", SUBMIT, "--class", service, *options, "spark-internal"],
            env=environment,
            stdout=output,
            stderr=output,
            cwd=folder,
        )
    try:
        found = eventually(
            lambda: re.search(r"Spark Connect server started at: \S+:(\d+)", log.read_text(errors="replace")),
            what=lambda: log.read_text(errors="replace")[-3000:],
        )
        yield ConnectServer(process, int(found[1]), log, events)
    finally:
        process.kill()
        process.wait()
