"""What was found, as lines for a person: what is alike is said once, and nothing is wider than the terminal."""

from __future__ import annotations

import logging
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from syphon.model import printable

_WIDTH = 13
"""Of the first column."""
_COLOURS = {
    "ok": "green",
    "there": "green",
    "made": "green",
    "warning": "yellow",
    "differs": "yellow",
    "extra": "yellow",
    "missing": "yellow",
}
"""All else is red."""


@dataclass(frozen=True)
class Line:
    """A word for how it is, what it is about, and what there is to say."""

    word: str
    entities: Sequence[str]
    text: str

    def __str__(self) -> str:
        return f"{briefly(self.entities)}: {self.text}" if self.entities else self.text


def lines(found: Iterable[tuple[str, str | None, str]]) -> list[Line]:
    """One line for all entities of which the same can be said, where the first of them was."""
    alike: dict[tuple[str, str, bool], list[str]] = {}
    for word, entity, text in found:
        alike.setdefault((word, text, entity is None), []).extend([] if entity is None else [entity])
    return [Line(word, entities, text) for (word, text, _), entities in alike.items()]


def show(lines: Iterable[Line]) -> None:
    room = shutil.get_terminal_size().columns - 2 - _WIDTH if sys.stdout.isatty() else 0
    for line in lines:
        text = printable(str(line))
        # In a pipe a finding is a line, so that it can be searched for.
        wrapped = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False) if room > 20 else [text]
        colour = _COLOURS.get(line.word, "red")
        for number, part in enumerate(wrapped):
            word = click.style(line.word.ljust(_WIDTH), fg=colour) if number == 0 else " " * _WIDTH
            click.echo(f"  {word}{part}")


def only_our_own_words() -> None:
    """What the SDKs would log is what we tell, at length and in their own terms."""
    logging.getLogger("azure").setLevel(logging.CRITICAL)


def briefly(names: Sequence[str]) -> str:
    """Names that end in numbers are counted: a/0 to 9, 12."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        stem, number = (found[1], int(found[2])) if found else (name, -1)
        if found and runs and runs[-1][0] == stem and runs[-1][2] == number - 1:
            runs[-1] = (stem, runs[-1][1], number)
        else:
            runs.append((stem, number, number))
    told = []
    for place, (stem, first, last) in enumerate(runs):
        again = place > 0 and first >= 0 and runs[place - 1][0] == stem
        span = "" if first < 0 else str(first) if first == last else f"{first} to {last}"
        told.append(span if again else stem + span)
    return ", ".join(told)


_NUMBERED = re.compile(r"(.*/)(0|[1-9][0-9]{0,8})")
