"""An option is declared once: the flag, the keyword, the attribute and the reference come from there (D24)."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from syphon.cli.drain import drain
from syphon.cli.shared_options import options_from
from syphon.model import InvalidOption
from syphon.option_declarations import DURATION, Option, Span, called_with, options_of
from syphon.worker import DrainOptions
from tests.support.generated import options_table


@dataclass(kw_only=True)
class WithPause(DrainOptions):
    pause: Option[Span, float] = Option("--pause", DURATION, "Rest between messages.", default="2s", details="Rarely")


@click.command
@options_from(WithPause)
def command(options: WithPause) -> None:
    click.echo(f"{options.pause} {options.limit} {options.destinations}")


@called_with(WithPause)
def function(options: WithPause) -> float:
    return options.pause


def test_a_declared_option_is_a_flag_with_help_and_default() -> None:
    found = CliRunner().invoke(command, ["--help"]).output
    assert "--pause DURATION" in found
    assert "Rest between messages.  [default: 2s]" in found
    said = CliRunner().invoke(command, ["--pause", "5m", "--limit", "3", "--destination", "a", "--destination", "b"])
    assert said.output == "300.0 3 ('a', 'b')\n"
    assert CliRunner().invoke(command, []).output.startswith("2.0 None ()")


def test_a_declared_option_is_a_keyword_of_the_function() -> None:
    assert (function(), function(pause="1m"), function(pause=3)) == (2.0, 60.0, 3.0)
    assert inspect.signature(function).parameters["pause"].annotation == "Span"
    with pytest.raises(TypeError, match=r"function\(\): got an unexpected keyword argument 'paus'"):
        function(paus=3)  # type: ignore[call-arg]


def test_a_declared_option_is_in_the_reference() -> None:
    assert "| `--pause DURATION` | Rarely. |" in options_table(command, WithPause)


def test_an_invalid_value_names_its_option() -> None:
    with pytest.raises(InvalidOption, match=r"^pause: 'soon' is not a duration"):
        function(pause="soon")
    said = CliRunner().invoke(command, ["--pause", "soon"])
    assert said.exit_code == 2
    assert "Invalid value for '--pause': 'soon' is not a duration" in said.output


@pytest.mark.parametrize("given", [{"after": "2026-01-02", "before": "2026-01-01"}, {"limit": 0}, {"ttl": "half"}])
def test_flags_and_keywords_are_checked_alike(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        function(**given)
    flags = [text for name, value in given.items() for text in (f"--{name}", str(value))]
    assert CliRunner().invoke(command, flags).exit_code == 2


def test_options_are_values() -> None:
    options = WithPause(limit=3, destinations="news")
    assert options == WithPause(limit=3, destinations=["news"])
    assert replace(options, limit=4) == WithPause(limit=4, destinations="news")
    with pytest.raises(AttributeError, match="read-only"):
        options.limit = 5


def test_every_option_of_a_drain_is_a_flag_of_its_command() -> None:
    flags = {flag for parameter in drain.params for flag in parameter.opts}
    assert {option.flag for option in options_of(DrainOptions)} <= flags
