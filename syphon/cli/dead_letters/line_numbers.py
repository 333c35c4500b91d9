"""Numbers of lines, as `import` names and takes them: 3,7-20,31-."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

Spans = tuple[tuple[int, int | None], ...]
"""Ranges of lines; None is the end of the file."""

if TYPE_CHECKING:

    class LinesType(click.ParamType[Spans]): ...

else:
    LinesType = click.ParamType  # in older releases of click the type has no parameter


class LineNumbers(LinesType):
    """Lines of a file, as in 3,7-20,31-: the form in which the summary names them."""

    name = "lines"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        found = []
        for part in value.split(","):
            span = re.fullmatch(r"([1-9]\d*)(-)?([1-9]\d*)?", part.strip())
            if span is None or (span[3] and not span[2]):
                self.fail(f"{part!r} is neither a line nor a range of lines, as in 3,7-20,31-", param, ctx)
            first = int(span[1])
            found.append((first, int(span[3]) if span[3] else None if span[2] else first))
        return tuple(found)


def line_ranges(lines: Iterable[int]) -> str:
    """Line numbers as `--lines` takes them: 1-3,7."""
    spans: list[list[int]] = []
    for line in sorted(lines):
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
