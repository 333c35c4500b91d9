"""The page is complete, readable by a screen reader, and safe to open whatever text a message brings."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest

from syphon.ledger import html_page
from syphon.ledger.report_html import _share
from syphon.ledger.report_values import DestinationReport, Report, Sessions, Timeline, TimelineStep
from tests.support.reports import NOON, a_report, an_empty_report

SVG_SHAPES = {"rect", "line", "text", "g", "title", "desc"}
EVIL = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>&lt;{}</style></title>"""


def parsed(report: Report) -> ElementTree.Element:
    """The page, read strictly: one tag that is not closed, one quote too many, and it is no XML."""
    text = html_page(report, datetime(2026, 10, 6, tzinfo=UTC))
    assert text.startswith("<!doctype html>\n")
    return ElementTree.fromstring(text.removeprefix("<!doctype html>\n"))


def words(element: ElementTree.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def test_it_begins_with_the_verdict() -> None:
    document = parsed(a_report())
    header = document.find("body/header")
    assert header is not None
    assert header.get("class") == "attention"
    assert words(header).startswith("Syphon report · contoso · 2026-10-05 12:00:00 UTC to 2026-10-05 12:02:00 UTC")
    assert header.findtext("h1") == "1,199 of 1,209 messages on record arrived."


def test_it_has_the_account_and_every_number_that_matters() -> None:
    text = words(parsed(a_report()))
    assert "1,221 received = 1,200 forwarded + 7 dead-lettered + 9 left + 5 unaccounted" in text
    assert "m-1 orders contoso/x-servicebus-transfer/0 42 2" in text
    assert "job-3, slot 1, attempt 0" in text
    assert "part-1.parquet" in text
    assert "median time in the backlog 1 min 30 s at most 1 d 1 h" in text


@pytest.mark.parametrize("where", ["destination", "reason", "message_id"])
def test_a_text_that_came_with_a_message_is_text_and_nothing_else(where: str) -> None:
    evil, plain = parsed(a_report(**{where: EVIL})), parsed(a_report(**{where: "plain"}))
    assert [element.tag for element in evil.iter()] == [element.tag for element in plain.iter()]
    assert {name for element in evil.iter() for name in element.attrib} <= {
        name for element in plain.iter() for name in element.attrib
    }
    assert EVIL in "".join(evil.itertext())


def test_a_text_cannot_turn_the_line_around_or_hide_in_control_characters() -> None:
    text = html_page(a_report(destination="or\u202eders\x1b[2J\x00"), NOON)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)
    assert "or\ufffdders\ufffd[2J\ufffd" in text


def test_it_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    document = parsed(a_report())
    policy = document.find("head/meta[@http-equiv='Content-Security-Policy']")
    assert policy is not None
    assert policy.get("content") == "default-src 'none'; style-src 'unsafe-inline'"
    assert {element.tag for element in document.iter()}.isdisjoint({"script", "link", "img", "iframe", "object"})
    for element in document.iter():
        assert not {name for name in element.attrib if name in ("src", "href", "style") or name.startswith("on")}
    assert not re.search(r"url\(|@import|https?:", html_page(a_report(), NOON))


def test_every_chart_says_what_it_shows_and_has_its_numbers_behind_it() -> None:
    document = parsed(a_report())
    sections = [section for section in document.iter("section") if section.find("svg") is not None]
    assert [section.findtext("h2") for section in sections] == ["Over time", "Time in the backlog", "Destinations"]
    for section in sections:
        chart = section.find("svg")
        assert chart is not None
        named = (chart.get("aria-labelledby") or "").split()
        assert chart.get("role") == "img"
        assert [element.get("id") for element in chart[:2]] == named
        assert all(element.text for element in chart[:2])
        assert section.find("details//table/thead") is not None
        assert {element.tag for element in chart.iter()} <= SVG_SHAPES | {"svg"}


