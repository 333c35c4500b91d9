"""A namespace for the data source's tests, and Spark with the source registered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_source import SourceBus, source_bus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bus() -> Iterator[SourceBus]:
    """One emulator for a module: each test has queues of its own."""
    with source_bus() as bus:
        yield bus


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """The session with the data source `servicebus`."""
    from syphon.spark import ServiceBusDataSource

    spark.dataSource.register(ServiceBusDataSource)
    return spark
