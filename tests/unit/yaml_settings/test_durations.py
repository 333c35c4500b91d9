"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from syphon.yaml_settings import LONGEST, Duration, InvalidSetting, parse_duration, write_duration


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1m", 60_000),
        ("30s", 30_000),
        ("1h30m", 5_400_000),
        ("500ms", 500),
        ("14d", 14 * 86_400_000),
        ("1m500ms", 60_500),
        ("0s", 0),
        (" 5m ", 300_000),
        ("never", LONGEST),
        ("PT1H", 3_600_000),
        ("PT20S", 20_000),
        ("P1DT2H", 93_600_000),
        ("PT0.5S", 500),
        ("P2W", 14 * 86_400_000),
        ("P1Y", 365 * 86_400_000),
        ("P1M", 30 * 86_400_000),
        ("P10675199DT2H48M5.4775807S", LONGEST),
    ],
)
def test_a_duration_is_read_as_milliseconds(text: str, millis: int) -> None:
    assert parse_duration(text) == millis


@pytest.mark.parametrize(
    "text", ["", "5", "m", "1.5h", "30m1h", "-5s", "5 s", "P", "PT", "P1DT", "1M", "00:05:00", "PT5", "٣s", "99999999d"]
)
def test_text_that_is_not_a_duration_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(InvalidSetting, match="write"):
        parse_duration(text)


@given(st.integers(0, LONGEST))
def test_a_written_duration_can_be_read_again(millis: int) -> None:
    assert parse_duration(write_duration(millis)) == millis


def test_a_number_is_milliseconds_in_python_and_a_mistake_in_a_file() -> None:
    duration: TypeAdapter[int] = TypeAdapter(Duration)
    assert duration.validate_python(1500) == 1500
    with pytest.raises(ValidationError, match="has no unit"):
        duration.validate_python(1500, context={"from_file": True})