def test_the_longest_bar_fills_the_width_and_a_few_among_many_can_be_seen() -> None:
    chart = parsed(a_report()).find(".//section/svg[@aria-labelledby='destinations-title destinations-desc']")
    assert chart is not None
    bars = [bar for bar in chart.iter("rect") if bar.get("class") != "track"]
    widths = [float((bar.get("width") or "").rstrip("%")) for bar in bars]
    assert [bar.get("class") for bar in bars] == ["forwarded", "dead_lettered", "left"]
    assert sum(widths) == pytest.approx(100)
    assert min(widths) >= 0.5


def test_nothing_of_a_chart_lies_outside_of_it() -> None:
    steps = [TimelineStep(NOON, 10**6, 1, 1), TimelineStep(NOON, 0, 0, 0), TimelineStep(NOON, 1, 0, 0)]
    chart = parsed(replace(a_report(), timeline=Timeline(60, steps))).find(".//section/svg")
    assert chart is not None
    height = float(chart.get("height") or 0)
    bars = list(chart.iter("rect"))
    assert len(bars) == 4
    for bar in bars:
        top, tall = float(bar.get("y") or -1), float(bar.get("height") or 0)
        assert 0 <= top < top + tall <= height
        assert tall >= 1.5


def test_a_band_between_two_is_shown_even_if_nothing_is_in_it() -> None:
    chart = parsed(a_report()).find(".//section/svg[@aria-labelledby='waits-title waits-desc']")
    assert chart is not None
    labels = [label.text for label in chart.iter("text") if label.get("class") == "label"]
    assert labels == ["1 min to 5 min", "5 min to 1 h", "over 1 h"]


def test_a_long_table_ends_and_says_where_the_rest_is() -> None:
    report = a_report()
    many = [replace(report.destinations[0], name=f"destination-{number}") for number in range(250)]
    document = parsed(replace(report, destinations=many))
    text = words(document)
    assert "destination-199" in text
    assert "destination-200" not in text
    assert "… and 50 more; syphon report --json has them." in text


def test_a_clean_run_says_so_and_has_no_section_of_trouble() -> None:
    report = a_report()
    clean = replace(
        report,
        transfers=replace(report.transfers, received=1_200, dead_lettered=0, left=0, possible_duplicates=0),
        messages=replace(report.messages, dead_lettered=0, left=0, repeated=0, copies=0),
        dead_letters=[],
        left=[],
        repeats=[],
        sessions=Sessions(1_204, 0),
        order_violations=[],
        shortfalls=[],
        open_jobs=[],
        unreadable_files=[],
    )
    document = parsed(clean)
    assert words(document).count("All 1,199 messages arrived.") == 1
    assert "Order kept in all 1,204 sessions." in words(document)
    assert [section.findtext("h2") for section in document.iter("section")] == [
        "The account",
        "Over time",
        "Time in the backlog",
        "Destinations",
    ]


def test_what_never_arrived_has_no_time_in_the_backlog() -> None:
    report = a_report()
    waiting = DestinationReport("orders", 3, 0, 0, 3, 0, 0, 100, None, None)
    document = parsed(replace(report, in_backlog=None, destinations=[waiting]))
    assert "Time in the backlog" not in [section.findtext("h2") for section in document.iter("section")]


def test_an_empty_report_is_a_page_as_well() -> None:
    document = parsed(an_empty_report())
    assert document.findtext("body/header/h1") == "Nothing is recorded."
    assert document.find("body/main/section") is None


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 7, "none"), (1, 7_000, "under 0.1 %"), (1, 8, "12.5 %"), (9_999, 10_000, "over 99.9 %"), (7, 7, "100 %")],
)
def test_a_share_is_never_rounded_to_more_or_less_than_it_is(part: int, whole: int, said: str) -> None:
    assert _share(part, whole) == said


def test_the_verdict_says_which_dead_letters_have_arrived_since() -> None:
    report = a_report()
    assert "7 dead-lettered; 6 of these arrived under the same message id." in report.verdict
    assert "came into the backlog from 2026-10-05 10:00:00" in html_page(report, NOON)
