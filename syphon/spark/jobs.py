"""Spark jobs: a job runs slots on backlog queues of a pair, passes their rows to the ledger, and returns their reports.

A job is on record in the ledger before its first receive, and closed there after its last (D17).

A classic session runs the tasks of a job on Spark's core, as an RDD. A DataFrame would do the same, but for it the JVM
loads Spark's SQL, and Python loads pandas here and in each task, which none of them needs. Spark Connect has DataFrames
only.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from syphon.config import PairSettings, SlotReports
from syphon.control import ControlServer, HandOver, QueueAttempt, SlotReport, split_result
from syphon.ledger import Attempt, LedgerWriter, OpenJob
from syphon.model import Counters, SyphonError, first_line, plural
from syphon.servicebus import SideFault
from syphon.time_budget import JOB_SETTLES_WITHIN
from syphon.transfer import DestinationBackoff, Ended, PumpOptions, wall_clock

from .classic import slot_profile
from .session_access import SparkLost, access_to, is_connect
from .task import SlotAssignment, Task, slot_task, warm_up

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


_CANCELLED = re.compile(r"\bcancell?ed\b", re.IGNORECASE)
"""What Spark says of a job that somebody has cancelled, in all its versions and on Connect."""
_NO_PYTHON = re.compile(r"""No module named '([\w.]+)'|PYTHON_VERSION_MISMATCH|Cannot run program "[^"]+"[^\n]*""")
"""What Spark says if the Python of its executors cannot run a slot."""


class PythonUnusable(SyphonError):
    """The Python of Spark's executors cannot run a slot. No retry helps."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended, as far as its slots reported it to the driver."""

    reports: tuple[SlotReport, ...]
    spark_error: str = ""
    """Why Spark gave the job up; empty if it did not."""
    is_cancelled: bool = False
    """Whether somebody cancelled it in Spark: in its web UI, with `cancelJobGroup`, or with `interruptAll`."""
    is_python_unusable: bool = False
    """Whether the Python of Spark's executors cannot run a slot: another job would fail in the same way."""

    @property
    def killed(self) -> tuple[SlotReport, ...]:
        """Attempts that were killed: their last rows are lost, their counters are known."""
        return tuple(report for report in self.reports if not report.finished)

    @property
    def fault(self) -> SideFault | None:
        return next((report.fault for report in self.reports if report.fault is not None), None)

    @property
    def error(self) -> str:
        """What went wrong with the whole job; empty if nothing did."""
        return self.spark_error or next((report.error for report in self.reports if report.error), "")

    def error_of(self, queue: str) -> str:
        """What went wrong with a queue; empty if nothing did."""
        return self.error or next((each.queue.error for each in self.attempts(queue) if each.queue.error), "")

    @property
    def primary_error(self) -> str:
        """Why the primary was unreachable when the job ended; empty if it was not."""
        return next((report.primary_error for report in self.reports if report.primary_error), "")

    @property
    def backing_off(self) -> tuple[DestinationBackoff, ...]:
        """The unavailable destinations, each with the longest wait that a slot reported."""
        longest: dict[str, DestinationBackoff] = {}
        for destination in (found for report in self.reports for found in report.backing_off):
            known = longest.get(destination.path)
            if known is None or known.seconds < destination.seconds:
                longest[destination.path] = destination
        return tuple(longest.values())

    @property
    def has_more(self) -> bool:
        """A lease ended while queues were still served."""
        return any(queue.ended is Ended.LEASE for report in self.reports for queue in report.queues)

    @property
    def counters(self) -> Counters:
        return Counters.total(report.counters for report in self.reports)

    def attempts(self, queue: str) -> list[QueueAttempt]:
        """What the attempts of the job did with one queue."""
        return [
            QueueAttempt(report, found) for report in self.reports for found in report.queues if found.queue == queue
        ]


