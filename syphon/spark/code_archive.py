"""The code of syphon as one file, for executors that do not have it."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def package_zip(folder: Path) -> Path:
    """Writes the package into a folder. Equal code gives an equal file, wherever and whenever it was installed.

    Its name has a digest of the code: a session keeps a file, and refuses another one of the same name.
    """
    place = folder / "syphon.zip"
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(PACKAGE.rglob("*.py")):
            info = zipfile.ZipInfo(str(Path("syphon") / file.relative_to(PACKAGE)))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, file.read_bytes())
    digest = hashlib.sha256(place.read_bytes()).hexdigest()[:12]
    return place.rename(place.with_name(f"syphon-{digest}.zip"))
