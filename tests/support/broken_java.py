"""A Java that does not start, until it is repaired."""

from __future__ import annotations

import os
from pathlib import Path

from syphon.spark.java import SHIM, java_in_use


class BrokenJava:
    """Ends with an error. Spark takes it for a Java 17."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "broken-java"
        self._java = self.home / "bin" / "java"
        self._java.parent.mkdir(parents=True)
        self._java.write_text("#!/bin/sh\necho 'Error: no memory' >&2\nexit 1\n")
        self._java.chmod(0o755)
        (self.home / "release").write_text('JAVA_VERSION="17.0.1"\n')

    @property
    def environment(self) -> dict[str, str]:
        return {"JAVA_HOME": str(self.home)}

    def repair(self) -> None:
        """Puts the Java of this machine in its place."""
        home, _ = java_in_use(os.environ)
        self._java.write_text(f"#!/bin/sh\nSYPHON_JRE='{home}' exec sh '{SHIM}/bin/java' \"$@\"\n")
