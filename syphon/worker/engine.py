"""The parts that `run` and `drain` share: a Spark session, the control server, jobs, and the ledger with its writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.config import PipelineSettings
from syphon.control import ControlServer, Ending, Step
from syphon.ledger import Ledger, LedgerWriter, check_ledger_path
from syphon.model import SyphonError
from syphon.spark import Jobs, SparkWatch, access_to, check_session, spark_session

from .pauses import Pauses

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