class Jobs:
    """Runs slots as Spark jobs, and gives their rows to the ledger writer."""

    def __init__(
        self,
        spark: SparkSession,
        control_server: ControlServer,
        ledger_writer: LedgerWriter,
        slot_reports: SlotReports = SlotReports.LIVE,
    ) -> None:
        self._spark = spark
        self._access = access_to(spark)
        self._access.inherit()
        self._control_server = control_server
        self._ledger_writer = ledger_writer
        self._is_live = slot_reports is SlotReports.LIVE

    @cached_property
    def most_slots(self) -> int:
        """How many tasks Spark runs at once. It is counted again after each job: executors join and leave."""
        return self._access.most_slots()

    def warm_up(self) -> None:
        """Runs a job without work: the first job takes seconds, and no message should have to wait for it.

        One task is enough: the first queue that rings gets one slot, and each Python worker takes a hundred megabytes.
        """
        run_tasks(self._spark, warm_up, 1)

    def run(
        self,
        pair: PairSettings,
        queues: Sequence[HandOver],
        options: Sequence[PumpOptions],
        backing_off: Sequence[DestinationBackoff] = (),
        *,
        rate: float | None = None,
        job: str = "",
    ) -> JobResult:
        """Moves the messages of these queues with one slot for each of `options`, until all slots have ended.

        Every slot serves every queue. Raises `SparkLost`. The result holds every other error, and what the slots did
        before it.
        """
        job = job or new_job()
        share = None if rate is None else rate / len(options)
        address = self._control_server.address if self._is_live else None
        assignments = [
            SlotAssignment(pair, tuple(queues), job, each, address, share, tuple(backing_off)) for each in options
        ]
        names = tuple(handed.queue for handed in queues)
        self._ledger_writer.open_job(OpenJob(job, pair.name, names, len(options), wall_clock()))
        self._control_server.open_job(job, tuple(queues))
        results, ended = self._run(pair.name, names, assignments)
        files, reports = split_result(results)
        for report in reports:
            self._control_server.receive(report)
        self.__dict__.pop("most_slots", None)
        return self.close(job, ended, files)

    def close(self, job: str, ended: JobResult, files: Sequence[bytes] = ()) -> JobResult:
        """Puts the end of a job on record: of one whose Spark is lost, too, if this process outlives it."""
        if ended.spark_error:
            self._control_server.settle_job(job, JOB_SETTLES_WITHIN)
        files = list(dict.fromkeys([*self._control_server.rows_of(job), *files]))  # equal files are one, sent twice
        reports = tuple(self._control_server.close_job(job))
        ended = replace(ended, reports=reports)
        # Nothing is known of an unattended slot that was killed: a job that stays open lets the report say so.
        if self._is_live or not (ended.spark_error or ended.killed):
            self._ledger_writer.close_job(job, files, [row for report in reports for row in _attempts(report)])
        return ended

    def _run(
        self, pair: str, queues: Sequence[str], assignments: list[SlotAssignment]
    ) -> tuple[list[bytes], JobResult]:
        """Runs the slots. Returns their packed rows, and how the job ended, still without their reports."""
        what = queues[0] if len(queues) == 1 else f"{len(queues)} queues of {pair}"
        slots = plural(len(assignments), "slot")
        self._access.describe_job(pair, f"{what}, {slots}. Cancel it to stop a drain; no message is lost")
        try:
            with self._access.watched(self._control_server, assignments[0].job):
                return run_tasks(self._spark, slot_task(assignments), len(assignments)), JobResult(())
        except PythonUnusable as error:
            return [], JobResult((), str(error), is_python_unusable=True)
        except Exception as error:
            text = _reason(error)
            if self._access.is_lost():
                raise SparkLost(f"Spark stopped while it worked on {what}: {text}") from error
            is_cancelled = _CANCELLED.search(text) is not None
            what_happened = (
                f"the job on {what} was cancelled in Spark" if is_cancelled else f"Spark gave up a job on {what}"
            )
            told = f"{what_happened}: {text.rstrip('.')}. No message is lost: those in flight are redelivered."
            if not self._is_live:
                told += " What its slots did is in no count, because they report at their end (pipeline.slot_reports)."
            return [], JobResult((), told, is_cancelled)


