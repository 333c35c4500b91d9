"""Times as people give them on a command line: `2026-10-05T14:30Z`, `2026-10-05`, or `2h` for two hours ago.

Without a zone it is UTC, as all times of ours.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_AGO = re.compile(r"(?:\d+[dhms])+", re.ASCII)


def beginning(text: str) -> datetime:
    """Where a period begins; a date alone is its first moment."""
    try:
        return _read(text.strip())
    except (ValueError, OverflowError):
        how = "write it as 2026-10-05T14:30Z, 2026-10-05, or 2h for two hours ago"
        raise click.BadParameter(f"'{text}' is no time: {how}.") from None


def end(text: str) -> datetime:
    """Where a period ends. A date alone belongs to it, so that a day can be from and to itself."""
    when = beginning(text)
    return when + timedelta(days=1) if _DATE.fullmatch(text.strip()) else when


def _read(text: str) -> datetime:
    if _AGO.fullmatch(text):
        from syphon.yaml_settings.durations import parse_duration

        return datetime.now(UTC) - timedelta(milliseconds=parse_duration(text))
    when = datetime.fromisoformat(text)
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
