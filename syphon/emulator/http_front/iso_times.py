"""Durations and times in the service's XML and JSON: ISO 8601, as .NET reads and writes it.

This is our own code because of one value: TimeSpan.MaxValue, `P10675199DT2H48M5.4775807S`, is finer than the
microseconds of Python's timedelta and must be written with all its digits.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from ..broker import BadArgument
from ..clock import FOREVER, Millis

FOREVER_TEXT: Final = "P10675199DT2H48M5.4775807S"
NEVER: Final = "0001-01-01T00:00:00Z"
"""DateTime.MinValue: the service writes it for an event that has not happened yet."""
NEVER_LOCAL: Final = "0001-01-01T00:00:00"
"""The same as the answers to a PUT of a subscription have it."""

_TICKS_IN_MILLISECOND = 10_000
_LONGEST = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION = re.compile(
    r"P(?=\d|T)(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d+))?S)?)?",
    re.ASCII,
)


def read_duration(text: str) -> Millis:
    """Reads a duration in milliseconds. TimeSpan.MaxValue, also as Python clients round it, is `FOREVER`."""
    # .NET's TimeSpan is a signed 64-bit number of ticks: a longer text cannot be valid.
    found = _DURATION.fullmatch(text.strip()) if len(text) < 100 else None
    if found is None:
        raise BadArgument(f"'{text[:100]}' is not an ISO 8601 duration such as PT1M or P1DT2H.")
    *whole, fraction = found.groups(default="0")
    years, months, days, hours, minutes, seconds = map(int, whole)
    total = (((years * 365 + months * 30 + days) * 24 + hours) * 60 + minutes) * 60 + seconds
    ticks = total * 10_000_000 + int(fraction[:7].ljust(7, "0"))
    if ticks > _LONGEST:
        raise BadArgument(f"'{text}' is longer than the longest duration there is, {FOREVER_TEXT}.")
    return ticks // _TICKS_IN_MILLISECOND


def write_duration(duration: Millis) -> str:
    if duration >= FOREVER:
        return FOREVER_TEXT
    seconds, milliseconds = divmod(duration, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    second = f"{seconds}.{milliseconds:03}".rstrip("0") if milliseconds else str(seconds)
    date = f"{days}D" if days else ""
    time = "".join(
        f"{number}{unit}" for number, unit in ((str(hours), "H"), (str(minutes), "M"), (second, "S")) if number != "0"
    )
    return f"P{date}T{time}" if time else f"P{date}" if date else "PT0S"


def read_timedelta(text: str) -> timedelta:
    return timedelta(milliseconds=read_duration(text))


def write_timedelta(value: timedelta) -> str:
    return write_duration(value // timedelta(milliseconds=1))


def read_instant(text: str) -> datetime:
    """Reads a time. A time without an offset stays one."""
    try:
        # .NET writes seven digits of a second, one more than Python stores.
        return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.strip()))
    except ValueError:
        raise BadArgument(f"'{text[:100]}' is not an ISO 8601 date and time such as 2024-01-31T12:00:00Z.") from None


def write_datetime(value: datetime) -> str:
    """Writes a time in UTC, or without an offset if it has none."""
    zone = "Z" if value.tzinfo else ""
    moment = value.astimezone(UTC) if value.tzinfo else value
    fraction = f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}{zone}"


def write_instant(instant: Millis) -> str:
    """Writes a time in milliseconds without trailing zeros: `2021-04-19T17:23:06.2Z`. 0 is never."""
    return write_datetime(_EPOCH + timedelta(milliseconds=instant)) if instant else NEVER


def write_second(instant: Millis) -> str:
    """Writes a time in whole seconds, as in the elements of Atom."""
    return write_instant(instant - instant % 1000)
