"""Generated files are current, and agree with their sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chart import CASES, GOLDEN
from tests.support.generated import FILES, with_table
from tests.support.tools import ROOT


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_generated_file_is_current(file: Path) -> None:
    assert file.read_text() == FILES[file](), "read the difference, and write it with `make generated`"


def test_there_is_no_golden_render_without_values() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)


def test_a_table_that_has_changed_makes_its_page_stale() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert with_table(page, "spans", "another table") != page
    with pytest.raises(AssertionError, match="no place"):
        with_table(page, "snaps", "")
