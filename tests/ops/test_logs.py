"""Log lines: one for each thing said, whatever a message has brought along."""

from __future__ import annotations

import json
import logging

import pytest

from syphon.ops.logs import ConsoleLines, JsonLines

HOSTILE = "no\r\n12:00:00 INFO    all is well\x1b[2J\x9b31m\u202e\u2028"


@pytest.mark.parametrize("style", [ConsoleLines(), JsonLines()])
def test_no_text_ends_a_line_begins_one_or_steers_a_terminal(style: logging.Formatter) -> None:
    line = style.format(logging.LogRecord("syphon", logging.WARNING, "", 1, "refused: %s", (HOSTILE,), None))
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert "all is well" in line


def test_a_traceback_keeps_its_lines_and_json_is_still_json() -> None:
    try:
        raise RuntimeError("a mistake")
    except RuntimeError as error:
        what = (type(error), error, error.__traceback__)
    record = logging.LogRecord("syphon", logging.ERROR, "", 1, "it ended", (), what)
    assert "RuntimeError: a mistake" in ConsoleLines().format(record).splitlines()[-1]
    record.exc_text = None
    assert json.loads(JsonLines().format(record))["exception"].endswith("RuntimeError: a mistake")
