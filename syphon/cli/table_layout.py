"""The layout of tables as plain text: it fits into a width, breaks no numbers, and no words but very long ones.

A table that is too wide first wraps its titles, then the texts of its widest columns, at spaces. If that is not enough,
or makes a text many lines high, one column gets lines of its own: long names above the other columns, texts below them.
If that is not enough either, each row becomes a block of lines, one for each column.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")

GAP = "  "
LONGEST_WORD = 40
"""A longer word may be broken."""
LONG = 25
"""A column with cells of this length may get lines of its own, instead of the one that names the row."""
SHORTEST_LINE = 10
MOST_LINES = 4
"""A text that would need more lines in its column gets lines of its own, if it can."""


def table_lines(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    width: int | None,
    name: int = 0,
) -> Iterator[tuple[str, bool]]:
    """The lines of a table, and whether each is one of titles. Without a width they are as long as they need to be.

    `right` marks columns of numbers: they are right-aligned, and never broken. `name` is the column that names
    a row.
    """
    widths = _widths(titles, rows, right, width)
    if widths is not None and not _is_cramped(rows, widths):
        yield from _rows(titles, rows, widths, right)
        return
    sizes = [0 if is_number else max((len(row[at]) for row in rows), default=0) for at, is_number in enumerate(right)]
    longest = max(range(len(titles)), key=lambda at: sizes[at])
    apart_from = [(longest, any(" " in row[longest] for row in rows))] if sizes[longest] >= LONG else []
    for apart, is_below in (*apart_from, (name, False)):
        if found := list(_apart(titles, rows, right, width or 0, apart, is_below)):
            yield from found
            return
    yield from _blocks(titles, rows, width or 0) if widths is None else _rows(titles, rows, widths, right)


def fits(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> bool:
    """Whether every row of a table fits into one line."""
    return width is None or _total([max(map(len, column)) for column in zip(titles, *rows, strict=True)]) <= width


def _lines(row: Sequence[str], widths: Sequence[int], right: Sequence[bool], from_below: bool = False) -> Iterator[str]:
    """The lines of one row."""
    cells = [_wrapped(text, size) for text, size in zip(row, widths, strict=True)]
    height = max(map(len, cells))
    missing = [[""] * (height - len(cell)) for cell in cells]
    filled = [more + cell if from_below else cell + more for cell, more in zip(cells, missing, strict=True)]
    for line in zip(*filled, strict=True):
        placed = zip(line, widths, right, strict=True)
        yield GAP.join(text.rjust(size) if is_right else text.ljust(size) for text, size, is_right in placed).rstrip()


def _widths(
    titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int | None
) -> list[int] | None:
    """The widths of the columns; None if they cannot fit."""
    longest = [max((len(row[at]) for row in rows), default=0) for at in range(len(titles))]
    natural = [max(len(title), size) for title, size in zip(titles, longest, strict=True)]
    if width is None or _total(natural) <= width:
        return natural
    words = [max(map(len, title.split()), default=0) for title in titles]
    widths = [max(pair) for pair in zip(words, longest, strict=True)]
    least = [
        max(word, longest[at] if right[at] else min(LONGEST_WORD, _longest_word(row[at] for row in rows)))
        for at, word in enumerate(words)
    ]
    while _total(widths) > width:
        widest = max(range(len(widths)), key=lambda at: (widths[at] > least[at], widths[at]))
        if widths[widest] <= least[widest]:
            return None
        widths[widest] -= 1
    # What is left over goes to the titles, so that as few of them as possible take two lines.
    for at, wanted in enumerate(natural):
        if 0 < wanted - widths[at] <= width - _total(widths):
            widths[at] = wanted
    return widths


def _longest_word(texts: Iterable[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _wrapped(text: str, size: int) -> list[str]:
    return textwrap.wrap(text, size, break_on_hyphens=False) if len(text) > size else [text]


def _is_cramped(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> bool:
    return any(len(_wrapped(text, size)) > MOST_LINES for row in rows for text, size in zip(row, widths, strict=True))


def _rows(
    titles: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool]
) -> Iterator[tuple[str, bool]]:
    yield from ((line, True) for line in _lines(titles, widths, right, from_below=True))
    for row in rows:
        yield from ((line, False) for line in _lines(row, widths, right))


def _apart(
    titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int, apart: int, is_below: bool
) -> Iterator[tuple[str, bool]]:
    """One column on lines of its own, above or below the others. Nothing, if the others cannot fit."""

    def others(row: Sequence[T]) -> list[T]:
        return [*row[:apart], *row[apart + 1 :]]

    inner, outer = ("", GAP) if is_below else (GAP, "")
    rest = [others(row) for row in rows]
    widths = _widths(others(titles), rest, others(right), width - len(inner))
    if widths is None or _is_cramped(rest, widths):
        return
    for row, is_title in ((titles, True), *((row, False) for row in rows)):
        alone = [(outer + line, is_title) for line in _wrapped(row[apart], width - len(outer)) if line]
        together = [(inner + line, is_title) for line in _lines(others(row), widths, others(right), is_title)]
        yield from together + alone if is_below else alone + together


def _blocks(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[tuple[str, bool]]:
    """Each row as a block of lines."""
    margin = max(map(len, titles))
    for number, row in enumerate(rows):
        if number:
            yield "", False
        for title, text in zip(titles, row, strict=True):
            if text:
                parts = textwrap.wrap(text, max(SHORTEST_LINE, width - margin - len(GAP)), break_on_hyphens=False)
                for place, part in enumerate(parts):
                    yield f"{title if place == 0 else '':<{margin}}{GAP}{part}", False
