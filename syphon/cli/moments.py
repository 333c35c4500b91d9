"""Moments on the command line: a date, a time, or how long ago."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click


def moment(text: str) -> int:
    """Milliseconds since 1970, of 2026-10-01, 2026-10-01T08:30Z or 2h (two hours ago). For `type=` of an option."""
    from syphon.yaml_settings import Wrong, parse_duration

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return time.time_ns() // 1_000_000 - parse_duration(text)
        except Wrong:
            remedy = "write 2026-10-01, 2026-10-01T08:30Z (UTC unless it says otherwise), or 2h for two hours ago"
            raise click.BadParameter(f"{text!r} is no time: {remedy}.") from None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def shown(millis: int | None) -> str:
    """A moment for people, to the second, in UTC."""
    return "" if millis is None else f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def written(millis: int | None) -> str | None:
    """A moment for machines: ISO-8601."""
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
