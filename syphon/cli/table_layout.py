"""The layout of tables as plain text: it fits into a width, and breaks no words and no numbers.

A table that is too wide first wraps its titles, then the texts of its widest columns, at spaces. If that is not enough,
the column that names the row, or else the one with the longest words, gets lines of its own, with the others below it.
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
SHORTEST_LINE = 10


def table_lines(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    width: int | None,
    name: int = 0,
) -> Iterator[tuple[str, bool]]:
    """The lines of a table, and whether each is one of titles. Without a width they are as long as they need to be.

    `right` tells the columns of numbers: they stand to the right, and are never broken. `name` is the column that names
    a row.
    """
    widths = _widths(titles, rows, right, width)
    if widths is not None:
        yield from ((line, True) for line in _lines(titles, widths, right, from_below=True))
        for row in rows:
            yield from ((line, False) for line in _lines(row, widths, right))
        return
    longest = max(range(len(titles)), key=lambda at: _longest_word(row[at] for row in rows))
    for apart in (name, longest):
        if found := list(_names_apart(titles, rows, right, width or 0, apart)):
            yield from found
            return
    yield from _blocks(titles, rows, width or 0)


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


def _names_apart(
    titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int, apart: int
) -> Iterator[tuple[str, bool]]:
    """One column on lines of its own, and the others below it. Nothing, if these cannot fit."""

    def others(row: Sequence[T]) -> list[T]:
        return [*row[:apart], *row[apart + 1 :]]

    widths = _widths(others(titles), [others(row) for row in rows], others(right), width - len(GAP))
    if widths is None:
        return
    yield titles[apart], True
    yield from ((GAP + line, True) for line in _lines(others(titles), widths, others(right), from_below=True))
    for row in rows:
        yield from ((line, False) for line in _wrapped(row[apart], width))
        yield from ((GAP + line, False) for line in _lines(others(row), widths, others(right)))


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
