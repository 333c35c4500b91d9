"""Log lines: one line for each record, whatever text a message contains, and the latest ones as events."""

from __future__ import annotations

import json
import logging

import pytest

from syphon.status.logs import MOST_EVENTS, ConsoleLines, JsonLines, RecentEvents

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


def test_events_are_bounded_and_equal_lines_in_a_row_are_one_event() -> None:
    events, logger = RecentEvents(), logging.getLogger("syphon.tests.events")
    logger.addHandler(events)
    logger.setLevel(logging.INFO)
    for number in range(MOST_EVENTS + 20):
        logger.info("event %d", number)
    for _ in range(3):
        logger.warning("again %s", "x" * 1000)
    logger.removeHandler(events)
    newest = events.newest_first()
    assert len(newest) == MOST_EVENTS
    assert (newest[0].level, newest[0].times, len(newest[0].text)) == ("warning", 3, 500)
    assert newest[1].text == f"event {MOST_EVENTS + 19}"


def test_a_bad_log_line_does_not_end_the_work_that_wrote_it(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("syphon.tests.events")
    events = RecentEvents()
    logger.addHandler(events)
    logger.propagate = False
    try:
        logger.warning("%d", "no number")
        logger.warning("and on")
    finally:
        logger.removeHandler(events)
        logger.propagate = True
    assert [event.text for event in events.newest_first()] == ["and on"]
    assert "no number" in capsys.readouterr().err
