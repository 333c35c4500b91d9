"""Tables as plain text: columns in line, numbers to the right, nothing cut off. A pipe gets what a person gets."""

from __future__ import annotations

from collections.abc import Sequence

import click

from syphon.model import printable


def show_table(titles: Sequence[str], rows: Sequence[Sequence[object]], indent: str = "") -> None:
    """Prints rows under their titles. Numbers are grouped by thousands; None is left blank."""
    right = [any(isinstance(row[at], int | float) for row in rows) for at in range(len(titles))]
    lines = [list(titles), *([_text(value) for value in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(titles))]
    for number, line in enumerate(lines):
        cells = (
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, right, strict=True)
        )
        click.echo(click.style(indent + "  ".join(cells).rstrip(), bold=number == 0))


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else printable(str(value))
