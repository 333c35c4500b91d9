"""Tables, findings and times as plain text for people.

A pipe gets the same text as a terminal, so that a person can search it.
"""

from __future__ import annotations

import logging
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import click

from syphon.model import printable, short_queue_names

from .table_layout import fits, table_lines

WIDE = 120
"""The columns of a terminal that has room for the whole names of backlog queues."""

# --- tables ----------------------------------------------------------------------------------------------------------


def show_table(
    titles: Sequence[str],
    rows: Sequence[Sequence[object]],
    indent: str = "",
    width: int | None = None,
    right: Sequence[bool] | None = None,
    name: int = 0,
    may_give_way: Sequence[str] = (),
) -> None:
    """Print rows under their titles. Numbers are right-aligned, with thousands separators; None is blank.

    On a terminal the table fits its width. In a pipe it has `width`, or is as wide as it needs to be. `right` marks
    columns to right-align; `name` is the column that names a row. If the table is too wide, constant columns listed in
    `may_give_way` are moved into one line below it.
    """
    if right is None:
        right = [any(isinstance(row[at], int | float) for row in rows) for at in range(len(titles))]
    texts = [[_text(value) for value in row] for row in rows]
    room = terminal_width() or width
    room = room and room - len(indent)
    alike = [] if fits(titles, texts, room) else _alike(titles, texts, may_give_way)
    kept = [at for at in range(len(titles)) if at not in alike]
    cut = [[row[at] for at in kept] for row in (titles, *texts)]
    for line, is_title in table_lines(cut[0], cut[1:], [right[at] for at in kept], room, kept.index(name)):
        click.echo(click.style(indent + line, bold=is_title))
    if alike:
        say(f"{indent}In every row: {', '.join(f'{titles[at]} {texts[0][at]}' for at in alike)}.")


def _alike(titles: Sequence[str], texts: Sequence[Sequence[str]], among: Sequence[str]) -> list[int]:
    """The columns, of those with the given titles, that have the same text in every row."""
    return [at for at, title in enumerate(titles) if title in among and len({row[at] for row in texts}) == 1]


def terminal_width() -> int | None:
    """The width of the terminal; None if stdout is not one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def say(text: str, indent: str = "", **style: Any) -> None:
    """Print a sentence: wrapped between words on a terminal, one line in a pipe."""
    room = terminal_width()
    lines = [text] if room is None else textwrap.wrap(text, room, subsequent_indent=indent, break_on_hyphens=False)
    for line in lines or [""]:
        click.secho(line, **style)


class MayBeRenamed(Protocol):
    """A destination, and the entity the operator has renamed it to, if any."""

    @property
    def destination(self) -> str | None: ...
    @property
    def renamed_to(self) -> str | None: ...


def say_renames(destinations: Iterable[MayBeRenamed]) -> None:
    """Print a line for each renamed destination."""
    for found in destinations:
        if found.renamed_to is not None:
            say(printable(f"Messages for {found.destination} go to {found.renamed_to} (renamed)."), "  ")


def shown_queues(names: Sequence[str]) -> list[str]:
    """The names of backlog queues for a table: full in a pipe and on a wide terminal, otherwise shortened."""
    room = terminal_width()
    return list(names) if room is None or room >= WIDE else short_queue_names(names)


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else printable(str(value))


# --- times -----------------------------------------------------------------------------------------------------------


def time_text(millis: int | None) -> str:
    """A time for people: to the second, in UTC."""
    return "" if millis is None else f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def time_iso(millis: int | None) -> str | None:
    """A time for machines: ISO-8601."""
    return None if millis is None else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


# --- findings --------------------------------------------------------------------------------------------------------

_WIDTH = 13
"""The width of the first column."""
_COLOURS = {
    "ok": "green",
    "there": "green",
    "exists": "green",
    "made": "green",
    "created": "green",
    "warning": "yellow",
    "differs": "yellow",
    "extra": "yellow",
    "missing": "yellow",
}
"""All other words are red."""
_NUMBERED = re.compile(r"(.*/)(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True)
class FindingLine:
    """One line of output: a word for the result, the entities it is about, and the text."""

    word: str
    entities: Sequence[str]
    text: str

    def __str__(self) -> str:
        return f"{shortened(self.entities)}: {self.text}" if self.entities else self.text


def finding_lines(found: Iterable[tuple[str, str | None, str]]) -> list[FindingLine]:
    """Merge entities with equal findings into one line, at the position of the first of them."""
    equal: dict[tuple[str, str, bool], list[str]] = {}
    for word, entity, text in found:
        equal.setdefault((word, text, entity is None), []).extend([] if entity is None else [entity])
    return [FindingLine(word, entities, text) for (word, text, _), entities in equal.items()]


def show_findings(lines: Iterable[FindingLine]) -> None:
    """Print the lines, wrapped to the width of the terminal."""
    room = (terminal_width() or 0) - 2 - _WIDTH
    for line in lines:
        text = printable(str(line))
        # In a pipe a finding is one line, so that a program can search for it.
        wrapped = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False) if room > 20 else [text]
        colour = _COLOURS.get(line.word, "red")
        for number, part in enumerate(wrapped):
            word = click.style(line.word.ljust(_WIDTH), fg=colour) if number == 0 else " " * _WIDTH
            click.echo(f"  {word}{part}")


def silence_sdk_logs() -> None:
    """Turn off the logs of the Azure SDKs: the findings say the same, in fewer words."""
    logging.getLogger("azure").setLevel(logging.CRITICAL)


def shortened(names: Sequence[str]) -> str:
    """Join names; names that end in consecutive numbers become a range: a/0 to 9, 12."""
    runs: list[tuple[str, int, int]] = []
    for name in names:
        found = _NUMBERED.fullmatch(name)
        stem, number = (found[1], int(found[2])) if found else (name, -1)
        if found and runs and runs[-1][0] == stem and runs[-1][2] == number - 1:
            runs[-1] = (stem, runs[-1][1], number)
        else:
            runs.append((stem, number, number))
    texts = []
    for place, (stem, first, last) in enumerate(runs):
        again = place > 0 and first >= 0 and runs[place - 1][0] == stem
        span = "" if first < 0 else str(first) if first == last else f"{first} to {last}"
        texts.append(span if again else stem + span)
    return ", ".join(texts)
