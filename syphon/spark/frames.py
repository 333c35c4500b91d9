"""The backlog and the ledger as DataFrames, in any session (X6)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from syphon.backlog import select_queues
from syphon.config import Config, load_config
from syphon.ledger import Ledger

from .backlog_rows import backlog_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def backlog(
    spark: SparkSession, config: Config | Path | str, *, pairs: Sequence[str] = (), queues: Sequence[str] = ()
) -> DataFrame:
    """The messages that wait in the backlog queues, with where a drain would send them: the rows of `syphon inspect`.

    `config` is a settings file, or what `load_config` made of one; `pairs` and `queues` choose some, as the options of
    the command do. Each evaluation peeks again: persist the frame to query it twice. Nothing is received or changed.
    """
    settings = config if isinstance(config, Config) else load_config(Path(config))
    return backlog_frame(spark, select_queues(settings.pairs, pairs, queues))


def ledger(spark: SparkSession, path: str | Path, table: Literal["transfers", "attempts"] = "transfers") -> DataFrame:
    """A table of the ledger: a row for each transfer, or for each attempt of a task and queue. It may be written to
    meanwhile; every row is there once. Raises LedgerUnreadable.
    """
    found = Ledger(spark, str(path))
    return found.transfers() if table == "transfers" else found.attempts()
