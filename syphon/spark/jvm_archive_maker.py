"""Makes the archive of the driver's JVM: starts Spark once, does what a drain does, and lets Java write its classes.

    python -m syphon.spark.jvm_archive_maker

Java writes the file when it exits, and takes half a minute for it. It must end by itself, so it has minutes here.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from syphon.config import PipelineSettings

from .jvm_archive import archive_file, is_ours
from .session import SMALL_JVM, spark_settings, start_session, stop_session
from .task import warm_up
from .task_runner import run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

WRITTEN_WITHIN = 900.0
"""Seconds that Spark's end may take, most of it for the file: half a minute on a machine with nothing else to do."""
AFTER = 20.0
"""Seconds that it waits in the background: the command that started it has better use for the cores at first."""
LOWEST_PRIORITY = 19
UNUSED_FOR = 30 * 24 * 3600.0
"""Seconds after which an archive is removed: its Java or its jars may be gone."""


def make(archive: Path) -> str:
    """Makes the archive. Returns why it could not be made; an empty text if it was."""
    try:
        for folder in reversed((archive.parent, *archive.parent.parents)):
            folder.mkdir(mode=0o700, exist_ok=True)
        if not is_ours(archive.parent):  # a link there, made by another user, would have us write to the link's target
            return f"others can write to {archive.parent}"
        with _alone(archive.parent) as alone:
            if not alone:
                return "another process makes it"
            if archive.exists():
                return ""
            _remove_old(archive.parent)
            return _make(archive)
    except OSError as error:
        return str(error)


def _make(archive: Path) -> str:
    unfinished = archive.with_name(f"{archive.name}.{os.getpid()}.unfinished")
    write = "-XX:AOTCacheOutput" if archive.suffix == ".aot" else "-XX:ArchiveClassesAtExit"
    # To the driver's JVM alone: through JDK_JAVA_OPTIONS, Spark's launcher would write the file.
    options = {"spark.driver.extraJavaOptions": f"{SMALL_JVM} {write}={unfinished}"}
    settings = spark_settings(PipelineSettings(master="local[2]"), "syphon") | options
    try:
        with tempfile.TemporaryDirectory(prefix="syphon-") as folder:
            session = start_session(settings, Path(folder))
            try:
                rehearse(session, Path(folder))
            finally:
                stop_session(session, WRITTEN_WITHIN)
        if not unfinished.exists():
            why = "Java wrote none"
            archive.with_suffix(".failed").write_text(why)
            return why
        unfinished.chmod(0o600)
        unfinished.replace(archive)
        return ""
    finally:
        unfinished.unlink(missing_ok=True)


def rehearse(spark: SparkSession, folder: Path) -> None:
    """Does what a drain, a report and an inspection do, so that their classes are loaded."""
    run_tasks(spark, warm_up, 1)
    rows = spark.range(0, 1, 1, 1).mapInArrow(_pass_on, "id long").persist()
    rows.write.parquet(str(folder / "rows"))
    rows.unpersist()
    spark.read.parquet(str(folder / "rows")).createOrReplaceTempView("rows")
    spark.sql("select id, count(*) as count from rows group by id order by id").collect()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether this is the only process that makes an archive here. The lock ends with the process."""
    with (folder / "making.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _remove_old(folder: Path) -> None:
    for file in folder.glob("jvm-*"):
        with suppress(OSError):
            if file.suffix == ".unfinished" or time.time() - file.stat().st_atime > UNUSED_FOR:
                file.unlink()


def main() -> int:
    if "--in-background" in sys.argv[1:]:
        os.nice(LOWEST_PRIORITY)
        time.sleep(AFTER)
    archive = archive_file()
    if archive is None:
        sys.stderr.write("There is no folder or no Java for an archive of Spark's JVM.\n")
        return 1
    began = time.monotonic()
    why = make(archive)
    if why:
        sys.stderr.write(f"{archive} was not made: {why}\n")
        return 1
    sys.stderr.write(f"{archive}: {archive.stat().st_size / 1e6:,.0f} MB, {time.monotonic() - began:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
