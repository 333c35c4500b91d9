"""Reads and writes time spans and moments in all the forms that a backlog message may have (M3).

.NET counts ticks of 100 ns: a TimeSpan from zero, a moment from the year 1. AMQP and Service Bus count milliseconds, a
moment from 1970. People write text.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NewType

from syphon.amqp import (
    Byte,
    Described,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    encode,
)
from syphon.amqp.section_edit import value_at

Ticks = NewType("Ticks", int)
"""100 ns."""
Millis = NewType("Millis", int)
"""Milliseconds since 1970, UTC."""

TICKS_PER_MILLISECOND = 10_000
LONGEST = Ticks(2**63 - 1)
"""TimeSpan.MaxValue: how .NET says "never"."""
FOREVER = LONGEST // TICKS_PER_MILLISECOND
"""The same in milliseconds, 922337203685477."""

EARLIEST, LATEST = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last millisecond a .NET DateTime can name: the years 1 to 9999."""

A_TIME_TO_LIVE = (
    "com.microsoft:timespan, whole milliseconds, an ISO-8601 duration or d.hh:mm:ss.fffffff, longer than zero"
)
A_MOMENT = "a timestamp, com.microsoft:datetime-offset, whole milliseconds since 1970 or an ISO-8601 time"
"""What is expected, for the description of a dead letter."""

_TIMESPAN, _DATETIME_OFFSET = "com.microsoft:timespan", "com.microsoft:datetime-offset"
_WHOLE_NUMBERS = (UByte, UShort, UInt, ULong, Byte, Short, Int, Long)


_PLAIN_TIMESPAN = encode(Described(Symbol(_TIMESPAN), Long(LONGEST)))[:-8]


class InvalidValue(ValueError):
    """A value has the wrong type, or is not a time span or moment. The text is the end of a sentence."""


# --- time spans ------------------------------------------------------------------------------------------------------


def timespan(value: Value) -> Ticks:
    """The ticks of a time span in any of its forms. Raises InvalidValue."""
    if isinstance(value, Described) and value.descriptor == _TIMESPAN:
        ticks = _whole(value.value)
    elif isinstance(value, _WHOLE_NUMBERS):
        ticks = int(value) * TICKS_PER_MILLISECOND
    elif isinstance(value, str):
        ticks = _written_timespan(value)
    else:
        raise InvalidValue("is not a time span")
    if ticks < 0:
        raise InvalidValue("is negative")
    if ticks > LONGEST:
        raise InvalidValue("is longer than any time span")
    return Ticks(ticks)


_ISO = re.compile(
    r"(-?)P(?=[0-9T])(?:(\d{1,15})Y)?(?:(\d{1,15})M)?(?:(\d{1,15})W)?(?:(\d{1,15})D)?"
    r"(?:T(?=[0-9])(?:(\d{1,15})H)?(?:(\d{1,15})M)?(?:(\d{1,15})(?:\.(\d{1,15}))?S)?)?",
    re.ASCII,
)
_DOTNET = re.compile(r"(-?)(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?", re.ASCII)
_DAY, _HOUR, _MINUTE, _SECOND = 864_000_000_000, 36_000_000_000, 600_000_000, 10_000_000
# A year of 365 days and a month of 30: so does .NET.
_ISO_UNITS = (365 * _DAY, 30 * _DAY, 7 * _DAY, _DAY, _HOUR, _MINUTE, _SECOND)


def _written_timespan(text: str) -> int:
    if iso := _ISO.fullmatch(text):
        sign, *counts, fraction = iso.groups()
        ticks = sum(int(count) * unit for count, unit in zip(counts, _ISO_UNITS, strict=True) if count)
    elif dotnet := _DOTNET.fullmatch(text):
        sign, days, hours, minutes, seconds, fraction = dotnet.groups()
        if int(hours) > 23 or int(minutes) > 59 or int(seconds) > 59:
            raise InvalidValue("is not a time span")
        ticks = int(days or 0) * _DAY + int(hours) * _HOUR + int(minutes) * _MINUTE + int(seconds) * _SECOND
    else:
        raise InvalidValue("is not a time span")
    ticks += int((fraction or "0")[:7].ljust(7, "0"))
    return -ticks if sign else ticks


