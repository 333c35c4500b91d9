"""The directory of `--state`: one database per namespace, used by one emulator at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .database import StateUnusable
from .sqlite_journal import SqliteJournal

if sys.platform == "win32":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class StateDirectory:
    """Locks the directory while it is open. The operating system holds the lock, so a killed emulator leaves none."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._journals: list[SqliteJournal] = []
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._lock)
        except OSError:
            # From the second byte on: on Windows another process cannot read a locked byte.
            holder = os.pread(self._lock, 20, 1).decode("ascii", "replace") if hasattr(os, "pread") else "unknown"
            os.close(self._lock)
            raise StateUnusable(
                f"The state in {directory} is in use by another emulator (process {holder}). "
                "Stop that one, or name another directory."
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f" {os.getpid()}".encode())

    def journal(self, namespace: str) -> SqliteJournal:
        """Opens the journal of a namespace. Names differ by more than case, so the files differ too."""
        journal = SqliteJournal(self._directory / f"{namespace.lower()}.db")
        self._journals.append(journal)
        return journal

    def close(self) -> None:
        for journal in self._journals:
            journal.close()
        os.close(self._lock)
