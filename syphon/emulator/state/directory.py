"""The directory that `--state` names: a database for each namespace, for one emulator at a time."""

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
    """Taken for as long as it is open. The lock is the operating system's, so a killed emulator leaves none behind."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._journals: list[SqliteJournal] = []
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            _lock(self._lock)
        except OSError:
            # The second byte and what follows: Windows does not let others read what is locked.
            holder = os.pread(self._lock, 20, 1).decode("ascii", "replace") if hasattr(os, "pread") else "unknown"
            os.close(self._lock)
            raise StateUnusable(
                f"The state in {directory} is in use by another emulator (process {holder}). "
                "Stop that one, or name another directory."
            ) from None
        os.ftruncate(self._lock, 0)
        os.write(self._lock, f" {os.getpid()}".encode())

    def journal(self, namespace: str) -> SqliteJournal:
        """Where a namespace keeps what it has promised. Names differ by more than case, and so do files."""
        journal = SqliteJournal(self._directory / f"{namespace.lower()}.db")
        self._journals.append(journal)
        return journal

    def close(self) -> None:
        for journal in self._journals:
            journal.close()
        os.close(self._lock)
