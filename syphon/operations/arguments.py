"""Arguments of the Python functions: the same texts as on the command line, or Python values."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

from syphon.config import Config, config_from, load_config
from syphon.model import InvalidOption, InvalidSettings
from syphon.yaml_settings import InvalidSetting, SettingsError, parse_duration

ConfigLike: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Config
"""A settings file, its content as a dict, or loaded settings."""
Moment: TypeAlias = str | datetime | timedelta
"""A point in time: ISO-8601 or a date, `2h` or a timedelta ago, or a datetime (UTC if it has no zone)."""
Span: TypeAlias = str | float | timedelta
"""A duration: `5m`, seconds, or a timedelta."""
Names: TypeAlias = str | Iterable[str]
"""One name or pattern, or several."""
Queues: TypeAlias = str | int | Iterable[str | int]
"""Backlog queues: an index, a name or a pattern, or several of these."""


def settings_of(config: ConfigLike) -> Config:
    """The settings. Raises InvalidSettings with all problems."""
    if isinstance(config, Config):
        return config
    try:
        return config_from(config) if isinstance(config, Mapping) else load_config(Path(config))
    except SettingsError as error:
        raise InvalidSettings(str(error)) from None


def names_of(names: Queues) -> tuple[str, ...]:
    """Names or patterns; an index of a queue may be a number."""
    if isinstance(names, str | int):
        return (str(names),)
    return tuple(map(str, names))


def read_moment(value: Moment, ends_a_period: bool = False) -> datetime:
    """A point in time. A date alone means its first moment, or its last if it ends a period."""
    if isinstance(value, timedelta):
        return datetime.now(UTC) - value
    try:
        return _in_utc(value) if isinstance(value, datetime) else _moment(value.strip(), ends_a_period)
    except (ValueError, OverflowError):
        raise InvalidOption(
            f"'{value}' is not a time: use 2026-11-16T14:30, 2026-11-16, or 2h (two hours ago)."
        ) from None


def _moment(text: str, ends_a_period: bool) -> datetime:
    if (ago := _milliseconds(text)) is not None:
        return datetime.now(UTC) - timedelta(milliseconds=ago)
    moment = _in_utc(datetime.fromisoformat(text))
    if ends_a_period and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        moment += timedelta(days=1)
    return moment


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def read_duration(value: Span) -> float:
    """A duration in seconds."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, float | int):
        return float(value)
    found = _milliseconds(value)
    if not found:
        raise InvalidOption(f"'{value}' is not a duration: use 30s, 5m or 1h30m.")
    return found / 1000


def read_rate(value: str | float) -> float:
    """A rate in messages per second."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", str(value).strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidOption(f"'{value}' is not a rate: use 500 or 500/s.")
    return float(found[1])


def _milliseconds(text: str) -> int | None:
    try:
        return parse_duration(text)
    except InvalidSetting:
        return None
