"""Executes a notebook from top to bottom, and compares what it shows with what is stored in it.

`python -m tests.support.notebooks FILE` stores the outputs of a run in the file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

CELL_WITHIN = 300
"""Seconds for one cell: the first one that uses Spark waits for its start, on a busy machine."""
CHANGES = (
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?", "TIME"),
    (r"\b[\d.,]+ s\b", "SECONDS"),
    (r"\b[\d.]+ (?:B|KB|MB)\b", "SIZE"),
    (r"0x[0-9a-f]+", "ADDRESS"),
    (r"seconds=[\d.]+", "seconds=N"),
    (r"ledger='[^']*'", "ledger=PATH"),
)
"""What differs from run to run: times, durations, sizes (a key has a varying length), addresses, folders."""


def executed(file: Path, folder: Path) -> Any:
    """The notebook with the outputs of a run in this folder. Raises the first error of a cell."""
    notebook = nbformat.read(file, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(notebook, timeout=CELL_WITHIN, resources={"metadata": {"path": str(folder)}})
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            # What Spark's JVM writes while it starts says nothing of this notebook.
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)
    return notebook


def stable_outputs(notebook: Any) -> list[list[str]]:
    """What each cell of code shows, without what differs from run to run."""
    return [[_stable(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


def _stable(output: Any) -> str:
    data = output.get("data", {})
    text = str(data.get("text/html", data.get("text/plain", output.get("text", ""))))
    for pattern, word in CHANGES:
        text = re.sub(pattern, word, text)
    return text


def store(file: Path, folder: Path) -> None:
    nbformat.write(executed(file, folder), file)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as own:
        store(Path(sys.argv[1]).resolve(), Path(own))
