"""Registers the data source in a session, together with options that all its reads and writes then have.

Options that a query names may be written down by Spark: a server of Spark Connect has them, as text, in its event log
and on its pages. Options that are given here travel inside the pickled class, and are written down nowhere. So this is
the place for secrets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syphon.config import Config, PairSettings
from syphon.spark import access_to, is_connect

from .dataframes import settings_of
from .options import ENTITY, SOURCE, names_a_namespace, parse_options
from .source import ServiceBusDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_source(
    spark: SparkSession,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
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
    given = {key.lower(): str(value) for key, value in options.items()}
    _check(given, pairs)
    if is_connect(spark):
        from syphon.spark import warn_of_plain_connection

        warn_of_plain_connection(spark)
    access_to(spark).ship()
    spark.dataSource.register(source_with(name, given, pairs, is_connect(spark)))


def _check(given: Mapping[str, str], pairs: Sequence[PairSettings]) -> None:
    """Raises BadSourceOptions for mistakes. What a query may still name counts as named: entity, namespace and pair."""
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
            super().__init__({**given, **{key.lower(): value for key, value in options.items()}})
            self.of_query = frozenset(key.lower() for key in options)

        @classmethod
        def name(cls) -> str:
            return its_name

    return Registered
