"""What `run` and `drain` stand on: a Spark session, the driver's desk, jobs, and the clerk with the ledger."""

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

LAST_ROWS = 30.0
"""Seconds that the last rows get to be written, when everything else is over."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Ready to carry messages."""

    spark: SparkSession
    desk: ControlServer
    jobs: Jobs
    ledger: Ledger
    clerk: LedgerWriter


@contextmanager
def running_engine(pipeline: PipelineSettings, pauses: Pauses | None = None) -> Iterator[Engine]:
    """Everything is started, and ended in the order that loses no row."""
    with spark_session(pipeline) as spark:
        # Executors of a cluster find the desk where they find Spark's driver, and it listens where that one does.
        host = "127.0.0.1" if cores_of(pipeline.master) is not None else str(spark.conf.get("spark.driver.host"))
        listen = str(spark.conf.get("spark.driver.bindAddress", host))
        with ControlServer(host, listen, pauses=pauses) as desk:
            ledger = Ledger(spark, pipeline.ledger)
            clerk = LedgerWriter(ledger)
            try:
                yield Engine(spark, desk, Jobs(spark, desk, clerk), ledger, clerk)
            finally:
                clerk.finish(LAST_ROWS)