def _reason(error: Exception) -> str:
    """The first line of what Spark says."""
    return first_line(_full_text(error))


def _full_text(error: Exception) -> str:
    """What Spark says. Of an error in the JVM, Python only says which call it was raised by."""
    from py4j.protocol import Py4JError, Py4JJavaError

    if isinstance(error, Py4JJavaError):
        with suppress(Py4JError, OSError, AttributeError):  # the JVM may be gone
            return str(error.java_exception.getMessage() or error)
    return str(error)


def new_job() -> str:
    """The name of a new job."""
    return uuid.uuid4().hex[:12]


def _attempts(report: SlotReport) -> list[Attempt]:
    """An attempt as the ledger records it: a row for each of its queues."""
    return [
        Attempt(
            report.pair,
            queue.queue,
            report.job,
            report.slot,
            report.attempt,
            report.started_at,
            report.reported_at,
            queue.counters,
            report.finished,
            report.error or queue.error or None,
        )
        for queue in report.queues
    ]


# --- tasks of a job --------------------------------------------------------------------------------------------------


def run_tasks(spark: SparkSession, task: Task, count: int) -> list[bytes]:
    """Runs `count` tasks; each gets its number. Spark evaluates each exactly once: each evaluation is a transfer.

    Raises PythonUnusable, and what Spark raises.
    """
    try:
        return _run_tasks(spark, task, count)
    except Exception as error:
        check_python(spark, error)
        raise


def _run_tasks(spark: SparkSession, task: Task, count: int) -> list[bytes]:
    return on_frame(spark, task, count) if is_connect(spark) else on_core(spark.sparkContext, task, count)


def check_python(spark: SparkSession, error: Exception) -> None:
    """Raises PythonUnusable if a task has failed because the executors' Python cannot run it.

    Without that, each retry would fail in the same way, and Spark's text names neither interpreter nor setting.
    """
    found = _NO_PYTHON.search(_full_text(error))
    if found is None:
        return
    what = f"has no module '{found[1]}'" if found[1] else f"cannot be used ({_reason(error).rstrip('.')})"
    place = "on the Spark Connect server" if is_connect(spark) else "before the session is made"
    raise PythonUnusable(
        f"The Python of Spark's executors, {_executors_python(spark)}, {what}. Set PYSPARK_PYTHON {place} (or "
        f"spark.pyspark.python in pipeline.spark) to one like {sys.executable}, which has what docs/clusters.md lists."
    ) from error


def _executors_python(spark: SparkSession) -> str:
    """The interpreter of the executors, as it names itself if it runs at all."""

    def named(numbers: Iterable[int]) -> Iterator[bytes]:  # Spark ships its code: it needs no module of syphon
        import sys

        for _ in numbers:
            yield f"{sys.executable} ({sys.version.split()[0]})".encode()

    try:
        return _run_tasks(spark, named, 1)[0].decode()
    except Exception:
        return "whose name is unknown" if is_connect(spark) else str(spark.sparkContext.pythonExec)


def on_core(context: SparkContext, task: Task, count: int) -> list[bytes]:
    """Runs the tasks as an RDD, on Spark's core. Each element of it is the number of a task."""
    numbers = context.parallelize(range(count), count)
    if (profile := slot_profile(context)) is not None:
        numbers = numbers.withResources(profile)
    files: list[bytes] = numbers.mapPartitions(task).collect()
    return files


def on_frame(spark: SparkSession, task: Task, count: int) -> list[bytes]:
    """Runs the tasks as a DataFrame with `mapInArrow`. Each row of it is the number of a task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        for file in task(numbers):
            yield pa.RecordBatch.from_arrays([pa.array([file], pa.binary())], names=["file"])

    rows = spark.range(0, count, 1, count).mapInArrow(run, "file binary").collect()
    return [bytes(row.file) for row in rows]
