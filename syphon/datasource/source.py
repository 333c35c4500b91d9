"""The data source `servicebus`: Service Bus entities as tables and streams of Spark (X6), and its registration.

Spark may write down the options that a query names: a server of Spark Connect has them, as text, in its event log and
on its pages. Options that `register_source` gets travel inside the pickled class, and are written down nowhere. So that
is the place for secrets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from syphon.config import ConfigLike, PairSettings, settings_of
from syphon.model import SyphonError
from syphon.spark import access_to, is_connect

from .columns import BODY, COLUMNS, check_written, ddl
from .source_options import (
    ENTITY,
    SOURCE,
    BadSourceOptions,
    SourceOptions,
    Start,
    named_as_here,
    names_a_namespace,
    parse_options,
    refuse_written_secrets,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter
    from pyspark.sql.types import StructType

    from .read import BatchReader
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
        from .read import BatchReader

        options = self._parsed()
        if options.behaviour.consume:
            raise BadSourceOptions(f"{SOURCE}: consume is for streams. A table is peeked at, and changes nothing.")
        if options.behaviour.starting_offsets is Start.LATEST:
            raise BadSourceOptions(f"{SOURCE}: a table has no messages after the latest. Leave out startingOffsets.")
        return BatchReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from .write import BatchWriter

        return BatchWriter(self._checked(schema, overwrite))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from .read import stream_reader

        options = self._parsed()
        if options.behaviour.last is not None or options.behaviour.ending_offsets is not Start.LATEST:
            raise BadSourceOptions(f"{SOURCE}: a stream has no end. Leave out last and endingOffsets, or read a table.")
        return stream_reader(options, schema)

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


def register_source(
    spark: SparkSession,
    config: ConfigLike | None = None,
    *,
    name: str = SOURCE,
    **options: object,
) -> None:
    """Registers the data source in a session, and makes the code of syphon available to the session's tasks.

    `config` is a settings file, its content as a dict, or a `Config`. It is read here: queries name a `pair` of it, and
    its `side`. `options` are those of docs/spark.md, for every read and write. A query may give another value for each
    of them, but cannot remove one: another `name` registers the source for another namespace. Raises BadSourceOptions.
    """
    pairs = () if config is None else tuple(settings_of(config).pairs)
    given = named_as_here({key: str(value) for key, value in options.items()})
    _check_registered(given, pairs)
    if is_connect(spark):
        from syphon.spark import warn_of_plain_connection

        warn_of_plain_connection(spark)
    access_to(spark).ship()
    spark.dataSource.register(source_with(name, given, pairs, is_connect(spark)))


def _check_registered(given: Mapping[str, str], pairs: Sequence[PairSettings]) -> None:
    """Raises BadSourceOptions for mistakes. Options that a query may add count as given: entity, namespace, pair."""
    later = {ENTITY: "any"}
    if pairs:
        later["pair"] = pairs[0].name
    elif not names_a_namespace(given) and "config" not in given:
        later["namespace"] = "any.servicebus.windows.net"
    parse_options({**later, **given}, pairs)


def source_with(
    its_name: str, given: Mapping[str, str], pairs: Sequence[PairSettings] = (), on_connect: bool = False
) -> type[ServiceBusDataSource]:
    """A data source that has these options. Its class is pickled by value, because no module has it."""

    class Registered(ServiceBusDataSource):
        settings = tuple(pairs)
        is_on_connect = on_connect

        def __init__(self, options: Mapping[str, str]) -> None:
            of_query = named_as_here(options)
            super().__init__({**given, **of_query})
            self.of_query = frozenset(of_query)

        @classmethod
        def name(cls) -> str:
            return its_name

    return Registered
