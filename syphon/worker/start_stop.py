"""Starts and stops the parts that `run` and `drain` share: Spark, control server, jobs, and the ledger with its writer.

A drain has Spark from its beginning to its end. A worker starts and stops it (`spark_lifecycle`), and listens without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.config import PipelineSettings, SlotReports
from syphon.control import ControlServer, Ending, Step
from syphon.ledger import Ledger, LedgerWriter, ParquetProcess, check_ledger_path
from syphon.model import InvalidSettings, SyphonError
from syphon.spark import (
    EndingGuard,
    Jobs,
    SparkWatch,
    access_to,
    check_session,
    prepare_start,
    spark_session,
)

from .pauses import Pauses
from .spark_lifecycle import SparkLifecycle
from .spark_on_demand import SparkOnDemand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Engine:
    """The running parts that a command needs to move messages."""

    spark: SparkSession
    control_server: ControlServer
    jobs: Jobs
    ledger: Ledger
    ledger_writer: LedgerWriter
    ending: Ending
    """The owner begins it when the command must end. Each step of the shutdown then has its share of the time."""
    watch: SparkWatch


@contextmanager
def running_engine(
    pipeline: PipelineSettings,
    pauses: Pauses | None = None,
    say: Callable[[str], None] | None = None,
    spark: SparkSession | None = None,
    ends_process: bool = True,
) -> Iterator[Engine]:
    """Starts all parts, and stops them in the order that loses no row, within the time of the shutdown.

    `say` is called with a line while the last rows of the ledger are written. `spark` is an existing session: it is
    used as it is, and keeps running. `ends_process`: exit the process if the shutdown takes too long.
    """
    ending = Ending()
    with spark_session(pipeline, ending=ending, given=spark) as session:
        check_session(session)
        check_ledger_path(session, pipeline.ledger)
        access = access_to(session)
        watch = access.watch()
        watch.start()
        guard = EndingGuard(ending, watch.kill)
        if ends_process:
            guard.start()
        try:
            is_live = pipeline.slot_reports is SlotReports.LIVE
            host, listen = access.control_host(pipeline) if is_live else ("127.0.0.1", "127.0.0.1")
            ledger = Ledger(session, pipeline.ledger)
            writer = LedgerWriter(ledger)
            with ControlServer(host, listen, pauses=pauses, on_progress=writer.progress) as control_server:
                writer.start()
                jobs = Jobs(session, control_server, writer, pipeline.slot_reports)
                try:
                    yield Engine(session, control_server, jobs, ledger, writer, ending, watch)
                finally:
                    # A finished drain waits for its ledger; a command that must end has no time for that.
                    writer.finish(ending.left_for(Step.LEDGER) if ending.has_begun else None, say)
        except Exception as error:
            # The watch knows more than the error of a Spark call whose JVM has died.
            lost = None if isinstance(error, SyphonError) else watch.wait_for_failure()
            if lost is None:
                raise
            raise lost from error
        finally:
            watch.stop()
            guard.stop()


# --- a worker --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkerEngine:
    """The running parts that a worker needs."""

    spark: SparkLifecycle
    control_server: ControlServer
    ledger_writer: LedgerWriter
    ending: Ending


@contextmanager
def engine_on_demand(pipeline: PipelineSettings, pauses: Pauses | None = None) -> Iterator[WorkerEngine]:
    """Starts all parts but Spark, and stops them in the order that loses no row, within the time of the shutdown."""
    if pipeline.slot_reports is not SlotReports.LIVE:
        raise InvalidSettings(
            "pipeline.slot_reports: at_end is for drains. A worker hands queues to running slots: its executors must "
            "reach the driver. Remove it, or drain instead (docs/clusters.md)."
        )
    ending = Ending()
    ledger = Ledger(None, pipeline.ledger, ParquetProcess())
    writer = LedgerWriter(ledger)
    control_server = ControlServer(pauses=pauses, on_progress=writer.progress)
    starter = SparkOnDemand(pipeline, ending, ledger, control_server, writer)
    spark = SparkLifecycle(starter, pipeline.idle_shutdown / 1000, is_needed=lambda: writer.needs_spark)
    guard = EndingGuard(ending, starter.kill)
    guard.start()
    prepare_start(pipeline)
    writer.start()
    try:
        yield WorkerEngine(spark, control_server, writer, ending)
    finally:
        writer.finish(ending.left_for(Step.LEDGER) if ending.has_begun else None)
        spark.stop(lambda: ending.left_for(Step.SPARK))
        control_server.close()
        guard.stop()
