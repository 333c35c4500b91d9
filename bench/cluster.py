"""`python -m bench.cluster`: drains on a standalone Spark cluster of two workers, with one, two and four slots.

Emulator, driver and executors share the machine: with more slots than free cores the speed says little, and CPU time
per message says what a slot costs.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import syphon
from bench.commands import backlog_queues, settings
from bench.fill import fill
from bench.stage import Place, emulator
from bench.usage import cpu, own_cpu
from tests.support.spark_cluster import Cluster, cluster

SLOTS = (1, 2, 4)
DESTINATIONS = [f"orders-{number}" for number in range(8)]
QUEUES = 4
SIZE = 1024


class Drained(NamedTuple):
    """One drain."""

    slots: int
    messages: int
    seconds: float
    in_python: float
    """CPU seconds of the executors' Python processes."""
    in_jvms: float
    of_emulator: float


def drained(place: Place, running: Cluster, session: SparkSession, folder: Path, slots: int, count: int) -> Drained:
    queues = backlog_queues(QUEUES)
    for queue in queues:
        fill(place.secondary, queue, count // QUEUES, SIZE, lambda number: DESTINATIONS[number % len(DESTINATIONS)])
    config = settings(place, folder, QUEUES)
    executors = running.executors()
    before = used(executors), cpu(place.process)
    began = time.monotonic()
    summary = syphon.drain(str(config), session, slots=slots)
    seconds = time.monotonic() - began
    if summary.account.forwarded != count:
        raise RuntimeError(f"{summary.verdict} {[queue.error for queue in summary.queues]}")
    python, jvms = (after - earlier for after, earlier in zip(used(executors), before[0], strict=True))
    return Drained(slots, count, seconds, python, jvms, cpu(place.process) - before[1])


def used(executors: Sequence[int]) -> tuple[float, float]:
    """CPU seconds of the executors' Python processes, and of their JVMs."""
    jvms = sum(map(own_cpu, executors))
    return sum(map(cpu, executors)) - jvms, jvms


@click.command()
@click.option("--messages", default=40_000, show_default=True, help="Messages of each drain.")
def main(messages: int) -> None:
    """Drain a backlog on a standalone cluster of two workers, with 1, 2 and 4 slots."""
    table = Table("slots", "messages", "messages/s", "CPU-s per 1000: slots", "executors' JVMs", "emulator")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with emulator(DESTINATIONS, backlog_queues(QUEUES)) as place, cluster(folder, cores=max(SLOTS) // 2) as running:
            os.environ["PYSPARK_PYTHON"] = sys.executable  # PySpark takes that of the executors from nowhere else
            builder = SparkSession.builder.master(running.url).config(
                map={
                    "spark.driver.host": "127.0.0.1",
                    "spark.driver.bindAddress": "127.0.0.1",
                    "spark.executor.memory": "512m",
                    "spark.authenticate": "true",
                    "spark.authenticate.secret": running.secret,
                    "spark.ui.enabled": "false",
                }
            )
            session = builder.getOrCreate()
            drained(place, running, session, folder, max(SLOTS), messages)  # starts every Python worker
            for slots in SLOTS:
                found = drained(place, running, session, folder, slots, messages)
                parts = (found.in_python, found.in_jvms, found.of_emulator)
                per_thousand = (f"{seconds / found.messages * 1000:.3f}" for seconds in parts)
                table.add_row(
                    str(slots), f"{found.messages:,}", f"{found.messages / found.seconds:,.0f}", *per_thousand
                )
            session.stop()
    Console().print(table)


if __name__ == "__main__":
    main()
