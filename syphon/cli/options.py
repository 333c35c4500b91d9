"""Options that commands share: the settings file, and times, durations and rates as people write them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .exit_codes import ExitCode

if TYPE_CHECKING:
    from syphon.config import Config

    class MomentType(click.ParamType[datetime]): ...

    class FloatType(click.ParamType[float]): ...

else:
    MomentType = FloatType = click.ParamType  # in older releases of click the type has no parameter


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c FILE`, as every command of the worker has it."""
    return click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        required=True,
        type=click.Path(path_type=Path),
        help="The worker's settings file; config.example.yaml shows every setting.",
    )(command)


def load_settings(path: Path, as_json: bool = False) -> Config:
    """Reads the settings. If they are wrong, prints all problems on stderr (and as JSON on stdout); exit code 78."""
    from syphon.config import load_config
    from syphon.yaml_settings import SettingsError

    try:
        return load_config(path)
    except SettingsError as error:
        click.echo(str(error), err=True)
        if as_json:
            problems = [asdict(problem) for problem in error.problems]
            click.echo(json.dumps({"exit_code": ExitCode.CONFIG, "settings": problems}, indent=2))
        raise SystemExit(ExitCode.CONFIG) from None


class Moment(MomentType):
    """A point in time: ISO-8601 (UTC unless it has an offset), a date, or a duration before now.

    A date alone means its first moment. At the end of a period it means its last, so that `--from` and `--to` may name
    the same day.
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
            self.fail(f"'{text}' is not a time: write 2026-11-16T14:30, 2026-11-16, or 2h (two hours ago).", param, ctx)

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
            self.fail(f"'{value}' is not a duration: write 30s, 5m or 1h30m.", param, ctx)
        return found / 1000


class Rate(FloatType):
    """Messages a second."""

    name = "N/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:/s)?", str(value).strip())
        if found is None or float(found[1]) <= 0:
            self.fail(f"'{value}' is not a rate: write 500 or 500/s.", param, ctx)
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
