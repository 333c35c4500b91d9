"""The notebook of the examples runs from top to bottom, and shows what is stored in it."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tests.support.notebooks import executed, stable_outputs
from tests.support.tools import ROOT

NOTEBOOK = ROOT / "examples" / "incident.ipynb"


# zmq and ipykernel have warnings of their own, which are not ours to answer for.
@pytest.mark.filterwarnings("default")
@pytest.mark.timeout(900)
def test_the_incident_runs_from_top_to_bottom_and_its_stored_outputs_are_fresh(tmp_path: Path) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    found, expected = stable_outputs(executed(NOTEBOOK, tmp_path)), stable_outputs(stored)
    assert found == expected, "run `make notebook`, and read the difference before you commit it"
    shown = "\n".join(text for cell in expected for text in cell)
    assert "The backlog is empty: 42 forwarded." in shown
    assert "All 42 messages arrived. Every delivery is accounted for." in shown


def test_a_stored_output_that_is_not_fresh_would_be_noticed() -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    before = stable_outputs(stored)
    cell = next(cell for cell in stored.cells if cell.cell_type == "code" and "syphon.report" in cell.source)
    cell.outputs[0]["data"]["text/html"] = cell.outputs[0]["data"]["text/html"].replace("42", "41")
    assert stable_outputs(stored) != before
