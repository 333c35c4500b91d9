"""The files of a ledger: written as a whole or not at all, on this machine or wherever Spark can write.

A file is written under `_writing` and moved to its place in one step, so a reader never sees a part of it. Files on
this machine are plain files: they can be written while Spark is busy, and after it has ended. All others go through
Hadoop's file systems, in the JVM of Spark's driver. New files have the permissions that the umask gives them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar
from uuid import uuid4

from syphon.durable_files import sync_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")

_WRITING = "_writing"
NOT_WRITABLE = "Spark Connect can write a ledger only to a path of this machine, as in ./ledger or a mounted share"


class LedgerFiles(Protocol):
    """Files in folders below the ledger's path. Every method raises OSError. A place is `folder/name`."""

    progress_every: float
    """Seconds between two records of a running job's progress."""

    def put(self, place: str, content: bytes, durable: bool = True) -> None:
        """Writes a whole file in one step, or replaces it. A durable file survives a power cut after that."""

    def read(self, place: str) -> bytes: ...

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, which may not exist."""

    def delete(self, folder: str, names: Sequence[str]) -> None:
        """Deletes files, which may not exist. They stay deleted after a power cut."""


def ledger_files(session: Callable[[], Any], path: str) -> LedgerFiles:
    """The files of a ledger at a path as Spark understands it: it may be relative, or have a scheme.

    `session` returns the current session: a worker starts Spark several times.
    With Spark Connect a path without a scheme is on this machine, and others can be read, but not written.
    """
    local = local_path(path)
    if has_no_jvm(session()):
        return ReadOnlyFiles(session, path) if local is None else LocalFiles(local)
    if local is None or (local == path and not _default_is_local(session())):
        return HadoopFiles(session, path)
    return LocalFiles(local)


def has_no_jvm(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect: this process cannot reach the JVM of its driver."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def local_path(path: str) -> str | None:
    """The path on this machine that a path means to Spark; None if it has the scheme of another file system."""
    scheme = re.match(r"([A-Za-z][\w+.-]*):", path)
    if scheme is None:
        return path
    return re.sub(r"^[^:]*:(?://[^/]*)?", "", path) if scheme[1].lower() == "file" else None


def _default_is_local(spark: SparkSession) -> bool:
    """Whether a path without a scheme is on this machine: on a cluster it may be anywhere."""
    from py4j.protocol import Py4JError

    try:
        default = spark._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")
    except (Py4JError, OSError, AttributeError) as error:
        raise OSError(cause(error)) from error
    return str(default).startswith("file:")


class LocalFiles:
    """Plain files on this machine."""

    progress_every = 5.0

    def __init__(self, root: str) -> None:
        self._root = Path(root).absolute()

    def put(self, place: str, content: bytes, durable: bool = True) -> None:
        target, own = self._root / place, self._root / _WRITING / uuid4().hex
        own.parent.mkdir(parents=True, exist_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with own.open("xb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            own.replace(target)
        except BaseException:
            with suppress(OSError):
                own.unlink()
            raise
        if durable:
            _sync_folder(target.parent)

    def read(self, place: str) -> bytes:
        return (self._root / place).read_bytes()

    def names(self, folder: str) -> list[str]:
        with suppress(FileNotFoundError):
            return [entry.name for entry in os.scandir(self._root / folder) if entry.is_file()]
        return []

    def delete(self, folder: str, names: Sequence[str]) -> None:
        for name in names:
            (self._root / folder / name).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            _sync_folder(self._root / folder)


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive a power cut. Some file systems cannot, and need not."""
    try:
        sync_folder(folder)
    except FileNotFoundError:
        raise
    except OSError:
        return


