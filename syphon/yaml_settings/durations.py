"""Durations as people write them (`1h30m`, `500ms`, `PT30S`), kept as whole milliseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from .problems import InvalidSetting, Mistake

SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

LONGEST = 922_337_203_685_477
"""TimeSpan.MaxValue, `P10675199DT2H48M5.4775807S`: the value of Service Bus for "never"."""

_SHORT = re.compile(r"(?:(\d{1,15})d)?(?:(\d{1,15})h)?(?:(\d{1,15})m)?(?:(\d{1,15})s)?(?:(\d{1,15})ms)?", re.ASCII)
_ISO = re.compile(
    r"P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,15}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)
# A year has 365 days and a month 30, as in .NET, which writes these files.
_ISO_UNITS = (365 * DAY, 30 * DAY, 7 * DAY, DAY, HOUR, MINUTE, SECOND)
_HOW = "write it as 30s, 1h30m, 500ms, 14d, PT30S or never"


def parse_duration(text: str) -> int:
    """Milliseconds of `1m`, `1h30m`, `500ms`, `14d`, an ISO-8601 duration, or `never`."""
    text = text.strip()
    if text.lower() == "never":
        return LONGEST
    if text and (short := _SHORT.fullmatch(text)):
        units = (DAY, HOUR, MINUTE, SECOND, 1)
        millis = sum(int(count) * unit for count, unit in zip(short.groups(), units, strict=True) if count)
    elif (iso := _ISO.fullmatch(text)) and any(iso.groups()):
        millis = int(sum(Decimal(count) * unit for count, unit in zip(iso.groups(), _ISO_UNITS, strict=True) if count))
    else:
        raise InvalidSetting(Mistake("is not a duration", _HOW))
    if millis > LONGEST:
        raise InvalidSetting(Mistake("is longer than Service Bus allows", "write never"))
    return millis


def write_duration(millis: int) -> str:
    """The shortest way to write it: 5400000 is 1h30m."""
    if millis >= LONGEST:
        return "never"
    text = ""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"), (1, "ms")):
        count, millis = divmod(millis, unit)
        if count:
            text += f"{count}{name}"
    return text or "0s"


def _from_text(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        return parse_duration(value)
    # In Python a number means milliseconds. In a file it is not clear which unit is meant.
    if info.context and info.context.get("from_file"):
        raise InvalidSetting(Mistake("has no unit", _HOW))
    return value


Duration = Annotated[int, BeforeValidator(_from_text), WithJsonSchema({"type": "string"})]
"""Whole milliseconds; written as text in a file."""


@dataclass(frozen=True)
class Between:
    """Annotates a Duration with the shortest and the longest that are accepted."""

    shortest: str
    longest: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, millis: int) -> int:
        if millis < parse_duration(self.shortest):
            raise InvalidSetting(Mistake(f"is shorter than {self.shortest}", self._remedy()))
        if millis > parse_duration(self.longest):
            raise InvalidSetting(Mistake(f"is longer than {self.longest}", self._remedy()))
        return millis

    def _remedy(self) -> str:
        return f"write {self.shortest} to {self.longest}"
