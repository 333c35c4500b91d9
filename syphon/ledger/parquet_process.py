"""Makes a worker's Parquet files in a process of its own: Arrow takes 40 MB, which an idle worker would never return.

The process starts when a job opens and ends when none has run for a while. It ends by itself when its parent does.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, Protocol

from syphon.time_budget import PARQUET_PROCESS_KEPT_FOR

from . import parquet
from .rows import Attempt

LARGEST_LENGTH = 8
"""Bytes of the length before each pickle."""


class ParquetFiles(Protocol):
    """Makes the files of the ledger: here, as the module `parquet` does, or in another process."""

    def attempts_file(self, attempts: Sequence[Attempt], /) -> bytes: ...

    def files_by_day(self, files: Sequence[bytes], /) -> Iterable[tuple[date, bytes]]: ...

    def joined(self, files: Sequence[bytes], /) -> bytes: ...

    def rest(self, is_job_open: bool, /) -> None:
        """Called regularly: whether rows will come soon."""


class ParquetProcess:
    """Calls the functions of `parquet` in a process that it starts when it is needed. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._used_at = 0.0

    def attempts_file(self, attempts: Sequence[Attempt], /) -> bytes:
        return bytes(self._call("attempts_file", attempts))

    def files_by_day(self, files: Sequence[bytes], /) -> Iterable[tuple[date, bytes]]:
        found: list[tuple[date, bytes]] = self._call("files_by_day", files)
        return found

    def joined(self, files: Sequence[bytes], /) -> bytes:
        return bytes(self._call("joined", files))

    def rest(self, is_job_open: bool, /) -> None:
        """Starts the process while a job is open, so that its rows need not wait; ends it when it has no work."""
        with self._lock, suppress(OSError):
            if is_job_open:
                self._started()
            elif self._process is not None and time.monotonic() - self._used_at >= PARQUET_PROCESS_KEPT_FOR:
                self._end()

    def _call(self, function: str, argument: Any) -> Any:
        """Calls a function there. If the process is killed, it is called here: no row may be lost for that."""
        with self._lock:
            try:
                process = self._started()
                assert process.stdin is not None
                assert process.stdout is not None
                _write(process.stdin, (function, argument))
                result = _read(process.stdout)
            except (OSError, EOFError, pickle.PickleError):
                self._end()
                result = _result(function, argument)
            self._used_at = time.monotonic()
        if isinstance(result, Exception):
            raise result
        return result

    def _started(self) -> subprocess.Popen[bytes]:
        self._used_at = time.monotonic()
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-c", f"from {__name__} import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _write(stream: Any, value: object) -> None:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    stream.write(len(content).to_bytes(LARGEST_LENGTH))
    stream.write(content)
    stream.flush()


def _read(stream: Any) -> Any:
    length = stream.read(LARGEST_LENGTH)
    if len(length) < LARGEST_LENGTH:
        raise EOFError
    return pickle.loads(stream.read(int.from_bytes(length)))  # noqa: S301 - from our own process, through a pipe


def _result(function: str, argument: Any) -> Any:
    """What the function returns, or the error that it raises."""
    try:
        found = getattr(parquet, function)(argument)
        return found if isinstance(found, bytes) else list(found)
    except Exception as error:
        return error


def main() -> None:
    """Answers the calls of the process that has started this one."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent decides, and may need it until its end
        signal.signal(number, signal.SIG_IGN)
    parquet.avoid_loading_pandas()
    parquet.prepare_arrow()
    with suppress(EOFError, BrokenPipeError):
        while True:
            _write(sys.stdout.buffer, _result(*_read(sys.stdin.buffer)))
