"""The archive of the driver's JVM: Spark's classes, loaded and checked once, for all later starts to map into memory.

Half of Spark's start, in time and in CPU, is Java loading the same thirteen thousand classes. Java can write them to a
file: an archive of class data (Java 17 to 24), or a cache of the ahead-of-time compiler (from Java 25). The file
belongs to one Java and one set of jars. Java passes over a file that does not fit, so that a wrong one costs nothing.

The first command that starts Spark has the file made in the background, by a process of its own with the lowest
priority (`jvm_archive_maker`). Nothing waits for it, and nothing fails without it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from .container_limits import this_container
from .java import java_in_use

log = logging.getLogger(__name__)

SWITCH = "SYPHON_JVM_ARCHIVE"
"""`off`: neither use nor make an archive; `use`: use one that is there, and make none."""
FOLDER = "SYPHON_CACHE"
"""The folder of archives, if it is not the user's own cache folder."""
NEEDS_MEMORY = 3 * 1024**3
"""Memory that must be there to make an archive beside a worker: another Spark runs for a minute."""
TRY_AGAIN_AFTER = 24 * 3600.0
"""Seconds until an archive is tried again that could not be made."""
AS_IT_IS = "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
"""Maps the archive to the address that it was made for. Java 17.0.15 moves it to another one: for that it reads and
changes all of it at each start, and the worker keeps 150 MB more."""
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
FIRST_AOT = 25
"""The first Java with a cache of the ahead-of-time compiler that one run can write."""


def options_for(java_options: str, environ: Mapping[str, str] = os.environ) -> str:
    """The options of the JVM, with the archive if there is one."""
    archive = archive_file(environ)
    if archive is None or not archive.exists():
        return java_options
    archive = archive.resolve()  # a link on the way could be changed between this look and Java's
    if not (is_ours(archive) and is_ours(archive.parent)):  # Java runs the classes in it as they are
        return java_options
    if re.search(r"\s|['\"]", str(archive)):  # Spark would take it for two options
        return java_options
    use = "-XX:AOTCache" if archive.suffix == ".aot" else "-XX:SharedArchiveFile"
    return f"{java_options} {AS_IT_IS} {use}={archive}"


def make_in_background(environ: Mapping[str, str] = os.environ) -> None:
    """Has the archive made, unless it is there, is being made, could not be made today, or must not be made here."""
    archive = archive_file(environ)
    if archive is None or environ.get(SWITCH) == "use" or archive.exists() or this_container().memory < NEEDS_MEMORY:
        return
    if archive.parent.exists() and not is_ours(archive.parent):
        log.debug("there is no archive of Spark's JVM: others can write to %s", archive.parent)
        return
    failed = archive.with_suffix(".failed")
    if failed.exists() and time.time() - failed.stat().st_mtime < TRY_AGAIN_AFTER:
        return
    try:
        maker = subprocess.Popen(
            [sys.executable, "-P", "-m", "syphon.spark.jvm_archive_maker", "--in-background"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,
        )
    except OSError as error:
        log.debug("the archive of Spark's JVM is not made: %s", error)
        return
    log.debug("%s is made in the background: it halves the next start of Spark", archive)
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
