"""Files that survive a power cut, and are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Writes the names in a folder to the disk. Raises OSError if the file system does not confirm it."""
    found = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(found)
    finally:
        os.close(found)


def write_state(file: Path, text: str) -> None:
    """Replaces the file in one step: a half-written file could stop the next start. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, fresh = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "w") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(fresh, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
