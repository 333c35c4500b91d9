"""Options of commands: the settings file, and those that a model declares (`syphon.option_declarations`)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from syphon.model import ExitCode, Extra, InvalidOption
from syphon.option_declarations import WHERE, Option, OptionKind, options_of

if TYPE_CHECKING:
    from syphon.config import Config

    class ReadsType(click.ParamType[Any]): ...

else:
    ReadsType = click.ParamType  # in older releases of click the type has no parameter


P = ParamSpec("P")
R = TypeVar("R")


def needs_spark(command: Callable[P, R]) -> Callable[P, R]:
    """End the command before it does anything if the extra `spark` is not installed: now, and not in an incident."""

    @wraps(command)
    def checked(*arguments: P.args, **options: P.kwargs) -> R:
        Extra.SPARK.require(f"`{click.get_current_context().command_path}`")
        return command(*arguments, **options)

    return checked


CONFIG_FILE = "SYPHON_CONFIG"
"""The variable that names the settings file where `-c` does not."""


def default_config() -> Path | None:
    """The settings file without `-c`: that of the environment, or config.yaml in the current folder, if it exists."""
    named, usual = os.environ.get(CONFIG_FILE), Path("config.yaml")
    return Path(named) if named else usual if usual.is_file() else None


def _given_config(context: click.Context, option: click.Parameter, value: Path | None) -> Path:
    found = value or default_config()
    if found is None:
        raise click.MissingParameter(
            f"There is no ./config.yaml, and ${CONFIG_FILE} is not set.", ctx=context, param=option
        )
    return found


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-c FILE`."""
    return click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        callback=_given_config,
        type=click.Path(path_type=Path),
        help=f"The worker's settings file. Default: ${CONFIG_FILE}, or ./config.yaml.",
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


class Reads(ReadsType):
    """A value as its kind reads it."""

    def __init__(self, kind: OptionKind[Any, Any]) -> None:
        self.kind = kind
        self.name = kind.metavar

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.kind.read(value)
        except InvalidOption as error:
            self.fail(str(error), param, ctx)


def where_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--where`."""
    return click.option(
        "--where",
        type=Reads(WHERE),
        metavar=WHERE.metavar,
        help="Only messages for which this SQL filter is true; the grammar of subscription rules.",
    )(command)


def options_from(model: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that a model declares. The command gets them as `options`, an object of the model."""

    def decorated(command: Callable[..., Any]) -> Callable[..., Any]:
        declared = options_of(model)

        @wraps(command)
        def collected(**given: Any) -> Any:
            chosen = {option.name: given.pop(option.name) for option in declared}
            try:
                options = model(**chosen)
            except InvalidOption as error:
                raise click.UsageError(str(error)) from None
            return command(options=options, **given)

        call: Callable[..., Any] = collected
        for option in reversed(declared):
            call = click_option(option)(call)
        return call

    return decorated


def click_option(option: Option[Any, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A declared option, as click takes it."""
    kind = option.kind
    if kind.is_flag:
        return click.option(option.flag, option.name, is_flag=True, help=option.help)
    type_: click.ParamType[Any] = Reads(kind)
    if kind.least is not None:
        type_ = click.IntRange(min=kind.least)
    elif kind.choices:
        type_ = click.Choice(kind.choices)
    elif kind.repeatable:
        type_ = click.STRING
    return click.option(
        option.flag,
        option.name,
        type=type_,
        multiple=kind.repeatable,
        metavar=None if kind.choices else option.metavar,
        default=option.default,
        show_default=bool(option.default),
        help=option.help,
    )
