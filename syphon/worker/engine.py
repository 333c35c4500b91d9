"""The parts that `run` and `drain` share: a Spark session, the control server, jobs, and the ledger with its writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.config import PipelineSettings
from syphon.ledger import Ledger, LedgerWriter
from syphon.model import SyphonError
from syphon.spark import (
    ControlServer,
    Ending,
    Jobs,
    JvmWatch,
    Step,
    check_session,
    cores_of,
    jvm_of,
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
    watch: JvmWatch


@contextmanager
def running_engine(
    pipeline: PipelineSettings, pauses: Pauses | None = None, say: Callable[[str], None] | None = None
) -> Iterator[Engine]:
    """Starts all parts, and ends them in the order that loses no row, in the time that the ending has.

    `say` is called with a line while the last rows of the ledger are written.
    """
    ending = Ending()
    with spark_session(pipeline, ending=ending) as spark:
        check_session(spark)
        watch = JvmWatch(jvm_of(spark), ending)
        watch.start()
        try:
            host = listen = "127.0.0.1"
            if cores_of(pipeline.master) is None:
                # Executors of a cluster reach the control server at the address of Spark's driver: it listens there.
                host = str(spark.conf.get("spark.driver.host"))
                listen = str(spark.conf.get("spark.driver.bindAddress", host))
            ledger = Ledger(spark, pipeline.ledger)
            writer = LedgerWriter(ledger)
            with ControlServer(host, listen, pauses=pauses, on_progress=writer.progress) as control_server:
                writer.start()
                jobs = Jobs(spark, control_server, writer)
                try:
                    yield Engine(spark, control_server, jobs, ledger, writer, ending, watch)
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
