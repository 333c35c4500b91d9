"""`python -m bench.ledger`: how long a ledger of many jobs takes to write, and to report on.

One process writes the ledger of a worker that ran ten thousand jobs of fifty messages over five days, as a worker does
it: each job is put on record, closed, and its small files are merged. Then `syphon report` reads it, in a process of
its own: a small ledger itself, a large one with Spark. With `--drains` each job has its own writer, as each drain has.
Such files are never merged.

    python -m bench.ledger --jobs 200                     10,000 transfers
    python -m bench.ledger --jobs 10000 --messages 1000   10 million: takes some minutes and 1 GB of disk
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
from rich.console import Console
from rich.table import Table

from syphon.ledger import Attempt, Ledger, LedgerWriter, OpenJob, packed_file
from syphon.model import AttemptKey, Counters, Outcome, Result, volume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_SPARK = cast("SparkSession", None)
"""A ledger on this machine is written without Spark."""
QUEUE = "contoso/x-servicebus-transfer/0"
START = 1_790_000_000_000
DAY = 86_400_000
DAYS = 5
AT_ONCE = 100
"""Jobs that wait to be written, at most."""
_ids = random.Random(1)  # noqa: S311  (no secrets)


@click.command()
@click.option("--jobs", default=10_000, show_default=True)
@click.option("--messages", default=50, show_default=True, help="Messages of each job.")
@click.option("--drains", is_flag=True, help="A writer for each job: their small files are not merged.")
def main(jobs: int, messages: int, drains: bool) -> None:
    """Measure a ledger of many jobs."""
    table = Table("step", "seconds", "result")
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(NO_SPARK, f"file:{folder}/ledger")
        seconds, cpu = _written(ledger, jobs, messages, drains)
        files = list(Path(folder).rglob("*.parquet"))
        size = sum(file.stat().st_size for file in files)
        table.add_row(
            f"write {jobs:,} jobs, {jobs * messages:,} transfers",
            f"{seconds:.1f}",
            f"{cpu * 1000 / jobs:.2f} CPU-ms a job, {len(files):,} files, {volume(size)}, "
            f"{size / jobs / messages:.0f} bytes a transfer",
        )
        seconds, cpu, report = _reported(f"{folder}/ledger")
        assert report["messages"]["forwarded"] == report["transfers"]["received"] == jobs * messages, report["verdict"]
        assert report["complete"], report["verdict"]
        table.add_row("syphon report --json", f"{seconds:.1f}", f"{cpu:.1f} CPU-s: {report['verdict']}")
    Console(width=140).print(table)


def _written(ledger: Ledger, jobs: int, messages: int, drains: bool) -> tuple[float, float]:
    """Seconds and seconds of CPU time for writing. The rows of tasks are made before."""
    packed = [_job(number, jobs, messages) for number in range(jobs)]
    began, cpu = time.perf_counter(), time.process_time()
    writer = _writer(ledger)
    for opened, file, attempt in packed:
        writer.open_job(opened)
        writer.close_job(opened.job, [file], [attempt])
        if int(opened.job, 16) % AT_ONCE == 0:
            writer.catch_up()
        if drains:
            assert writer.finish(), writer.error
            writer = _writer(ledger)
    assert writer.finish(), writer.error
    return time.perf_counter() - began, time.process_time() - cpu


def _writer(ledger: Ledger) -> LedgerWriter:
    writer = LedgerWriter(ledger)
    writer.start()
    return writer


def _job(number: int, jobs: int, messages: int) -> tuple[OpenJob, bytes, Attempt]:
    job, at = f"{number:012x}", START + number * DAYS * DAY // jobs
    outcomes = [_outcome(number * messages + each, at + each) for each in range(messages)]
    file = packed_file(outcomes, AttemptKey("contoso", job, 0, 0))
    counted = Counters(messages, messages)
    attempt = Attempt("contoso", QUEUE, job, 0, 0, at, at + messages, counted, True)
    return OpenJob(job, "contoso", (QUEUE,), 1, at), file, attempt


def _outcome(number: int, at: int) -> Outcome:
    destination = f"orders-{number % 7}"
    times = (at - 3_600_000 + number % 60_000, at - 30, at - 10, at)
    return Outcome(QUEUE, number, f"{_ids.getrandbits(128):032x}", destination, None, *times, 1024, 0, Result.FORWARDED)


def _reported(path: str) -> tuple[float, float, dict[str, Any]]:
    """The command as an operator runs it: its seconds, the seconds of CPU time of all its processes, its result."""
    command = [sys.executable, "-m", "syphon", "report", "--ledger", path, "--json"]
    began, before = time.perf_counter(), _children()
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - began, _children() - before, json.loads(done.stdout)


def _children() -> float:
    """Seconds of CPU time of processes that have ended. The command waits for its JVM, and the JVM for its own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
