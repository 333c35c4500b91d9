"""Spark jobs: a job runs slots on one backlog queue, passes their rows to the ledger, and returns their reports."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.bus import SideFault
from syphon.config import PairSettings
from syphon.ledger import TRANSFERS, Attempt, LedgerWriter, unpersist_rows
from syphon.model import Counters
from syphon.transfer import DestinationBackoff, PumpOptions, wall_clock

from .control_protocol import SlotReport
from .control_server import ControlServer
from .jvm_watch import SparkLost
from .task import SlotAssignment, Task, slot_task, warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended, as far as its tasks reported it to the driver."""

    reports: tuple[SlotReport, ...]
    spark_error: str = ""
    """Why Spark gave the job up; empty if it did not."""

    @property
    def killed(self) -> tuple[SlotReport, ...]:
        """Attempts that were killed: their rows are lost, their counters are known."""
        return tuple(report for report in self.reports if not report.finished)

    @property
    def fault(self) -> SideFault | None:
        return next((report.fault for report in self.reports if report.fault is not None), None)

    @property
    def error(self) -> str:
        """What went wrong; empty if nothing did."""
        return self.spark_error or next((report.error for report in self.reports if report.error), "")

    @property
    def backing_off(self) -> tuple[DestinationBackoff, ...]:
        """The destinations that accept nothing now, each with the longest wait that a slot reported."""
        longest: dict[str, DestinationBackoff] = {}
        for destination in (found for report in self.reports for found in report.backing_off):
            known = longest.get(destination.path)
            if known is None or known.seconds < destination.seconds:
                longest[destination.path] = destination
        return tuple(longest.values())

    @property
    def has_more(self) -> bool:
        """A lease ended while messages were still arriving."""
        return any(report.busy for report in self.reports)

    @property
    def counters(self) -> Counters:
        return Counters.total(report.counters for report in self.reports)


class Jobs:
    """Runs slots as Spark jobs, and gives their rows to the ledger writer."""

    def __init__(self, spark: SparkSession, control_server: ControlServer, ledger_writer: LedgerWriter) -> None:
        self._spark = spark
        self._control_server = control_server
        self._ledger_writer = ledger_writer

    @property
    def most_slots(self) -> int:
        """How many tasks Spark runs at once."""
        return int(self._spark.sparkContext.defaultParallelism)

    def warm_up(self) -> None:
        """Runs a job without work: the first job takes seconds, and no message should have to wait for it.

        One task is enough: the first queue that rings gets one slot, and each Python worker takes a hundred megabytes.
        """
        rows = self._rows(warm_up, 1)
        _evaluate(rows)
        unpersist_rows(rows)

    def run(
        self,
        pair: PairSettings,
        queue: str,
        options: Sequence[PumpOptions],
        backing_off: Sequence[DestinationBackoff] = (),
        rate: float | None = None,
    ) -> JobResult:
        """Moves the messages of a queue with one slot for each of `options`, until all slots have ended.

        Raises `SparkLost`. The result holds every other error, and what the slots did before it.
        """
        job = uuid.uuid4().hex[:12]
        share = None if rate is None else rate / len(options)
        assignments = [
            SlotAssignment(pair, queue, job, each, self._control_server.address, share, tuple(backing_off))
            for each in options
        ]
        self._control_server.open_job(job)
        rows, failure = self._run(queue, assignments)
        reports = tuple(self._control_server.close_job(job))
        self._ledger_writer.write(rows, [_attempt(report) for report in reports])
        return JobResult(reports, failure)

    def _run(self, queue: str, assignments: list[SlotAssignment]) -> tuple[DataFrame | None, str]:
        """Runs the slots. Returns their rows, or the reason why there are none."""
        context = self._spark.sparkContext
        # Each queue has a scheduler pool of its own: in the common pool, jobs wait for each other.
        context.setLocalProperty("spark.scheduler.pool", queue)
        context.setJobDescription(f"syphon: {queue}")
        rows = self._rows(slot_task(assignments), len(assignments))
        try:
            _evaluate(rows)
        except Exception as error:
            text = str(error).strip().partition("\n")[0]
            if self._is_lost():
                raise SparkLost(f"Spark stopped while it worked on {queue}: {text}") from error
            unpersist_rows(rows)
            return (
                None,
                f"Spark gave up a job on {queue}: {text}. Nothing is lost: messages that were in hand come again.",
            )
        return rows, ""

    def _rows(self, task: Task, count: int) -> DataFrame:
        """The rows of `count` tasks, persisted: evaluating them a second time would be a second transfer."""
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
    """An attempt as the ledger records it."""
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
    """Evaluates rows once. count() would take two stages; writing all columns would read back the persisted rows."""
    rows.selectExpr("1").write.format("noop").mode("overwrite").save()
