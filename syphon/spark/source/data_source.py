"""The data source `servicebus`: Service Bus entities as tables and streams of Spark (X6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.model import SyphonError

from .options import SOURCE, SourceOptions, parse_options
from .schema import BODY, COLUMNS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .batch_reader import BatchReader


class SparkTooOld(SyphonError):
    """This Spark has no data sources in Python: the source `servicebus` needs Spark 4.0 or newer."""


try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    raise SparkTooOld from None


class ServiceBusDataSource(DataSource):
    """Service Bus queues, topics and subscriptions. Register it once: `spark.dataSource.register(…)`."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> StructType:
        wants_bodies = self._parsed().behaviour.bodies
        return spark_schema(name for name in COLUMNS if name != BODY or wants_bodies)

    def reader(self, schema: StructType) -> BatchReader:
        from .batch_reader import BatchReader

        return BatchReader(self._parsed(), schema)

    def _parsed(self) -> SourceOptions:
        return parse_options(self.options)
