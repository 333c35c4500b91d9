"""A script of a test, as a process of its own: what a user types into a file or a notebook."""

from __future__ import annotations

import os
import sys

from tests.support.processes import EmulatedPair, Running
from tests.support.quick_java import quick_java


def run_script(pair: EmulatedPair, name: str, code: str, *arguments: str, **more: str) -> Running:
    """Starts a script in the folder of the pair. Its Spark runs tasks with this Python; `more` is its environment."""
    (pair.folder / f"{name}.py").write_text(code)
    environment = {
        "PYTHONPATH": os.pathsep.join([str(pair.folder), *sys.path]),
        "PYSPARK_PYTHON": sys.executable,
        **quick_java(),
        **more,
    }
    running = Running(arguments, pair.folder, environment, module=name)
    pair.running.append(running)
    return running
