"""Options that commands share: the settings file, and times, durations and rates as people write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from syphon.model import ExitCode, Extra, InvalidOption, millis_of

__all__ = ["MomentOption", "Rate", "Seconds", "config_option", "load_settings", "millis_of", "needs_spark"]

if TYPE_CHECKING:
    from syphon.config import Config

    class MomentType(click.ParamType[datetime]): ...

    class FloatType(click.ParamType[float]): ...

else:
    MomentType = FloatType = click.ParamType  # in older releases of click the type has no parameter


P = ParamSpec("P")
R = TypeVar("R")


def needs_spark(command: Callable[P, R]) -> Callable[P, R]:
    """End the command before it does anything if the extra `spark` is not installed: now, and not in an incident."""

    @wraps(command)
    def checked(*arguments: P.args, **options: P.kwargs) -> R:
        Extra.SPARK.require(f"`{click.get_current_context().command_path}`")
        return command(*arguments, **options)

    return checked


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-c FILE`."""
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
    """Read the settings. If they are invalid, print all problems on stderr (and as JSON on stdout) and exit with 78."""
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


class MomentOption(MomentType):
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
        from syphon.operations import read_moment

        try:
            return read_moment(str(value), self._ends)
        except InvalidOption as error:
            self.fail(str(error), param, ctx)


class Seconds(FloatType):
    """A duration, in seconds."""

    name = "DURATION"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float | int):
            return float(value)
        from syphon.operations import read_duration

        try:
            return read_duration(str(value))
        except InvalidOption as error:
            self.fail(str(error), param, ctx)


class Rate(FloatType):
    """Messages per second."""

    name = "N/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from syphon.operations import read_rate

        try:
            return read_rate(str(value))
        except InvalidOption as error:
            self.fail(str(error), param, ctx)
