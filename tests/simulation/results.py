"""The record of many runs: one small file of sums that goes on over processes, days, machines and versions.

For each version of the code it holds the ranges of seeds that were run, what they consisted of, and the seeds that
failed a check. A run goes on with the seeds that are in no range. Each hundred incidents are added under a lock and by
replacing the file: it can be killed at any time, and loses what it has not added. A second run may use the same file.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from .incident import Kind
from .run import Summary, run_many

CHUNK = 100
"""Incidents that are added at once. A chunk begins with a seed that is a multiple of it."""
CODE = ("syphon", "tests/simulation")
"""What decides how an incident runs."""

Range = tuple[int, int]
"""Seeds from the first up to, and without, the second."""


@dataclass
class VersionResults:
    """What one version of the code has run."""

    version: str
    ranges: list[Range] = field(default_factory=list)
    """In order, with gaps between them."""
    sums: Summary = field(default_factory=Summary)

    def add(self, chunk: Range, summary: Summary) -> None:
        self.ranges = joined([*self.ranges, chunk])
        self.sums.add(summary)


@dataclass
class Record:
    """All results, in the order in which their versions were first run."""

    versions: list[VersionResults] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Record:
        """The record in a file; an empty one if there is no file yet."""
        if not file.exists():
            return cls()
        return cls(
            [
                VersionResults(
                    each["version"], [(first, end) for first, end in each["ranges"]], Summary.of(each["sums"])
                )
                for each in json.loads(file.read_text())
            ]
        )

    def write(self, file: Path) -> None:
        """Replaces the file. Whoever reads it finds the old record or the new one, and never a part."""
        values = [
            {"version": each.version, "ranges": each.ranges, "sums": each.sums.values()} for each in self.versions
        ]
        new = file.with_name(f"{file.name}.new")
        with new.open("w") as out:
            json.dump(values, out, ensure_ascii=False, indent=1)
            out.write("\n")
            out.flush()
            os.fsync(out.fileno())
        new.replace(file)

    @property
    def ranges(self) -> list[Range]:
        return joined(each for version in self.versions for each in version.ranges)

    @property
    def total(self) -> Summary:
        found = Summary()
        for each in self.versions:
            found.add(each.sums)
        return found

    def add(self, version: str, chunk: Range, summary: Summary) -> None:
        """Adds a chunk. One that another process has added meanwhile counts once."""
        if missing((chunk,), self.ranges) != [chunk]:
            return
        found = next((each for each in self.versions if each.version == version), None)
        if found is None:
            found = VersionResults(version)
            self.versions.append(found)
        found.add(chunk, summary)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same seeds in as few ranges as possible."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((first, end))
    return found


def missing(wanted: Iterable[Range], known: list[Range]) -> list[Range]:
    """The parts of ranges that are not known yet. What is known is in order, with gaps between."""
    found: list[Range] = []
    for first, end in wanted:
        for known_first, known_end in known:
            if known_end <= first or known_first >= end:
                continue
            if known_first > first:
                found.append((first, known_first))
            first = known_end
        if first < end:
            found.append((first, end))
    return found


def chunks(wanted: Range, known: list[Range]) -> Iterator[Range]:
    """What is missing, a chunk at a time."""
    for first, end in missing((wanted,), known):
        while first < end:
            after = min(end, first - first % CHUNK + CHUNK)
            yield first, after
            first = after


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keeps other processes from changing the file. The lock is on its directory: the file itself is replaced."""
    directory = os.open(file.absolute().parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


# --- running ----------------------------------------------------------------------------------------------------------


def run_recorded(
    file: Path, first: int, runs: int, processes: int, seconds: float | None, kind: Kind | None = None
) -> Summary:
    """Runs the seeds of a range that are not on record yet, and records them. Returns what it has run.

    A kind has a file of its own: its seeds make other incidents.
    """
    version, until = current_version(), None if seconds is None else time.monotonic() + seconds
    fork = multiprocessing.get_context("fork")  # it need not import everything again
    answers: list[Connection] = []
    for number in range(processes):
        answer, told = fork.Pipe(duplex=False)
        share = Share(file, (first, first + runs), version, number, processes, until, kind)
        fork.Process(target=_run_share, args=(share, told), daemon=True).start()
        told.close()
        answers.append(answer)
    found = Summary()
    for answer in answers:
        found.add(answer.recv())  # ends with an `EOFError` if the process was killed
    return found


class Share(NamedTuple):
    """What one of several processes runs: every second chunk if there are two, and so on."""

    file: Path
    wanted: Range
    version: str
    number: int
    processes: int
    until: float | None
    kind: Kind | None

    def chunks(self) -> Iterator[Range]:
        for chunk in chunks(self.wanted, Record.read(self.file).ranges):
            if chunk[0] // CHUNK % self.processes == self.number:
                yield chunk


def _run_share(share: Share, told: Connection) -> None:
    """Runs its chunks until none is left, the time is over, or its parent has ended."""
    parent, found = os.getppid(), Summary()
    try:
        for chunk in share.chunks():
            if os.getppid() != parent or (share.until is not None and time.monotonic() > share.until):
                break
            summary = run_many(chunk[0], chunk[1] - chunk[0], most_failures=CHUNK, kind=share.kind)
            with locked(share.file):
                record = Record.read(share.file)
                record.add(share.version, chunk, summary)
                record.write(share.file)
            found.add(summary)
    except KeyboardInterrupt:
        pass  # what has been added is on record
    told.send(found)


def current_version() -> str:
    """The commit that last changed the code, with a `+` if it has changed since; empty where there is no git."""
    commit = _git("log", "-1", "--format=%H", "--", *CODE, ":!*.json")[:10]
    return commit + ("+" if commit and _git("status", "--porcelain", "--", *CODE, ":!*.json") else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()


# --- showing ----------------------------------------------------------------------------------------------------------


def table(record: Record) -> Iterator[str]:
    """What was run, as the tables of RECORD.md."""
    total = record.total
    yield "| under test | incidents |"
    yield "|---|--:|"
    for name, count in total.modes.most_common():
        yield f"| {name} | {count:,} |"
    yield f"| **all** | **{total.runs:,}** |"
    yield ""
    yield "| kind of fault | times | kind of fault | times |"
    yield "|---|--:|---|--:|"
    cells = [f"| {name} | {count:,} " for name, count in total.faults.most_common()]
    half = (len(cells) + 1) // 2
    for left, right in zip_longest(cells[:half], cells[half:], fillvalue="| | "):
        yield f"{left}{right}|"
    yield ""
    yield "| version | seeds | incidents | messages | copies accepted | virtual hours | failed checks |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for each in record.versions:
        yield f"| {each.version} | {_seeds(each.ranges)} {_sums(each.sums)}"
    yield f"| **all** | {_sums(total)}"
    for each in record.versions:
        for seed, violation in sorted(each.sums.failed.items()):
            yield f"- seed {seed} ({each.version}): {violation}"


def _seeds(ranges: list[Range]) -> str:
    """The first and the last seed. The file has the ranges between them: two versions often ran side by side."""
    return f"{ranges[0][0]} to {ranges[-1][1] - 1}" + (", with gaps" if len(ranges) > 1 else "")


def _sums(sums: Summary) -> str:
    hours = sums.virtual_seconds / 3600
    return f"| {sums.runs:,} | {sums.messages:,} | {sums.copies:,} | {hours:,.0f} | {len(sums.failed)} |"
