"""Charts as SVG: bars from zero, and lines with a named scale. Readable on light and dark backgrounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT, TOP = 760, 210, 90, 60
BAR, GAP = 22, 10
DEPTH = 240
"""The height of the plot in a line chart."""
OURS, OTHERS = "#2f81f7", ("#d97706", "#7c3aed", "#059669", "#db2777")
"""Dark enough on white, light enough on black."""
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 15px } .small { font-size: 11.5px; fill: #59636e }
  .card { fill: #ffffff; stroke: #d1d9e0 } .grid { stroke: #d1d9e0 } .bar { fill: #8c959f } .ours { fill: #2f81f7 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small { fill: #9198a1 }
    .card { fill: #0d1117; stroke: #3d444d } .grid { stroke: #3d444d } .bar { fill: #656c76 }
  }
"""


def bars(title: str, unit: str, values: Mapping[str, float], ours: str) -> str:
    """One bar for each value, from zero; the bar of `ours` has its own colour."""
    height = TOP + len(values) * (BAR + GAP) + 12
    scale = (WIDTH - LEFT - RIGHT) / max(values.values())
    drawn = []
    for place, (name, value) in enumerate(values.items()):
        y = TOP + place * (BAR + GAP)
        kind = "ours" if name == ours else "bar"
        drawn += [
            _text(LEFT - 10, y + 16, name, "end"),
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{max(1, value * scale):.1f}" height="{BAR}" rx="2"/>',
            _text(LEFT + value * scale + 8, y + 16, number(value)),
        ]
    return _card(height, title, f"{unit}; bars begin at zero", drawn)


@dataclass(frozen=True)
class Axis:
    """From zero, or logarithmic; with the values at which it is marked."""

    name: str
    marks: Sequence[float]
    is_log: bool = False

    def at(self, value: float) -> float:
        """The position of a value, from 0 to 1."""
        low, high = self.marks[0], self.marks[-1]
        if self.is_log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def __str__(self) -> str:
        return f"{self.name} ({'log scale' if self.is_log else 'from zero'})"


def lines(title: str, x: Axis, y: Axis, series: Mapping[str, Sequence[tuple[float, float]]], ours: str) -> str:
    """A line for each name, through its points; `ours` in the colour of its bars."""
    left, span = 90, WIDTH - 140
    others = iter(OTHERS)
    colours = {name: OURS if name == ours else next(others) for name in series}

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return left + x.at(point[0]) * span, TOP + 14 + (1 - y.at(point[1])) * DEPTH

    drawn = []
    for mark in y.marks:
        height = place((x.marks[0], mark))[1]
        drawn += [
            f'<line class="grid" x1="{left}" y1="{height:.1f}" x2="{left + span}" y2="{height:.1f}"/>',
            _text(left - 8, height + 4, number(mark), "end", "small"),
        ]
    foot = TOP + DEPTH + 34
    drawn += [_text(place((mark, y.marks[0]))[0], foot, number(mark), "middle", "small") for mark in x.marks]
    for name, points in series.items():
        colour = colours[name]
        path = [place(point) for point in points]
        drawn.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2.5" '
            f'points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in path)}"/>'
        )
        drawn += [f'<circle fill="{colour}" cx="{a:.1f}" cy="{b:.1f}" r="4"/>' for a, b in path]
    drawn += _legend(colours, left, TOP + DEPTH + 58)
    return _card(TOP + DEPTH + 74, title, f"{y} over {x}", drawn)


def number(value: float) -> str:
    """Three significant digits, with thousands separators."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def above(value: float) -> list[float]:
    """Marks from zero to a round number not below the value."""
    power = 10 ** math.floor(math.log10(value))
    step = next(step for step in (0.25 * power, 0.5 * power, power, 2.5 * power) if step * 4 >= value)
    return [step * place for place in range(5)]


def decades(values: Sequence[float]) -> list[float]:
    """The powers of ten that enclose all values."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [10.0**power for power in range(low, max(high, low + 1) + 1)]


def _legend(colours: Mapping[str, str], left: float, y: float) -> list[str]:
    drawn, x = [], left
    for name, colour in colours.items():
        drawn += [f'<circle fill="{colour}" cx="{x:.1f}" cy="{y - 4}" r="4"/>', _text(x + 9, y, name)]
        x += 36 + 6.6 * len(name)
    return drawn


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    return f'<text{classes} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _card(height: float, title: str, subtitle: str, drawn: Sequence[str]) -> str:
    inside = "\n".join([_text(20, 28, title, kind="title"), _text(20, 46, subtitle, kind="small"), *drawn])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">\n<style>{STYLE}</style>\n'
        f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>\n{inside}\n</svg>\n'
    )
