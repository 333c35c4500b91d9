"""Moments, durations and rates as people write them, and moments as they are printed."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:

    class MomentType(click.ParamType[datetime]): ...

    class FloatType(click.ParamType[float]): ...

else:
    MomentType = FloatType = click.ParamType  # older releases of click do not know what it converts to


class Moment(MomentType):
    """A point in time: ISO-8601 (UTC if it says nothing else), a date, or a duration ago.

    A date alone is its first moment. Where a period ends, it is the last: a day can be from and to itself.
    """

    name = "TIME"

    def __init__(self, ends_a_period: bool = False) -> None:
        self._ends = ends_a_period

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        text = str(value).strip()
        try:
            return self._read(text)
        except (ValueError, OverflowError):
            self.fail(f"'{text}' is no time: write 2026-11-16T14:30, 2026-11-16, or 2h for two hours ago.", param, ctx)

    def _read(self, text: str) -> datetime:
        if (ago := _milliseconds(text)) is not None:
            return datetime.now(UTC) - timedelta(milliseconds=ago)
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        if self._ends and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            moment += timedelta(days=1)
        return moment


class Seconds(FloatType):
    """A duration, in seconds."""

    name = "DURATION"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float | int):
            return float(value)
        found = _milliseconds(str(value))
        if not found:
            self.fail(f"'{value}' is no duration: write 30s, 5m or 1h30m.", param, ctx)
        return found / 1000


class Rate(FloatType):
    """Messages a second."""

    name = "N/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", str(value).strip())
        if found is None or float(found[1]) <= 0:
            self.fail(f"'{value}' is no rate: write 500 or 500/s.", param, ctx)
        return float(found[1])


def _milliseconds(text: str) -> int | None:
    from syphon.yaml_settings import InvalidSetting, parse_duration

    try:
        return parse_duration(text)
    except InvalidSetting:
        return None


def millis_of(moment: datetime | None) -> int | None:
    """Milliseconds since 1970."""
    return None if moment is None else round(moment.timestamp() * 1000)


def shown(millis: int | None) -> str:
    """A moment for people, to the second, in UTC."""
    return "" if millis is None else f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def written(millis: int | None) -> str | None:
    """A moment for machines: ISO-8601."""
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
