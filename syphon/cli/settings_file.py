"""Reading the settings file that a command is given, and saying what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .exit_codes import ExitCode

if TYPE_CHECKING:
    from syphon.config import Config


def config_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c FILE`, as every command of the worker has it."""
    return click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        required=True,
        type=click.Path(path_type=Path),
        help="The worker's settings: config.example.yaml shows them all.",
    )(command)


def load(path: Path, as_json: bool = False) -> Config:
    """The settings; or all of what is wrong with them on stderr (and as JSON on stdout), and exit code 78."""
    from syphon.config import load_config
    from syphon.yaml_settings import SettingsError

    try:
        return load_config(path)
    except SettingsError as error:
        click.echo(str(error), err=True)
        if as_json:
            told = [asdict(problem) for problem in error.problems]
            click.echo(json.dumps({"exit_code": ExitCode.CONFIG, "settings": told}, indent=2))
        raise SystemExit(ExitCode.CONFIG) from None
