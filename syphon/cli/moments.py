"""Moments on the command line: a date, a time, or how long ago."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import click


class Moment(click.ParamType):
    """Milliseconds since 1970, written as 2026-10-01, 2026-10-01T08:30Z or 2h (two hours ago)."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            return self._ago(value, param, ctx)
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)

    def _ago(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from syphon.yaml_settings import Wrong, parse_duration

        try:
            return time.time_ns() // 1_000_000 - parse_duration(text)
        except Wrong:
            remedy = "write 2026-10-01, 2026-10-01T08:30Z (UTC unless it says otherwise), or 2h for two hours ago"
            self.fail(f"{text!r} is no time: {remedy}.", param, ctx)


MOMENT = Moment()


def shown(millis: int | None) -> str:
    """A moment for people, to the second, in UTC."""
    return "" if millis is None else f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def written(millis: int | None) -> str | None:
    """A moment for machines: ISO-8601."""
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
