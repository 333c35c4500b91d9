"""examples/incident.md shows an incident with the real output of each command: it is played again, and compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.operations_incident import Typed, on_the_page, played

pytestmark = pytest.mark.timeout(600)

DIFFERS = {
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?Z?": "<time>",
    r"\b\d\d:\d\d:\d\d\b": "<clock>",
    r"127\.0\.0\.1:\d+": "<host>",
    r"can be created in [^;]+; [\d.]+ [KMGT]?B": "can be created in <place>",
    r"[\d.,]+ (h|min|s|ms)( [\d.]+ (min|s))?\b": "<duration>",
    r"[\d.,]+ [KM]?B\b": "<size>",
    r"(at least [\d,]+|its messages) stay in the backlog": "<n> stay in the backlog",
    r"#\d+": "<number>",
    r"'contoso:refunds'": "'refunds'",
}
"""What is another one in each run."""
NOT_ALWAYS = ("Waiting for", "Writing the ledger", "Starting Spark", "Peeking into")
"""Lines that come only if something takes its time."""


def essence(said: str) -> list[str]:
    """The lines without what differs from run to run: times, sizes, ports, the order of equal ones."""
    text = re.sub(r"(?ms)^By hour and destination.*?\n\n", "", said)  # an hour may begin in the middle
    for pattern, name in DIFFERS.items():
        text = re.sub(pattern, name, text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return sorted({line for line in lines if line and not line.startswith(NOT_ALWAYS)})


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> list[Typed]:
    return played(tmp_path_factory.mktemp("operations"), [typed.command for typed in on_the_page()])


def test_every_command_of_the_page_says_today_what_the_page_shows(now: list[Typed]) -> None:
    page = on_the_page()
    assert len(page) == 7
    for shown, typed in zip(page, now, strict=True):
        assert essence(typed.said) == essence(shown.said), typed.command
        assert typed.code == shown.code, typed.command


def test_a_text_that_has_changed_is_found() -> None:
    shown = on_the_page()[-1].said
    assert essence(shown) != essence(shown.replace("400 of 430", "401 of 430"))
    assert essence(shown) != essence(shown.replace("Every delivery is accounted for.", ""))


def test_the_page_has_no_path_of_a_machine() -> None:
    assert not [typed.command for typed in on_the_page() if str(Path.home()) in typed.said or "/tmp" in typed.said]
