"""Spark for a worker: starts it with all that belongs to it, runs jobs, and stops it, as often as it is needed."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from syphon.config import PairSettings, PipelineSettings
from syphon.control import ControlServer, Ending, HandOver
from syphon.ledger import Ledger, LedgerWriter, check_ledger_path
from syphon.model import SyphonError
from syphon.spark import (
    JobResult,
    Jobs,
    Launch,
    SparkLost,
    SparkWatch,
    access_to,
    active_session,
    check_session,
    new_job,
    spark_session,
)
from syphon.transfer import DestinationBackoff, PumpOptions

from .spark_lifecycle import RunningSpark


class SparkOnDemand:
    """Starts Spark for a worker, as often as it is needed."""

    def __init__(
        self,
        pipeline: PipelineSettings,
        ending: Ending,
        ledger: Ledger,
        control_server: ControlServer,
        writer: LedgerWriter,
    ) -> None:
        self._pipeline = pipeline
        self._ending = ending
        self._ledger = ledger
        self._control_server = control_server
        self._writer = writer
        self._launch = Launch()
        self._watch: SparkWatch | None = None

    def start(self) -> RunningSpark:
        """Starts Spark, or uses the session that exists. Raises what prevents it."""
        self._launch = Launch()
        if self._ending.has_begun:  # `kill` may have been called a moment before
            self._launch.kill()
        is_ours = active_session() is None and "PYSPARK_GATEWAY_PORT" not in os.environ
        with ExitStack() as stack:
            opened = spark_session(self._pipeline, ending=self._ending, launch=self._launch)
            session = stack.enter_context(opened)
            check_session(session)
            check_ledger_path(session, self._pipeline.ledger)
            access = access_to(session)
            watch = self._watch = access.watch()
            watch.start()
            stack.callback(watch.stop)
            self._control_server.serve(*access.control_host(self._pipeline))
            jobs = Jobs(session, self._control_server, self._writer)
            if self._pipeline.idle_shutdown == 0:  # nothing waits: the first message should not wait for this
                jobs.warm_up()
            found = StartedSpark(jobs, watch, is_ours, ends=ExitStack())
            _ = found.most_slots  # asks Spark, which may fail
            self._ledger.use(session)
            stack.callback(self._ledger.use, None)
            found.ends.push(stack.pop_all())
            return found

    def kill(self) -> None:
        """Ends the JVM, whatever it does."""
        self._launch.kill()
        if self._watch is not None:
            self._watch.kill()


@dataclass(slots=True)
class StartedSpark:
    """Spark while it runs."""

    jobs: Jobs
    watch: SparkWatch
    is_ours: bool
    ends: ExitStack
    """What ends with it."""
    lost: SparkLost | None = None
    """The error of a job that has found it lost."""

    @property
    def most_slots(self) -> int:
        return self.jobs.most_slots

    @property
    def failure(self) -> SyphonError | None:
        return self.watch.failure or self.lost

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
        """Runs a job. One whose Spark is lost is recorded too, and the worker continues."""
        job = job or new_job()
        try:
            return self.jobs.run(pair, queues, options, backing_off, rate=rate, job=job)
        except SparkLost as lost:
            self.lost = self.watch.wait_for_failure() or lost
            return self.jobs.close(job, JobResult((), str(self.lost)))

    def stop(self) -> None:
        self.ends.close()
        _return_memory()


def _return_memory() -> None:
    """Returns what Spark's client has left behind to the system: the C library would keep it for the next start."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
