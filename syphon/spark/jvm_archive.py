"""The archive of the driver's JVM: Spark's classes, loaded and checked once, for all later starts to map into memory.

Half of Spark's start, in time and in CPU, is Java loading the same thirteen thousand classes. Java can write them to a
file: an archive of class data (Java 17 to 24), or a cache of the ahead-of-time compiler (from Java 25). The file
belongs to one Java and one set of jars. Java passes over a file that does not fit, so that a wrong one costs nothing.

The first command that starts Spark has the file made in the background, by a process of its own with the lowest
priority. Nothing waits for it, and nothing fails without it. By hand:

    python -m syphon.spark.jvm_archive

This starts Spark once, does what a drain does, and lets Java write its classes. Java writes the file when it exits, and
takes half a minute for it. It must end by itself, so it has minutes here.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from syphon.config import PipelineSettings

from .container_limits import this_container
from .java import java_in_use

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SWITCH = "SYPHON_JVM_ARCHIVE"
"""`off`: neither use nor make an archive; `use`: use an existing one, and make none."""
FOLDER = "SYPHON_CACHE"
"""The folder of archives, if it is not the user's own cache folder."""
NEEDS_MEMORY = 3 * 1024**3
"""Memory that this process must have to make an archive beside a worker: another Spark runs for a minute."""
RETRY_AFTER = 24 * 3600.0
"""Seconds until the next attempt to make an archive that could not be made."""
AS_IT_IS = "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
"""Maps the archive to the address that it was made for. Java 17.0.15 moves it to another one: for that it reads and
changes all of it at each start, and the worker keeps 150 MB more."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
FIRST_AOT = 25
"""The first Java with a cache of the ahead-of-time compiler that one run can write."""
WRITTEN_WITHIN = 900.0
"""Seconds that Spark's end may take, most of it for the file: half a minute on a machine with nothing else to do."""
AFTER = 20.0
"""Seconds that it waits in the background: the command that started it has better use for the cores at first."""
LOWEST_PRIORITY = 19
UNUSED_FOR = 30 * 24 * 3600.0
"""Seconds after which an archive is removed: its Java or its jars may be gone."""


_distrusted: set[Path] = set()
"""Archives with which Spark did not start in this process: the next attempt goes without."""


def distrust(java_options: str) -> None:
    """Spark has not started with these options: a damaged archive may be the cause."""
    found = re.search(r"-XX:(?:AOTCache|SharedArchiveFile)=(\S+)", java_options)
    if found is not None:
        _distrusted.add(Path(found[1]))


def options_for(java_options: str, environ: Mapping[str, str] = os.environ) -> str:
    """The options of the JVM, with the archive if one exists."""
    archive = archive_file(environ)
    if archive is None or not archive.exists() or archive.resolve() in _distrusted:
        return java_options
    archive = archive.resolve()  # a link on the way could be changed between this check and Java's
    if not (is_ours(archive) and is_ours(archive.parent)):  # Java runs the classes in it as they are
        return java_options
    if re.search(r"\s|['\"]", str(archive)):  # Spark would take it for two options
        return java_options
    use = "-XX:AOTCache" if archive.suffix == ".aot" else "-XX:SharedArchiveFile"
    return f"{java_options} {AS_IT_IS} {use}={archive}"


def make_in_background(environ: Mapping[str, str] = os.environ) -> None:
    """Has the archive made, unless it exists, is being made, could not be made today, or must not be made here."""
    archive = archive_file(environ)
    if archive is None or environ.get(SWITCH) == "use" or archive.exists() or this_container().memory < NEEDS_MEMORY:
        return
    if archive.parent.exists() and not is_ours(archive.parent):
        log.debug("no archive of Spark's JVM is used: others can write to %s", archive.parent)
        return
    failed = archive.with_suffix(".failed")
    if failed.exists() and time.time() - failed.stat().st_mtime < RETRY_AFTER:
        return
    try:
        maker = subprocess.Popen(
            [sys.executable, "-P", "-m", "syphon.spark.jvm_archive", "--in-background"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as error:
        log.debug("cannot create the archive of Spark's JVM: %s", error)
        return
    log.debug("creating %s in the background: it halves the next start of Spark", archive)
    threading.Thread(target=maker.wait, name="archive maker", daemon=True).start()


def archive_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where the archive of this Java and these jars is, or will be; None if there can be none."""
    folder = _folder(environ)
    if environ.get(SWITCH) == "off" or folder is None:
        return None
    home, version = java_in_use(environ)
    if home is None:
        return None
    return folder / f"jvm-{_fingerprint(home, environ)}.{'aot' if version >= FIRST_AOT else 'jsa'}"


def _folder(environ: Mapping[str, str]) -> Path | None:
    if environ.get(FOLDER):
        return Path(environ[FOLDER])
    if environ.get("XDG_CACHE_HOME"):
        return Path(environ["XDG_CACHE_HOME"]) / "syphon"
    try:
        return Path.home() / ".cache" / "syphon"
    except RuntimeError:  # a user without an entry in the list of users
        return None


def _fingerprint(java_home: Path, environ: Mapping[str, str]) -> str:
    """Names this Java, Spark's jars and the folder of its settings: they are the class path."""
    spark_home = _spark_home(environ)
    parts = [str(java_home), str(spark_home), environ.get("SPARK_CONF_DIR", "")]
    for file in (java_home / "release", java_home / "lib" / "modules", *sorted((spark_home / "jars").glob("*.jar"))):
        try:
            status = file.stat()
        except OSError:
            continue
        parts.append(f"{file.name} {status.st_size} {int(status.st_mtime)}")  # layers of an image keep whole seconds
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _spark_home(environ: Mapping[str, str]) -> Path:
    from importlib.util import find_spec

    if environ.get("SPARK_HOME"):
        return Path(environ["SPARK_HOME"])
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else Path()


def is_ours(place: Path) -> bool:
    """Whether only this user or root can write a file or folder, and put another in its place.

    So no other user may own or write a folder on the way to it. A folder such as /tmp may be on the way: there,
    users can rename only what is theirs.
    """
    try:
        status, *above = [step.stat() for step in (place.resolve(), *place.resolve().parents)]
    except OSError:
        return False
    return (
        not status.st_mode & OTHERS_WRITE
        and all(each.st_mode & stat.S_ISVTX or not each.st_mode & OTHERS_WRITE for each in above)
        and {each.st_uid for each in (status, *above)} <= {0, os.geteuid()}
    )


# --- making it -------------------------------------------------------------------------------------------------------


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
    from .classic import SMALL_JVM, start_session, stop_session  # they import this module
    from .session import spark_settings

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
    from .jobs import run_tasks
    from .task import warm_up

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
