"""Executes a notebook from top to bottom, and compares what it shows with what is stored in it.

`python -m tests.support.notebooks FILE` stores the outputs of a run in the file.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.support.quick_java import quick_java

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
    client.execute(env={**os.environ, **quick_java()})
    return cleaned(notebook)


def cleaned(notebook: Any) -> Any:
    """The notebook without what says nothing of it: times of the run, messages of Spark's start, names of folders."""
    notebook.metadata.pop("language_info", None)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = _joined([each for each in cell.outputs if each.get("name") != "stderr"])
            for output in cell.outputs:
                if "text/plain" in output.get("data", {}):
                    output.data["text/plain"] = re.sub(r"/[^' ]*/(ledger)-\w+", r"\1", output.data["text/plain"])
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Outputs with printed text in one piece: the kernel sends it in as many as it likes."""
    found: list[Any] = []
    for output in outputs:
        if found and output.get("name") == found[-1].get("name") == "stdout":
            found[-1].text += output.text
        else:
            found.append(output)
    return found


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
