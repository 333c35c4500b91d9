"""The backlog and the ledger as DataFrames, in any session (X6)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from syphon.backlog import select_queues
from syphon.config import Config, config_from, load_config
from syphon.ledger import Ledger
from syphon.spark import access_to

from .backlog_rows import backlog_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def backlog(
    spark: SparkSession,
    config: str | os.PathLike[str] | Mapping[str, Any] | Config,
    *,
    pairs: Sequence[str] = (),
    queues: Sequence[str] = (),
) -> DataFrame:
    """The messages that wait in the backlog queues, with where a drain would send them: the rows of `syphon inspect`.

    `config` is a settings file, its content as a dict, or a `Config`; `pairs` and `queues` choose some, as the options
    of the command do. Each evaluation peeks again: persist the frame to query it twice. Nothing is received or changed.
    """
    selected = select_queues(settings_of(config).pairs, pairs, queues)
    access_to(spark).ship()
    return backlog_frame(spark, selected)


def settings_of(config: str | os.PathLike[str] | Mapping[str, Any] | Config) -> Config:
    """The settings that a program gives: a file, its content, or settings that were read before."""
    if isinstance(config, Config):
        return config
    return config_from(config) if isinstance(config, Mapping) else load_config(Path(config))


def ledger(spark: SparkSession, path: str | Path, table: Literal["transfers", "attempts"] = "transfers") -> DataFrame:
    """A table of the ledger: a row for each transfer, or for each attempt of a task and queue. It may be written to
    meanwhile; every row is there once. Raises LedgerUnreadable.
    """
    found = Ledger(spark, str(path))
    return found.transfers() if table == "transfers" else found.attempts()
