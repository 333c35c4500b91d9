"""Makes the names in a folder survive a power cut: to sync a new file alone does not keep its name."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Writes the names in a folder to the disk. Raises OSError if the file system does not confirm it."""
    found = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(found)
    finally:
        os.close(found)
