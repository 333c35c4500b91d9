"""Looks before a worker starts whether its ledger can be written, without leaving anything behind."""

from __future__ import annotations

import os
import shutil
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from syphon.model import volume

from .files import cause, local_path

LITTLE = 100 * 1024 * 1024
"""Bytes: with less free space the check warns. They are enough for about three million transfers."""
PROBE = 64 * 1024
"""Bytes that are written for the check: as much as the files of a few jobs."""


class LedgerLevel(StrEnum):
    """How good the place of the ledger is; the words are those of the other findings of `syphon check`."""

    FINE = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class LedgerFinding(NamedTuple):
    """What the check has found."""

    path: str
    level: LedgerLevel
    text: str


def check_ledger(path: str) -> LedgerFinding:
    """Whether the ledger can be created and written, and how much space is free.

    It writes to a file without a name, which is gone at once, whatever happens. The folder of a ledger that does not
    exist yet is not created: the nearest folder above it is tried instead.
    """
    local = local_path(path)
    if local is None:
        text = "cannot be checked without Spark. The status of a worker shows whether it can write it."
        return LedgerFinding(path, LedgerLevel.WARNING, text)
    folder = Path(local).absolute()
    nearest = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), folder)
    try:
        with tempfile.TemporaryFile(dir=nearest, buffering=0) as file:
            file.write(b"\0" * PROBE)
            os.fsync(file.fileno())
        free = shutil.disk_usage(nearest).free
    except OSError as error:
        why = cause(OSError(error.errno, error.strerror))
        remedy = "make room or name another path" if nearest.is_dir() else "name a folder"
        text = f"cannot be written: {nearest}: {why}. Nothing would be recorded: {remedy} (pipeline.ledger)."
        return LedgerFinding(path, LedgerLevel.PROBLEM, text)
    state = "can be written" if nearest == folder else f"does not exist yet, and can be created in {nearest}"
    if free < LITTLE:
        return LedgerFinding(path, LedgerLevel.WARNING, f"{state}, but only {volume(free)} are free there")
    return LedgerFinding(path, LedgerLevel.FINE, f"{state}; {volume(free)} are free there")
