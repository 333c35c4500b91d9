"""Watches one job of a classic session while it runs: Spark's UI shows its counters, and slots leave in time.

Spark shows accumulators of Python nowhere, and gets no metrics of a Python task before it ends. But the driver hears of
each slot every second. So it puts accumulators of the JVM on the stage itself, which its page shows like any other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from syphon.control import SlotControl
from syphon.model import Counters
from syphon.time_budget import JOB_WATCHED_EVERY

from .session_access import cores_of

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger("syphon.spark")

MOST_FAILURES = 3
"""Failures in a row after which a job is watched no longer."""
JOB = "syphon.job"
"""The local property by which the JVM's job is found."""
SHOWN = {"messages forwarded": "forwarded", "messages dead-lettered": "dead_lettered", "messages left": "left"}
"""The accumulators on the page of the stage, and the counters of slots that they show."""


@contextmanager
def watched(context: SparkContext, control: SlotControl, job: str) -> Iterator[None]:
    """Watches the job that this thread runs meanwhile, if there is somebody to see it or an executor that may leave."""
    shows = _is_seen(context)
    may_leave = cores_of(str(context.master)) is None
    if not (shows or may_leave):
        yield
        return
    watch = _JobWatch(context, control, job, shows)
    context.setLocalProperty(JOB, job)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
        context.setLocalProperty(JOB, None)  # type: ignore[arg-type]


def _is_seen(context: SparkContext) -> bool:
    return context.uiWebUrl is not None


class _JobWatch:
    """The watch of one job, in a thread of its own. A managed platform may forbid its calls: then it ends."""

    def __init__(self, context: SparkContext, control: SlotControl, job: str, shows: bool) -> None:
        self._context: Any = context
        self._control = control
        self._job = job
        self._shows = shows
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch job {job}", daemon=True)
        self._accumulators: dict[str, Any] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        from py4j.protocol import Py4JError

        failures = 0
        while not self._over.wait(JOB_WATCHED_EVERY) and failures < MOST_FAILURES:
            try:
                self._stop_leaving_slots()
                if self._shows:
                    self._show()
                failures = 0
            except (Py4JError, OSError, AttributeError):  # Spark's own thread changes what is read here, or has ended
                log.debug("job %s could not be watched", self._job, exc_info=True)
                failures += 1

    def _stop_leaving_slots(self) -> None:
        """Tells slots to stop whose executors are decommissioned: their messages are finished or abandoned in time."""
        scheduler = self._context._jsc.sc().taskScheduler()
        executors = scheduler.taskIdToExecutorId()
        for report in self._control.reports_of(self._job):
            if report.task is None or report.finished:
                continue
            executor = executors.get(report.task)
            if executor.isDefined() and scheduler.getExecutorDecommissionState(executor.get()).isDefined():
                self._control.stop_slot(report.key)

    def _show(self) -> None:
        """Sets the accumulators of the job's stage. Its page is up to date with the next heartbeat of an executor."""
        stage = self._stage()
        if stage is None:
            return
        none, some = self._context._jvm.scala.Option.empty(), self._context._jvm.scala.Option.apply
        counters = Counters.total(report.counters for report in self._control.reports_of(self._job))
        for name, counter in SHOWN.items():
            if name not in self._accumulators:
                self._accumulators[name] = self._context._jsc.sc().longAccumulator(name)
            accumulator = self._accumulators[name]
            accumulator.reset()
            accumulator.add(getattr(counters, counter))
            stage.accumulables().put(accumulator.id(), accumulator.toInfo(none, some(accumulator.value())))

    def _stage(self) -> Any:
        """What Spark knows of the stage that runs the slots; None if it does not run."""
        jobs = self._context._jsc.sc().dagScheduler().activeJobs().iterator()
        while jobs.hasNext():
            job = jobs.next()
            if job.properties().getProperty(JOB) == self._job:
                return job.finalStage().latestInfo()
        return None
