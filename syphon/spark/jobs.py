"""Spark jobs: so many slots on one backlog queue, their rows to the clerk, their sheets back to who asked."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.bus import SideFault
from syphon.config import PairSettings
from syphon.ledger import TRANSFERS, Attempt, LedgerWriter, let_go
from syphon.model import Counters, SyphonError
from syphon.transfer import DestinationBackoff, PumpOptions, wall_clock

from .control_protocol import SlotReport
from .control_server import ControlServer
from .task import SlotAssignment, Task, slots, warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkLost(SyphonError):
    """Spark is gone: it has to be started again, and the worker with it."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """A job that has ended, as far as the driver heard of it."""

    sheets: tuple[SlotReport, ...]
    failure: str = ""
    """Why Spark gave it up, if it did."""

    @property
    def lost(self) -> tuple[SlotReport, ...]:
        """Attempts that were killed: their rows are gone, their counters are not."""
        return tuple(sheet for sheet in self.sheets if not sheet.finished)

    @property
    def fault(self) -> SideFault | None:
        return next((sheet.fault for sheet in self.sheets if sheet.fault is not None), None)

    @property
    def error(self) -> str:
        """What went wrong, if something did."""
        return self.failure or next((sheet.error for sheet in self.sheets if sheet.error), "")

    @property
    def waiting(self) -> tuple[DestinationBackoff, ...]:
        """The destinations that took nothing, the longest wait of each."""
        longest: dict[str, DestinationBackoff] = {}
        for destination in (found for sheet in self.sheets for found in sheet.waiting):
            known = longest.get(destination.path)
            if known is None or known.seconds < destination.seconds:
                longest[destination.path] = destination
        return tuple(longest.values())

    @property
    def has_more(self) -> bool:
        """A lease was over while messages still came."""
        return any(sheet.busy for sheet in self.sheets)

    @property
    def counters(self) -> Counters:
        return Counters.total(sheet.counters for sheet in self.sheets)


class Jobs:
    """Runs slots, and hands their rows to the clerk."""

    def __init__(self, spark: SparkSession, desk: ControlServer, clerk: LedgerWriter) -> None:
        self._spark = spark
        self._desk = desk
        self._clerk = clerk

    @property
    def most_slots(self) -> int:
        """How many tasks run at once."""
        return int(self._spark.sparkContext.defaultParallelism)

    def warm_up(self) -> None:
        """The first job takes seconds, and a message that waits for it as long. Better now."""
        rows = self._rows(warm_up, self.most_slots)
        _evaluate(rows)
        let_go(rows)

    def carry(
        self,
        pair: PairSettings,
        queue: str,
        options: Sequence[PumpOptions],
        waiting: Sequence[DestinationBackoff] = (),
        rate: float | None = None,
    ) -> JobResult:
        """Carries a queue's messages with a slot for each of `options`, until all of them have ended.

        Raises `SparkLost`; whatever else goes wrong is in what it returns, beside what was done until then.
        """
        job = uuid.uuid4().hex[:12]
        share = None if rate is None else rate / len(options)
        assignments = [
            SlotAssignment(pair, queue, job, each, self._desk.address, share, tuple(waiting)) for each in options
        ]
        self._desk.open_job(job)
        rows, failure = self._run(queue, assignments)
        sheets = tuple(self._desk.close_job(job))
        self._clerk.write(rows, [_attempt(sheet) for sheet in sheets])
        return JobResult(sheets, failure)

    def _run(self, queue: str, assignments: list[SlotAssignment]) -> tuple[DataFrame | None, str]:
        """Runs the slots: their rows, or why there are none."""
        context = self._spark.sparkContext
        # A pool of its own: in the common one, jobs wait for each other in a line.
        context.setLocalProperty("spark.scheduler.pool", queue)
        context.setJobDescription(f"syphon: {queue}")
        rows = self._rows(slots(assignments), len(assignments))
        try:
            _evaluate(rows)
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            if self._is_lost():
                raise SparkLost(f"Spark is gone while it worked on {queue}: {text}") from error
            let_go(rows)
            return None, f"Spark gave up a job on {queue}: {text}. Nothing is lost: what was in hand comes again."
        return rows, ""

    def _rows(self, task: Task, count: int) -> DataFrame:
        """What so many tasks will yield. Spark keeps it: evaluating it again would be another transfer."""
        from pyspark import StorageLevel

        rows = self._spark.range(0, count, 1, count).mapInArrow(task, TRANSFERS)
        return rows.persist(StorageLevel.MEMORY_AND_DISK)

    def _is_lost(self) -> bool:
        from py4j.protocol import Py4JError

        try:
            return bool(self._spark.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError, AttributeError):
            return True


def _attempt(report: SlotReport) -> Attempt:
    """An attempt, as it goes on record."""
    return Attempt(
        report.pair,
        report.queue,
        report.job,
        report.slot,
        report.attempt,
        report.started_at,
        wall_clock(),
        report.counters,
        report.finished,
        report.error or None,
    )


def _evaluate(rows: DataFrame) -> None:
    """Unlike count() it takes one stage, and unlike writing all columns it does not read back what was just kept."""
    rows.selectExpr("1").write.format("noop").mode("overwrite").save()
