"""The code of syphon as one file, for executors that do not have it."""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def package_zip(folder: Path, name: str = "syphon-package") -> Path:
    """Writes the package into a folder. Equal code gives an equal file, wherever and whenever it was installed."""
    place = folder / f"{name}.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            info = zipfile.ZipInfo(str(Path("syphon") / file.relative_to(PACKAGE)))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, file.read_bytes())
    return place
