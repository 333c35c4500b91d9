"""Numbers, times and texts, formatted for people."""

from __future__ import annotations

import pytest

from syphon.model.formatting import by_cause, duration, plural, printable, volume


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "250 ms"),
        (0.9999, "1 s"),
        (1, "1 s"),
        (12.5, "12.5 s"),
        (59.99, "1 min"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3_599.9, "1 h"),
        (3_600, "1 h"),
        (7_510, "2 h 5 min"),
        (86_400, "1 d"),
        (100_800, "1 d 4 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (2**41, "2.0 TB")])
def test_a_volume_has_the_unit_that_fits(size: int, text: str) -> None:
    assert volume(size) == text


def test_a_noun_has_its_plural_unless_there_is_one() -> None:
    assert [plural(number, "message") for number in (0, 1, 1_000)] == ["0 messages", "1 message", "1,000 messages"]


def test_a_text_from_outside_keeps_its_letters_and_loses_control_characters() -> None:
    assert printable("Zürich – 東京\x1b[31m\r\n\u202e") == "Zürich – 東京\ufffd[31m\ufffd\ufffd\ufffd"


def test_queues_with_one_cause_are_one_line_whose_name_is_that_of_none() -> None:
    found = by_cause([("a/0", "no link to 'a/0'"), ("a/1", "no link to 'a/1'"), ("a/2", "'a/2' is missing")])
    assert found == ["2 queues: no link to '…'", "a/2: 'a/2' is missing"]
