"""A namespace for the data source's tests, Spark with the source registered, and a Spark Connect server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.spark_source import SourceBus, source_bus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.connect_server import ConnectServer


@pytest.fixture(scope="module")
def bus() -> Iterator[SourceBus]:
    """One emulator for a module: each test has queues of its own."""
    with source_bus() as bus:
        yield bus


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """The session with the data source `servicebus`."""
    from syphon.datasource import ServiceBusDataSource

    spark.dataSource.register(ServiceBusDataSource)
    return spark


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """One server for all tests on Spark Connect that leave it alive."""
    from tests.support.connect_server import connect_server

    with connect_server(tmp_path_factory.mktemp("connect")) as server:
        yield server
