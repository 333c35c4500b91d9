"""The record of many runs: a file of lines that can be continued and added up, over processes and days.

Each line holds the result of one chunk of consecutive seeds. A run that was broken off goes on with the chunks that
have no line yet.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from .run import Summary, run_many

CHUNK = 100
"""Incidents in one line of the file."""


def run_recorded(file: Path, first: int, runs: int, processes: int, seconds: float | None) -> Summary:
    """Runs the chunks of a range of seeds that are not on record yet, and records each. Returns what it has run."""
    known = {line["first"] for line in read(file)}
    chunks = (seed for seed in range(first, first + runs, CHUNK) if seed not in known)
    began, found, version = time.monotonic(), Summary(), _version()
    with ProcessPoolExecutor(processes) as pool, file.open("a") as record:
        for seed, summary in _in_turn(pool, chunks, processes):
            record.write(json.dumps({"first": seed, "version": version, **vars(summary)}) + "\n")
            record.flush()
            found.add(summary)
            if seconds is not None and time.monotonic() - began > seconds:
                pool.shutdown(wait=True, cancel_futures=True)
                break
    return found


def _in_turn(pool: ProcessPoolExecutor, seeds: Iterator[int], processes: int) -> Iterator[tuple[int, Summary]]:
    """The chunks as they end. No more are begun than can run at once: the caller may stop at any time."""
    running: dict[Future[Summary], int] = {}
    for seed in seeds:
        running[pool.submit(_run_chunk, seed)] = seed
        if len(running) >= processes:
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(done), done.result()
    for done in list(running):
        yield running[done], done.result()


def _run_chunk(seed: int) -> Summary:
    return run_many(seed, CHUNK, most_failures=CHUNK)


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of a file; none if there is no file yet."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def total(lines: Iterable[dict[str, Any]]) -> Summary:
    """All lines added up. A chunk that was recorded twice counts once."""
    found = Summary()
    for line in {line["first"]: line for line in lines}.values():
        found.add(Summary.of({key: value for key, value in line.items() if key not in ("first", "version")}))
    return found


def table(summary: Summary) -> Iterator[str]:
    """What was run, as a table for docs/reliability.md."""
    yield "| under test | incidents |"
    yield "|---|---|"
    for name, count in sorted(summary.modes.items()):
        yield f"| {name} | {count:,} |"
    yield f"| **all** | **{summary.runs:,}** |"
    yield ""
    yield "| kind of fault | in so many incidents or more than once in one |"
    yield "|---|---|"
    for name, count in summary.faults.most_common():
        yield f"| {name} | {count:,} |"
    yield ""
    yield (
        f"{summary.messages:,} messages, {summary.copies:,} copies accepted, "
        f"{summary.virtual_seconds / 3600:,.0f} virtual hours, {len(summary.failed)} broken promises."
    )
    for seed, violation in summary.failed.items():
        yield f"- seed {seed}: {violation}"


def _version() -> str:
    """The commit that is run; empty where there is none."""
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip()
