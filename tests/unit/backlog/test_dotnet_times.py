"""Time spans written and read."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import Described, Long, Symbol, decode
from syphon.backlog import FOREVER
from syphon.backlog.dotnet_times import LONGEST, Ticks, iso_duration, moment, timespan, timespan_bytes, whole_millis

DAY = 86_400_000


@pytest.mark.parametrize(
    ("millis", "written"),
    [
        (FOREVER, "P10675199DT2H48M5.4775807S"),
        (FOREVER + 1, "P10675199DT2H48M5.4775807S"),
        (60_000, "PT1M"),
        (14 * DAY, "P14D"),
        (DAY + 3_600_000, "P1DT1H"),
        (1_500, "PT1.5S"),
        (1, "PT0.001S"),
        (0, "PT0S"),
        (10_000, "PT10S"),
        (3_661_000, "PT1H1M1S"),
    ],
)
def test_a_duration_is_written_as_service_bus_writes_it(millis: int, written: str) -> None:  # P2
    assert iso_duration(millis) == written


@given(st.integers(0, FOREVER - 1))
def test_a_duration_is_read_as_it_was_written(millis: int) -> None:  # M3
    assert timespan(iso_duration(millis)) == millis * 10_000


@given(st.integers(0, 2**32 - 1))
def test_a_time_to_live_is_read_as_it_was_written(millis: int) -> None:  # M1, M3
    assert whole_millis(timespan(decode(timespan_bytes(millis))[0])) == millis


@given(st.integers(0, LONGEST))
def test_dotnets_text_and_dotnets_ticks_mean_the_same(ticks: int) -> None:  # M3
    seconds, fraction = divmod(ticks, 10_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{days}.{hours:02}:{minutes:02}:{seconds:02}.{fraction:07}"
    assert timespan(text) == timespan(Described(Symbol("com.microsoft:timespan"), Long(ticks))) == ticks


def test_a_time_without_an_offset_is_utc_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:  # M3
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert moment("1970-01-02T00:00:00") == DAY
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("text", "days"), [("P1Y", 365), ("P1M", 30), ("P1Y2M3W4D", 365 + 60 + 21 + 4)])
def test_years_and_months_are_as_long_as_dotnet_has_them(text: str, days: int) -> None:  # M3
    assert timespan(text) == days * DAY * 10_000


@pytest.mark.parametrize(("ticks", "millis"), [(0, 0), (1, 1), (10_000, 1), (10_001, 2)])
def test_a_part_of_a_millisecond_counts_as_a_whole_one(ticks: int, millis: int) -> None:  # M5: nothing lives shorter
    assert whole_millis(Ticks(ticks)) == millis
