"""`syphon.report`: reads from the ledger what happened to every message."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from syphon.config import ConfigLike, PipelineSettings, settings_of
from syphon.ledger import Ledger, LedgerUnreadable, LocalReader, Period, Report, RunRecord, SparkReader, query_report
from syphon.model import InvalidOption
from syphon.option_declarations import Moment, read_moment
from syphon.spark import CONNECT, active_session, cores_of, is_connect, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "16m",
}
"""A worker gets little memory, because it waits most of the time; a report works, and ends. Each of its tasks has the
rows of its messages in memory: about half a million with this size. Settings of the operator override these."""
DEFAULT_FILES = "spark.hadoop.fs.defaultFS"
"""The setting that gives paths without a scheme another file system than that of this machine."""


def report(
    config: ConfigLike | None = None,
    spark: SparkSession | None = None,
    *,
    ledger: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    pair: str | None = None,
) -> Report:
    """What happened to every message, from the ledger of the settings or from `ledger`.

    `since` and `until` are `--from` and `--to` of `syphon report`. A small ledger on this machine is read without
    Spark. `report.complete` says whether every message on record has arrived. Raises LedgerUnreadable.
    """
    if config is None and ledger is None:
        raise InvalidOption("Which ledger? Pass the worker's settings, or ledger=PATH.")
    if config is None:
        pipeline = PipelineSettings(ledger=ledger or "")
    else:
        settings = settings_of(config)
        names = [each.name for each in settings.pairs]
        if pair is not None and pair not in names:
            raise InvalidOption(f"There is no pair '{pair}' in the settings; its pairs are: {', '.join(names)}.")
        update = {} if ledger is None else {"ledger": ledger}
        pipeline = settings.pipeline.model_copy(update=update)
    begin = None if since is None else read_moment(since)
    end = None if until is None else read_moment(until, ends_a_period=True)
    check_period(begin, end)
    if ledger is not None and is_local(pipeline, spark or active_session()) and not Path(ledger).is_dir():
        raise LedgerUnreadable(f"There is no ledger at {Path(ledger).absolute()}.")
    return ask_ledger(pipeline, begin, end, pair, spark)


def check_period(since: datetime | None, until: datetime | None) -> None:
    """Raises InvalidOption for a period that ends before it begins."""
    if since is not None and until is not None and since >= until:
        raise InvalidOption(f"--from {since:%Y-%m-%dT%H:%M:%SZ} is not before --to {until:%Y-%m-%dT%H:%M:%SZ}.")


def is_local(pipeline: PipelineSettings, session: SparkSession | None = None) -> bool:
    """Whether the ledger is in a folder of this machine, given without a scheme.

    On a cluster a path without a scheme may be on a file system that only Spark knows: an existing session decides, as
    it does for the drain that writes the ledger. With Spark Connect the ledger is on this machine.
    """
    has_scheme = re.match(r"[A-Za-z][\w+.-]*:", pipeline.ledger)
    if session is not None:
        return not has_scheme and Ledger(session, pipeline.ledger).is_local
    is_ours = cores_of(pipeline.master) is not None or pipeline.master.startswith(CONNECT)
    return not has_scheme and is_ours and DEFAULT_FILES not in pipeline.spark


def ask_ledger(
    pipeline: PipelineSettings,
    since: datetime | None,
    until: datetime | None,
    pair: str | None,
    spark: SparkSession | None = None,
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Report:
    """Query the ledger. `waiting` is entered while Spark reads a large one."""
    reader = LocalReader(pipeline.ledger) if is_local(pipeline, spark or active_session()) else None
    if reader is not None and (reader.is_small() or pipeline.master.startswith(CONNECT)):
        return query_report(reader, Period(since, until), pair)
    settings = {key: SecretStr(value) for key, value in SPARK_SETTINGS.items()} | pipeline.spark
    with waiting(), spark_session(pipeline.model_copy(update={"spark": settings}), given=spark) as session:
        if reader is not None and is_connect(session):
            return query_report(reader, Period(since, until), pair)  # the server has other disks
        return query_report(SparkReader(Ledger(session, pipeline.ledger)), Period(since, until), pair)


def past_runs(
    pipeline: PipelineSettings,
    since: datetime | None,
    until: datetime | None,
    pair: str | None,
    waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[list[RunRecord], list[str]]:
    """The drains on record that began in a period, the newest first, and the files that cannot be read."""
    if is_local(pipeline, active_session()) or pipeline.master.startswith(CONNECT):
        found, broken = LocalReader(pipeline.ledger).runs()
    else:
        with waiting(), spark_session(pipeline) as session:
            found, broken = Ledger(session, pipeline.ledger).runs()
    chosen = [
        run
        for run in found
        if (since is None or run.started_at >= since)
        and (until is None or run.started_at < until)
        and (pair is None or pair in run.pairs)
    ]
    return chosen, broken
