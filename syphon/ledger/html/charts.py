"""Charts as SVG: readable at any width, by a screen reader too, and without a script.

Places along the width are percentages and everything else is pixels, so that bars shrink on a phone and letters do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .markup import Markup, tag

BAR_ROW = 42
PLOT, FOOT, HEAD = 180, 24, 18
LONGEST_LABEL = 36


class Part(NamedTuple):
    """A piece of a bar: what it is (the name of a colour in the style sheet), and how much."""

    kind: str
    amount: int


class Bar(NamedTuple):
    label: str
    parts: Sequence[Part]
    detail: str
    """Shown by browsers when one points at it."""

    @property
    def amount(self) -> int:
        return sum(part.amount for part in self.parts)

    @property
    def title(self) -> Markup:
        return tag("title", f"{self.label}: {self.detail}")


def columns(name: str, title: str, description: str, bars: Sequence[Bar], labels: dict[int, str]) -> Markup:
    """Upright bars along a time axis. `labels` says which of them have one below."""
    top = _ceiling(max((bar.amount for bar in bars), default=0))
    width = 100 / max(1, len(bars))
    drawn = [_grid(level, top) for level in sorted({top, top // 2, 0})]
    for number, bar in enumerate(bars):
        drawn.append(_column(bar, number * width, width, top))
        if number in labels:
            drawn.append(_axis_label(labels[number], (number + 0.5) * width))
    return _figure(name, title, description, HEAD + PLOT + FOOT, drawn)


def _grid(level: int, top: int) -> Markup:
    y = _height(level, top)
    line = tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid")
    return tag("g", line, tag("text", f"{level:,}", x="0", y=y - 4, class_="scale") if level else None)


def _height(amount: int, top: int) -> float:
    return round(HEAD + PLOT * (1 - amount / top), 1)


def _column(bar: Bar, x: float, width: float, top: int) -> Markup:
    parts, below = [bar.title], 0
    for part in bar.parts:
        if part.amount:
            y, foot = _height(below + part.amount, top), _height(below, top)
            # A few among thousands must still be seen.
            y = min(y, foot - 1.5)
            left, wide = f"{x + width * 0.1:.3f}%", f"{width * 0.8:.3f}%"
            parts.append(tag("rect", x=left, width=wide, y=f"{y:.1f}", height=f"{foot - y:.1f}", class_=part.kind))
            below += part.amount
    return tag("g", *parts)


def _axis_label(text: str, x: float) -> Markup:
    anchor = "start" if x < 8 else "end" if x > 92 else "middle"
    place = {"start": 0.0, "middle": x, "end": 100.0}[anchor]
    return tag("text", text, x=f"{place:.3f}%", y=HEAD + PLOT + 16, text_anchor=anchor, class_="axis")


def rows(name: str, title: str, description: str, bars: Sequence[Bar]) -> Markup:
    """Lying bars, each under its label."""
    longest = max((bar.amount for bar in bars), default=0) or 1
    drawn = [_row(bar, number * BAR_ROW, longest) for number, bar in enumerate(bars)]
    return _figure(name, title, description, len(bars) * BAR_ROW, drawn)


def _row(bar: Bar, y: int, longest: int) -> Markup:
    label = bar.label if len(bar.label) <= LONGEST_LABEL else bar.label[: LONGEST_LABEL - 1] + "…"
    drawn = [
        bar.title,
        tag("text", label, x="0", y=y + 14, class_="label"),
        tag("text", f"{bar.amount:,}", x="100%", y=y + 14, text_anchor="end", class_="value"),
        tag("rect", x="0", width="100%", y=y + 21, height=9, rx=2, class_="track"),
    ]
    x, shown = 0.0, [part for part in bar.parts if part.amount]
    # A few among thousands must still be seen; the most numerous make room for them.
    widths = [max(100 * part.amount / longest, 0.6) for part in shown]
    if sum(widths) > 100:
        widths[widths.index(max(widths))] -= sum(widths) - 100
    for part, width in zip(shown, widths, strict=True):
        drawn.append(tag("rect", x=f"{x:.3f}%", width=f"{width:.3f}%", y=y + 21, height=9, class_=part.kind))
        x += width
    return tag("g", *drawn)


def _figure(name: str, title: str, description: str, height: int, drawn: Sequence[Markup]) -> Markup:
    return tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *drawn,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        width="100%",
        height=height,
    )


def _ceiling(amount: int) -> int:
    """The least of 2, 4, 10, 20, 40, 100 … that is not below: half of it is whole as well."""
    size = 1
    while True:
        for factor in (2, 4, 10):
            if factor * size >= amount:
                return factor * size
        size *= 10
