"""What `run` and `drain` stand on: a Spark session, the driver's desk, and the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..config import PipelineSettings
from .clerk import Clerk
from .desk import Desk
from .jobs import Jobs
from .ledger import Ledger
from .session import cores_of, spark_session

LAST_ROWS = 30.0
"""Seconds that the last rows get to be written, when everything else is over."""


@contextmanager
def engine(pipeline: PipelineSettings) -> Iterator[tuple[Jobs, Desk]]:
    """Ready to carry messages, until the block is left."""
    with spark_session(pipeline) as spark:
        # Executors of a cluster find the desk where they find Spark's driver.
        host = "127.0.0.1" if cores_of(pipeline.master) is not None else str(spark.conf.get("spark.driver.host"))
        with Desk(host) as desk:
            clerk = Clerk(Ledger(spark, pipeline.ledger))
            try:
                yield Jobs(spark, desk, clerk), desk
            finally:
                clerk.finish(LAST_ROWS)
