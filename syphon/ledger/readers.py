"""What a report needs from a ledger, and the two readers that find it have in common.

A small ledger on this machine is read in this process (`local_reader`): Spark's start alone takes longer than such a
report. A large one, and one that only Spark can reach, is read by Spark (`spark_reader`). Both count with `aggregates`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .aggregates import ATTEMPT, Aggregates
from .open_jobs import OpenRecord
from .report import Period
from .selection import Selection, within

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPT_COLUMNS = (*ATTEMPT, "started_at", "ended_at", "received", "forwarded", "error")
"""The columns of an attempt that a report uses."""


class FilesChanged(Exception):
    """A file is gone: it was merged into another one since the files were listed. To read again helps."""


class LedgerExtract(NamedTuple):
    """What a reader finds for a report."""

    aggregates: Aggregates
    attempts: pa.Table
    """The attempts of the selected pair that ended in the period."""
    attempted: set[tuple[str, str]]
    """Pair and job of those open jobs that have attempts on record."""
    pairs: set[str]
    """All pairs that have transfers."""
    unreadable_files: list[str]


class Reader(Protocol):
    """Reads a ledger for a report. Its methods raise LedgerUnreadable, or FilesChanged."""

    @property
    def path(self) -> str: ...

    def open_jobs(self) -> tuple[list[OpenRecord], list[str]]:
        """The jobs that are not closed, and the files of such jobs that cannot be read."""

    def read(self, selection: Selection, open_jobs: Sequence[str]) -> LedgerExtract:
        """Counts the rest. `open_jobs` are the names of all jobs that are not closed."""


def selected_attempts(attempts: pa.Table, selection: Selection) -> pa.Table:
    """The attempts of the selected pair that ended in the period."""
    import pyarrow.compute as pc

    if selection.pair is not None:
        attempts = attempts.filter(pc.equal(attempts["pair"], selection.pair))
    if selection.period == Period():
        return attempts
    return attempts.filter(within(attempts["ended_at"], selection.period))


def jobs_of(attempts: pa.Table, jobs: Sequence[str]) -> set[tuple[str, str]]:
    """Pair and job of the attempts of these jobs."""
    if not jobs:
        return set()
    found = zip(attempts["pair"].to_pylist(), attempts["job"].to_pylist(), strict=True)
    return {(pair, job) for pair, job in found if job in jobs}
