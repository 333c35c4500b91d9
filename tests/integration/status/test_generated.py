"""Generated files are current, and agree with their sources."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.chart import CASES, CHART, GOLDEN
from tests.support.generated import FILES, defaults, described, with_table
from tests.support.tools import ROOT


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_generated_file_is_current(file: Path) -> None:
    assert file.read_text() == FILES[file](), "look at the difference, and write it anew with `make generated`"


def test_there_is_no_golden_render_without_values() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == set(CASES)


def test_a_comment_belongs_to_the_key_right_below_it() -> None:
    text = "# of a\na: 1\n\n# of nobody\n\nb:\n  # of b.c,\n  # in two lines\n  c: {}\n  d: [1]\ne: x\n"
    assert described(text) == {"a": "of a", "b": "", "b.c": "of b.c, in two lines", "b.d": "", "e": ""}
    assert dict(defaults(yaml.safe_load(text))) == {"a": 1, "b.c": {}, "b.d": [1], "e": "x"}


def test_a_comment_that_has_changed_makes_the_readme_stale() -> None:
    page = (CHART / "README.md").read_text()
    assert with_table(page, "values", "another table") != page
    with pytest.raises(AssertionError, match="no place"):
        with_table(page, "vaules", "")
