"""The data source `servicebus`: Service Bus entities as tables and streams of Spark (X6)."""

from __future__ import annotations

import os
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from syphon.config import PairSettings
from syphon.model import SyphonError

from .columns import BODY, COLUMNS, check_written, ddl
from .options import SOURCE, BadSourceOptions, SourceOptions, parse_options, refuse_written_secrets

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from .readers import BatchReader, StreamReader
    from .write import BatchWriter

_ARTIFACTS, _CLASSIC = "SPARK_JOB_ARTIFACT_UUID", "default"
"""Spark tells Python processes whose artifacts they use: those of a session of Connect, or those that all share."""


class SparkTooOld(SyphonError):
    """This Spark has no data sources in Python: the source `servicebus` needs Spark 4.0 or newer."""


try:
    from pyspark.sql.datasource import DataSource
except ImportError:
    raise SparkTooOld from None


class ServiceBusDataSource(DataSource):
    """Service Bus queues, topics and subscriptions.

    Register it once: `spark.dataSource.register(ServiceBusDataSource)`, or with options by `register_source`.
    """

    settings: tuple[PairSettings, ...] = ()
    """The pairs of the settings that it was registered with."""
    is_on_connect = False
    """Whether it was registered in a session of Spark Connect, as far as that is known."""
    of_query: AbstractSet[str] | None = None
    """The options that a query has named; None if those are all."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        wants_bodies = self._parsed().behaviour.bodies
        return ddl(name for name in COLUMNS if name != BODY or wants_bodies)

    def reader(self, schema: StructType) -> BatchReader:
        from .readers import BatchReader

        return BatchReader(self._parsed(), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from .write import BatchWriter

        return BatchWriter(self._checked(schema, overwrite))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        from .readers import stream_reader

        return stream_reader(self._parsed(), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from .write import stream_writer

        return stream_writer(self._checked(schema, overwrite))

    def _checked(self, schema: StructType, overwrite: bool) -> SourceOptions:
        """The options of a write, before anything is sent."""
        options = self._parsed()
        if overwrite:
            raise BadSourceOptions(f"{SOURCE}: messages cannot be overwritten. Write with mode append.")
        check_written(schema)
        if not options.entity.lower().endswith("/$deadletterqueue") and "/subscriptions/" not in options.entity.lower():
            return options
        raise BadSourceOptions(f"{SOURCE}: '{options.entity}' can only be read. Write to a queue or a topic.")

    def _parsed(self) -> SourceOptions:
        if self.is_on_connect or os.environ.get(_ARTIFACTS, _CLASSIC) != _CLASSIC:
            refuse_written_secrets(self.options if self.of_query is None else self.of_query)
        return parse_options(self.options, self.settings)
