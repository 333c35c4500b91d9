"""The parts that `run` and `drain` share: a Spark session, the control server, jobs, and the ledger with its writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.config import PipelineSettings
from syphon.ledger import Ledger, LedgerWriter, check_ledger_path
from syphon.model import SyphonError
from syphon.spark import (
    ControlServer,
    Ending,
    Jobs,
    SparkWatch,
    Step,
    access_to,
    check_session,
    spark_session,
)

from .pauses import Pauses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything that moves messages needs, started."""

    spark: SparkSession
    control_server: ControlServer
    jobs: Jobs
    ledger: Ledger
    ledger_writer: LedgerWriter
    ending: Ending
    """Its owner begins it when the command must end; then each step below has its share of the time."""
    watch: SparkWatch


@contextmanager
def running_engine(
    pipeline: PipelineSettings,
    pauses: Pauses | None = None,
    say: Callable[[str], None] | None = None,
    spark: SparkSession | None = None,
    ends_process: bool = True,
) -> Iterator[Engine]:
    """Starts all parts, and ends them in the order that loses no row, in the time that the ending has.

    `say` is called with a line while the last rows of the ledger are written. `spark` is a session that is there: it is
    used as it is, and keeps running. `ends_process`: a process whose ending takes too long is ended.
    """
    ending = Ending()
    with spark_session(pipeline, ending=ending, given=spark) as session:
        check_session(session)
        check_ledger_path(session, pipeline.ledger)
        access = access_to(session)
        watch = access.watch(ending, ends_process)
        watch.start()
        try:
            host, listen = access.control_host(pipeline)
            ledger = Ledger(session, pipeline.ledger)
            writer = LedgerWriter(ledger)
            with ControlServer(host, listen, pauses=pauses, on_progress=writer.progress) as control_server:
                writer.start()
                jobs = Jobs(session, control_server, writer)
                try:
                    yield Engine(session, control_server, jobs, ledger, writer, ending, watch)
                finally:
                    # A drain that is done waits for its ledger; a command that must end has no time for that.
                    writer.finish(ending.left_for(Step.LEDGER) if ending.has_begun else None, say)
        except Exception as error:
            # What a call of Spark raises when its JVM is gone says less than the watch does.
            lost = None if isinstance(error, SyphonError) else watch.wait_for_failure(1.0)
            if lost is None:
                raise
            raise lost from error
        finally:
            watch.stop()