def time_to_live(value: Value) -> Ticks:
    """A time span that a message can live for: zero is refused as well (M4). Raises InvalidValue."""
    ticks = timespan(value)
    if not ticks:
        raise InvalidValue("is zero")
    return ticks


def time_to_live_at(data: bytes, start: int, end: int) -> Ticks:
    """The same for the bytes of a value. The form that .NET writes is read without decoding."""
    if data[start : end - 8] == _PLAIN_TIMESPAN and data[end - 8] < 0x80:
        ticks = int.from_bytes(data[end - 8 : end], "big")
        if ticks:
            return Ticks(ticks)
    return time_to_live(value_at(data, start, end))


def timespan_bytes(millis: int) -> bytes:
    """A time span as .NET writes a TimeSpan property."""
    return encode(Described(Symbol(_TIMESPAN), Long(millis * TICKS_PER_MILLISECOND)))


def whole_millis(ticks: Ticks) -> int:
    """Milliseconds, rounded up: a time to live must not become shorter, and never zero."""
    return -(-ticks // TICKS_PER_MILLISECOND)


def iso_duration(millis: int) -> str:
    """ISO-8601 as Service Bus writes it: PT1M, P14D, P10675199DT2H48M5.4775807S."""
    ticks = LONGEST if millis >= FOREVER else millis * TICKS_PER_MILLISECOND
    days, ticks = divmod(ticks, _DAY)
    hours, ticks = divmod(ticks, _HOUR)
    minutes, ticks = divmod(ticks, _MINUTE)
    seconds, ticks = divmod(ticks, _SECOND)
    second = f"{seconds}.{ticks:07d}".rstrip("0") if ticks else f"{seconds}"
    clock = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes) + f"{second}S" * (second != "0")
    date = f"{days}D" * bool(days)
    return f"P{date}T{clock}" if clock else f"P{date}" if date else "PT0S"


# --- moments ---------------------------------------------------------------------------------------------------------


def moment(value: Value) -> Millis:
    """A moment in any of its forms. Raises InvalidValue."""
    if isinstance(value, Timestamp):
        millis = int(value)
    elif isinstance(value, Described) and value.descriptor == _DATETIME_OFFSET:
        millis = _whole(value.value) // TICKS_PER_MILLISECOND + EARLIEST
    elif isinstance(value, _WHOLE_NUMBERS):
        millis = int(value)
        if millis < 0:  # a timestamp may lie before 1970; a bare negative number is a mistake
            raise InvalidValue("is negative")
    elif isinstance(value, str):
        millis = _written_moment(value)
    else:
        raise InvalidValue("is not a time")
    if not EARLIEST <= millis <= LATEST:
        raise InvalidValue("lies outside the years 1 to 9999")
    return Millis(millis)


# fromisoformat accepts more than this, for example 1712101234567, which is milliseconds in quotes.
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII | re.IGNORECASE
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _written_moment(text: str) -> int:
    try:
        found = datetime.fromisoformat(text.upper()) if _MOMENT.fullmatch(text) else None
    except ValueError:  # 30 February
        found = None
    if found is None:
        raise InvalidValue("is not a time")
    if found.tzinfo is None:  # .NET writes a DateTime of unspecified kind like this, and all times here are UTC
        found = found.replace(tzinfo=UTC)
    return (found - _EPOCH) // timedelta(milliseconds=1)


def _whole(value: Value) -> int:
    if not isinstance(value, _WHOLE_NUMBERS):
        raise InvalidValue("does not contain a whole number")
    return int(value)
