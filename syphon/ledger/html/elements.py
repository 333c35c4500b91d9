"""Elements of the page: HTML and SVG elements, and charts made of them.

`tag` escapes all text, so that no page can forget to. Charts are SVG: readable at any width and by a screen reader,
without a script. Their horizontal positions are percentages, everything else is pixels: on a phone bars get narrower,
and letters keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from syphon.model import printable

_VOID = frozenset({"meta"})
BAR_ROW = 42
PLOT, FOOT, HEAD = 180, 24, 18
LONGEST_LABEL = 36


class Markup(str):
    """Text that is HTML already. Only `tag` and our own style sheet make it."""


def tag(name: str, /, *children: str | None, **attributes: str | int | float | None) -> Markup:
    """An element. In names of attributes, an underscore at the end is dropped, and others become hyphens."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{together(*children)}</{name}>")


def together(*children: str | None) -> Markup:
    """Elements and text, one after the other."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(printable(child)) for child in children if child is not None
        )
    )


# --- charts -----------------------------------------------------------------------------------------------------------


class BarPart(NamedTuple):
    """One part of a bar: its kind (the name of a colour in the style sheet), and its amount."""

    kind: str
    amount: int


class Bar(NamedTuple):
    """One bar of a chart."""

    label: str
    parts: Sequence[BarPart]
    detail: str
    """Browsers show it while the mouse points at the bar."""

    @property
    def amount(self) -> int:
        return sum(part.amount for part in self.parts)

    @property
    def title(self) -> Markup:
        return tag("title", f"{self.label}: {self.detail}")


def columns(name: str, title: str, description: str, bars: Sequence[Bar], labels: dict[int, str]) -> Markup:
    """Vertical bars along a time axis. `labels` holds the labels of the axis, by the number of the bar."""
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
            # A few among thousands must stay visible.
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
    """Horizontal bars, each under its label."""
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
    # A few among thousands must stay visible; the largest part makes room for them.
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
    """The smallest of 2, 4, 10, 20, 40, 100 … that is at least `amount`. Half of each is a whole number, too."""
    size = 1
    while True:
        for factor in (2, 4, 10):
            if factor * size >= amount:
                return factor * size
        size *= 10
