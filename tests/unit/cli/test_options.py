"""Times on a command line."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from syphon.cli.shared_options import Reads
from syphon.option_declarations import END_TIME, TIME

moment = Reads(TIME)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-10-05T14:30Z", datetime(2026, 10, 5, 14, 30, tzinfo=UTC)),
        ("2026-10-05T14:30:15", datetime(2026, 10, 5, 14, 30, 15, tzinfo=UTC)),
        ("2026-10-05T14:30+02:00", datetime(2026, 10, 5, 12, 30, tzinfo=UTC)),
        (" 2026-10-05 14:30 ", datetime(2026, 10, 5, 14, 30, tzinfo=UTC)),
        ("2026-10-05", datetime(2026, 10, 5, tzinfo=UTC)),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, when: datetime) -> None:
    assert moment(text) == when
    assert moment(text).tzinfo is UTC


def test_a_day_can_be_from_and_to_itself() -> None:
    assert Reads(END_TIME)("2026-10-05") == datetime(2026, 10, 6, tzinfo=UTC)
    assert Reads(END_TIME)("2026-10-05T00:00") == datetime(2026, 10, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "ago"), [("2h", timedelta(hours=2)), ("1d12h", timedelta(hours=36)), ("90s", timedelta(seconds=90))]
)
def test_a_duration_is_that_long_ago(text: str, ago: timedelta) -> None:
    before = datetime.now(UTC)
    assert before - ago <= moment(text) <= datetime.now(UTC) - ago


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-13-01", "2h ago", "5", "never", "99999999999d", "0001-01-01T00:00+14:00"]
)
def test_an_invalid_value_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(click.BadParameter, match="use 2026-11-16T14:30"):
        moment(text)
