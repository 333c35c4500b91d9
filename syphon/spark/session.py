"""The Spark session: one that syphon starts, or one that exists already, as on a managed cluster or in a notebook."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from syphon.config import PipelineSettings, SlotReports
from syphon.control import Ending, Step
from syphon.ledger import check_ledger_path
from syphon.model import SyphonError, first_line, plural

from . import jvm_archive
from .classic import SMALL_JVM, Launch, start_session
from .security import MASKED, PRIVATE, security_settings
from .session_access import CONNECT, TASK_FAILURES, access_to, cores_of, is_connect, spark_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("syphon.spark")

LARGEST_DIRECT_RESULT = 64
"""MiB of rows that a task sends to the driver when it ends: more than a slot of a worker usually has. With Spark's own
limit of one, larger rows would stay on the executor until the driver fetches them, and be lost with it. Spark sends at
most `spark.rpc.message.maxSize` (128) in this way."""


class SparkUnusable(SyphonError):
    """Spark has settings that a transfer must not run with."""


def spark_settings(pipeline: PipelineSettings, name: str) -> dict[str, str]:
    """All settings of the session: those of syphon, overridden by those of the operator."""
    settings = {
        "spark.master": spark_master(pipeline.master),
        "spark.app.name": name,
        "spark.scheduler.mode": "FAIR",  # a queue does not wait for the end of the job of another queue
        "spark.speculation": "false",  # a second copy of a pump would be a second receiver
        "spark.task.maxFailures": str(TASK_FAILURES),
        "spark.task.maxDirectResultSize": f"{LARGEST_DIRECT_RESULT}m",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": SMALL_JVM,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        # Spark passes this to Python workers by their environment: with it, Spark would start a second daemon.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # Only `inspect` persists rows, and only while it runs: compressing them would cost CPU time.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.redaction.regex": MASKED,
        # For a ledger on a file system of Hadoop: otherwise all may read it, whatever the umask says.
        "spark.hadoop.fs.permissions.umask-mode": f"{_umask():03o}",
        "spark.pyspark.python": sys.executable,
    }
    if cores_of(pipeline.master) is not None:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.daemon.module": "syphon.spark.daemon",
        }
    chosen = {key: value.get_secret_value() for key, value in pipeline.spark.items()}
    security = security_settings(pipeline.master, cores_of(pipeline.master) is not None, chosen)
    return settings | security | chosen


def _umask() -> int:
    """The umask of this process. It can be read only by setting it: for that moment it is the strictest one."""
    before = os.umask(PRIVATE)
    os.umask(before)
    return before


def active_session() -> SparkSession | None:
    """The session that this process has already, as in a notebook."""
    if sys.modules.get("pyspark") is None:
        return None
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


@contextmanager
def spark_session(
    pipeline: PipelineSettings,
    name: str = "syphon",
    ending: Ending | None = None,
    given: SparkSession | None = None,
    launch: Launch | None = None,
) -> Iterator[SparkSession]:
    """A Spark session. A given or an active one is used as it is, and keeps running afterwards.

    With `launch`, another thread may end the start.
    """
    existing = given or active_session()
    with tempfile.TemporaryDirectory(prefix="syphon-", ignore_cleanup_errors=True) as folder:
        session = existing or _started(pipeline, name, Path(folder), launch)
        access = access_to(session)
        try:
            access.ship()
            yield session
        finally:
            if existing is None:
                access.stop((ending or Ending()).left_for(Step.SPARK))


def _started(pipeline: PipelineSettings, name: str, folder: Path, launch: Launch | None) -> SparkSession:
    if pipeline.master.startswith(CONNECT):
        from .connect import connect_session

        return connect_session(pipeline)
    session = start_session(spark_settings(pipeline, name), folder, launch)
    jvm_archive.make_in_background()
    return session


def prepare_start(pipeline: PipelineSettings) -> None:
    """Has the archive of the JVM made, so that a later start takes half the time. Spark Connect has no JVM here."""
    if not pipeline.master.startswith(CONNECT):
        jvm_archive.make_in_background()


def check_start(pipeline: PipelineSettings) -> str:
    """Starts Spark, runs a task and stops it. Returns what that shows; raises SyphonError if it fails."""
    from .jobs import run_tasks
    from .task import warm_up

    began = time.monotonic()
    with spark_session(pipeline, "syphon check") as session:
        check_session(session)
        check_ledger_path(session, pipeline.ledger)
        started = time.monotonic()
        try:
            run_tasks(session, warm_up, 1)
        except SyphonError:
            raise
        except Exception as error:
            raise SparkUnusable(f"Spark starts, but runs no task: {first_line(str(error))}") from error
        slots, ran = access_to(session).most_slots(), time.monotonic()
        reach = _check_reach(session, pipeline, slots)
    return f"starts in {started - began:.1f} s, runs a task in {ran - started:.1f} s; {plural(slots, 'slot')}{reach}"


def _check_reach(session: SparkSession, pipeline: PipelineSettings, slots: int) -> str:
    """Whether as many tasks as run at once reach the control server, which would be on this machine."""
    from syphon.control import ControlServer

    from .jobs import run_tasks
    from .task import reach_task

    if pipeline.slot_reports is not SlotReports.LIVE:
        return ", which report with their results"
    with ControlServer(*access_to(session).control_host(pipeline)) as server:
        failures = run_tasks(session, reach_task(server.address), slots)
    if failures:
        raise SparkUnusable(f"{len(failures)} of {plural(slots, 'slot')}: {failures[0].decode()}")
    return ", which reach the driver"


def session_for_queries(session: SparkSession) -> SparkSession:
    """A session beside this one, with views of its own and times in UTC. Only a classic session has one."""
    if is_connect(session):
        raise SparkUnusable(
            "Queries on the backlog need a classic session: syphon checks on Spark's plan that a query only reads, and "
            "Spark Connect runs commands before it shows a plan. Ask for the rows as a DataFrame instead "
            "(syphon.datasource.backlog), and write queries of your own on it."
        )
    beside = session.newSession()
    beside.conf.set("spark.sql.session.timeZone", "UTC")
    return beside


def check_session(session: SparkSession) -> None:
    """Refuses a session that would run a slot twice at once. Warns of a cluster that hands out keys."""
    setting = access_to(session).setting

    def is_on(name: str) -> bool:
        return setting(name, "false").strip().lower() == "true"  # Spark reads `TRUE` as well

    if is_on("spark.speculation"):
        raise SparkUnusable(
            "Spark's session has spark.speculation on: Spark would run a second copy of a slot beside the first, and "
            "both would receive. Set spark.speculation to false where the session is made, and start again."
        )
    if is_connect(session):
        from .connect import warn_of_plain_connection

        warn_of_plain_connection(session)
        return
    if not is_on("spark.authenticate") and cores_of(setting("spark.master", "local")) is None:
        log.warning(
            "Spark's session has no authentication: anyone on the network between driver and executors can read "
            "connection strings. Set spark.authenticate, and the other settings that docs/clusters.md names"
        )
