"""`python -m bench.spark_source`: the data source on one slot of Spark: a read with bodies, a write, and `inspect`.

Messages have 1 KB. The emulator is a process of its own; its CPU time is beside that of the client, because both share
the machine's cores. Speeds count from the first to the last row, without the start of Spark.

    python -m bench.spark_source --before ../main     compares `inspect` with the code of another folder

The targets are at the end. A slot of a read is one Python process: what it could read if nothing else limited it (the
emulator, Spark's JVM) is said by its CPU time without Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from bench.fill import fill
from bench.stage import Place, emulator, measure
from bench.targets import Target
from bench.usage import cpu
from bench.workloads import ONE, workloads
from syphon.config import PipelineSettings
from syphon.datasource import ServiceBusDataSource
from syphon.datasource.columns import COLUMNS
from syphon.datasource.peek_read import Wanted, plan_ranges, read_range
from syphon.datasource.source_options import parse_options
from syphon.spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE = "contoso/x-servicebus-transfer/0"
TARGET = "d0"
SIZE = 1024
INSPECT = """
import sys, time
from pydantic import SecretStr
from syphon.backlog import SelectedQueue
from syphon.config import PairSettings, SideSettings
from syphon.datasource import backlog_frames
import pyarrow
backlog_batches = getattr(dataframes, "backlog_batches", None)
if backlog_batches is None:  # in older code
    backlog_batches = lambda queues: dataframes.queue_batches(queues[0])
home, away, queue = sys.argv[1:]
side = lambda text: SideSettings(connection_string=SecretStr(text))
pair = PairSettings(name="contoso", primary=side(home), secondary=side(away))
began, used = time.perf_counter(), time.process_time()
rows = sum(batch.num_rows for batch in backlog_batches([SelectedQueue(pair, queue)]))
print(rows, time.perf_counter() - began, time.process_time() - used)
"""
"""What one task of `inspect` does, in a process of its own, so that it can be another folder's code."""


@dataclass(frozen=True)
class Run:
    """One measurement."""

    rows: int
    seconds: float
    ours: float
    """CPU seconds of this side: Python, its workers and Spark's JVM."""
    emulators: float

    @property
    def per_second(self) -> float:
        return self.rows / self.seconds

    def cells(self) -> tuple[str, ...]:
        share = 1e6 / self.rows
        return f"{self.per_second:,.0f}", f"{self.ours * share:.1f}", f"{self.emulators * share:.1f}"


def measured(place: Place, work: Callable[[], int]) -> Run:
    before, theirs, began = cpu(os.getpid()), cpu(place.process), time.perf_counter()
    rows = work()
    seconds = time.perf_counter() - began
    theirs = cpu(place.process) - theirs
    # The emulator is a child of this process.
    return Run(rows, seconds, cpu(os.getpid()) - before - theirs, theirs)


def direct(place: Place) -> int:
    """The same read without Spark: what a slot does."""
    options = parse_options({"connection_string": place.secondary, "entity": QUEUE, "partition_size": str(10**9)})
    (part,) = plan_ranges(options, Wanted())
    names = list(COLUMNS)
    return sum(batch.num_rows for batch in read_range(options.side, part, names, [True] * len(names), Wanted()))


def on_spark(spark: SparkSession, place: Place, rows: int) -> int:
    """One slot: the whole queue is one partition."""
    options = {"connection_string": place.secondary, "entity": QUEUE, "bodies": "true", "partition_size": str(10**9)}
    spark.read.format("servicebus").options(**options).load().write.format("noop").mode("overwrite").save()
    return rows


def written(spark: SparkSession, place: Place, rows: int) -> int:
    frame = spark.range(0, rows, 1, 1).selectExpr(
        "cast(id as string) as message_id",
        f"cast(repeat('x', {SIZE}) as binary) as body",
        "map('kind', 'test') as properties",
    )
    options = {"connection_string": place.primary, "entity": TARGET}
    frame.write.format("servicebus").options(**options).mode("append").save()
    return rows


def inspected(place: Place, folder: Path) -> Run:
    command = [sys.executable, "-c", INSPECT, place.primary, place.secondary, QUEUE]
    theirs = cpu(place.process)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603
    rows, seconds, ours = done.stdout.split()
    return Run(int(rows), float(seconds), float(ours), cpu(place.process) - theirs)


@click.command()
@click.option("--messages", default=100_000, show_default=True)
@click.option("--repeat", default=3, show_default=True, help="How often each is measured; the best counts.")
@click.option("--before", type=click.Path(exists=True, path_type=Path), help="A folder with other code, for `inspect`.")
def main(messages: int, repeat: int, before: Path | None) -> None:
    """Measure the data source."""
    table = Table("what", "rows a second", "CPU-µs a row", "emulator's CPU-µs a row")

    def best(runs: list[Run]) -> Run:
        return max(runs, key=lambda run: run.per_second)

    with emulator([TARGET], [QUEUE]) as place:
        fill(place.secondary, QUEUE, messages, SIZE, lambda _: TARGET)
        with spark_session(PipelineSettings(master="local[1]"), "bench") as spark:
            spark.dataSource.register(ServiceBusDataSource)
            on_spark(spark, place, messages)  # once, to warm up
            read = best([measured(place, lambda: on_spark(spark, place, messages)) for _ in range(repeat)])
            table.add_row("read with bodies, one slot of Spark", *read.cells())
            plain = best([measured(place, lambda: direct(place)) for _ in range(repeat)])
            table.add_row("the same without Spark", *plain.cells())
            write = best([measured(place, lambda: written(spark, place, messages)) for _ in range(repeat)])
            table.add_row("write, one slot of Spark", *write.cells())
        here = Path(__file__).parents[1]
        now = best([inspected(place, here) for _ in range(repeat)])
        table.add_row("inspect, one queue", *now.cells())
        then = None
        then_name = "" if before is None else before.name
        if before is not None:
            then = best([inspected(place, before) for _ in range(repeat)])
            table.add_row(f"inspect, {then_name}", *then.cells())
    one = next(workload for workload in workloads(1.0) if workload.name == ONE)
    pump = max((measure(one, "pump") for _ in range(repeat)), key=lambda found: found.per_second)
    table.add_row("pump, one destination", f"{pump.per_second:,.0f}", f"{pump.cpu_per_1000 * 1000:.1f}", "")
    console = Console(width=120)
    console.print(table)
    found = [
        Target("rows a second of a read with bodies, one slot of Spark", read.per_second, 20_000),
        Target("the same by the CPU time of a slot, whatever the emulator does", plain.rows / plain.ours, 20_000),
        Target("speed of a write as a share of the pump's", write.per_second / pump.per_second, 0.8),
    ]
    if then is not None:
        found.append(Target(f"times the speed of inspect in {then_name}", now.per_second / then.per_second, 1))
        found.append(Target(f"times its CPU time in {then_name}", now.ours / then.ours, 1, at_most=True))
    for target in found:
        number = f"{target.found:,.0f}" if target.found >= 100 else f"{target.found:.2f}"
        sign = "≤" if target.at_most else "≥"
        console.print(
            f"{'met' if target.is_met else 'MISSED'}: {number} {target.what}, target {sign} {target.wanted:,g}"
        )


if __name__ == "__main__":
    main()
