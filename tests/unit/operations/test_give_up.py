"""`syphon drain --give-up`: the words that it takes."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from syphon.cli.drain import drain
from syphon.worker import GIVE_UP, DrainOptions


@pytest.mark.parametrize(
    ("written", "words"),
    [("missing", {"missing"}), ("disabled,missing", {"missing", "disabled"}), (" Missing , disabled", set(GIVE_UP))],
)
def test_what_to_give_up_is_one_word_or_several(written: str, words: set[str]) -> None:
    assert DrainOptions(give_up=written).give_up == words


@pytest.mark.parametrize("written", ["full", "missing,", "", "entity-not-found", "missing disabled"])
def test_an_unknown_word_is_an_error_that_names_the_known_ones(written: str) -> None:
    done = CliRunner().invoke(drain, ["-c", "config.yaml", "--give-up", written])
    assert done.exit_code == 2
    assert "use missing, disabled, or missing,disabled." in " ".join(done.output.split())
