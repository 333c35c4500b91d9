"""The parts that `run` and `drain` share: a Spark session, the control server, jobs, and the ledger with its writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.config import PipelineSettings
from syphon.ledger import Ledger, LedgerWriter
from syphon.spark import ControlServer, Jobs, cores_of, spark_session

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


@contextmanager
def running_engine(pipeline: PipelineSettings, pauses: Pauses | None = None) -> Iterator[Engine]:
    """Starts all parts, and ends them in the order that loses no row."""
    with spark_session(pipeline) as spark:
        # Executors of a cluster reach the control server at the address of Spark's driver, so it listens there.
        host = "127.0.0.1" if cores_of(pipeline.master) is not None else str(spark.conf.get("spark.driver.host"))
        listen = str(spark.conf.get("spark.driver.bindAddress", host))
        ledger = Ledger(spark, pipeline.ledger)
        writer = LedgerWriter(ledger)
        with ControlServer(host, listen, pauses=pauses, on_progress=writer.progress) as control_server:
            writer.start()
            try:
                yield Engine(spark, control_server, Jobs(spark, control_server, writer), ledger, writer)
            finally:
                writer.finish()