def _as_os_error(method: Callable[P, T]) -> Callable[P, T]:
    """Raises errors of the JVM, and of the connection to it, as OSError."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        from py4j.protocol import Py4JError

        try:
            return method(*args, **kwargs)
        except (Py4JError, AttributeError, TypeError) as error:  # the last two: the session has been stopped
            raise OSError(cause(error)) from error

    return call


class HadoopFiles:
    """Files on any file system that Hadoop knows, through the JVM of Spark's driver."""

    progress_every = 20.0
    """Longer than for plain files: storage in a cloud charges for each write."""

    def __init__(self, session: Callable[[], Any], root: str) -> None:
        self._session, self._root = session, root

    @_as_os_error
    def put(self, place: str, content: bytes, durable: bool = True) -> None:  # noqa: ARG002
        files, path = self._hadoop()
        target, own = path(f"{self._root}/{place}"), path(f"{self._root}/{_WRITING}/{uuid4().hex}")
        try:
            stream = files.create(own, False)
            try:
                stream.write(bytearray(content))
            finally:
                stream.close()
            files.mkdirs(target.getParent())
            # Most of these file systems do not replace a file by moving another one to its place.
            if not files.rename(own, target) and not (files.delete(target, False) and files.rename(own, target)):
                raise OSError(f"{own} cannot be moved to {target}")
        except BaseException:
            with suppress(Exception):
                files.delete(own, False)
            raise

    @_as_os_error
    def read(self, place: str) -> bytes:
        files, path = self._hadoop()
        stream = files.open(path(f"{self._root}/{place}"))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    @_as_os_error
    def names(self, folder: str) -> list[str]:
        files, path = self._hadoop()
        place = path(f"{self._root}/{folder}")
        found = files.listStatus(place) if files.exists(place) else ()
        return [str(each.getPath().getName()) for each in found if each.isFile()]

    @_as_os_error
    def delete(self, folder: str, names: Sequence[str]) -> None:
        files, path = self._hadoop()
        for name in names:
            place = path(f"{self._root}/{folder}/{name}")
            if not files.delete(place, False) and files.exists(place):
                raise OSError(f"{place} cannot be deleted")

    def _hadoop(self) -> tuple[Any, Any]:
        """The file system of the ledger, and Hadoop's class for paths."""
        spark = self._session()
        if spark is None:
            raise OSError("Spark does not run; what is missing is written when it does")
        path = spark._jvm.org.apache.hadoop.fs.Path
        return path(self._root).getFileSystem(spark._jsc.hadoopConfiguration()), path


class ReadOnlyFiles:
    """Files that a Spark Connect server reads for this process. Connect has no way to write, move or delete a file."""

    progress_every = 20.0

    def __init__(self, session: Callable[[], Any], root: str) -> None:
        self._session, self._root = session, root

    def read(self, place: str) -> bytes:
        found = self._rows(place).select("content").collect()
        if not found:
            raise FileNotFoundError(place)
        return bytes(found[0][0])

    def names(self, folder: str) -> list[str]:
        return [str(row[0]).rpartition("/")[2] for row in self._rows(folder).select("path").collect()]

    def _rows(self, place: str) -> Any:
        from pyspark.errors import AnalysisException, PySparkException

        path = literal_path(f"{self._root}/{place}")
        try:
            rows = self._session().read.format("binaryFile").load(path)
            _ = rows.columns  # Connect checks the path only now
        except AnalysisException as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise OSError(cause(error)) from error
            return self._session().createDataFrame([], "path string, content binary")
        except PySparkException as error:
            raise OSError(cause(error)) from error
        return rows

    def put(self, place: str, content: bytes, durable: bool = True) -> None:  # noqa: ARG002
        raise OSError(NOT_WRITABLE)

    def delete(self, folder: str, names: Sequence[str]) -> None:  # noqa: ARG002
        raise OSError(NOT_WRITABLE)


def literal_path(path: str) -> str:
    """Escapes a path for reading: Spark reads it as a pattern, although not when it writes."""
    return re.sub(r"([\[\]{}*?,\\])", r"\\\1", path)


def cause(error: Exception) -> str:
    """Why an operation failed, in one line: the deepest cause of an error that Spark reports."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    text = str(error).strip()
    found = re.findall(r"^(?:\s*Caused by)?: (.+)$", text, re.MULTILINE)
    line = found[-1] if found else text.partition("\n")[0]
    return re.sub(r"^(?:[\w$]+\.)+([\w$]+): ", r"\1: ", line).strip().rstrip(".")
