"""One Spark for all tests of a process: to start it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from syphon.config import PipelineSettings
from syphon.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(PipelineSettings(master="local[2]"), "syphon tests") as session:
        yield session
