"""The report as one HTML file: without scripts, and without anything from another server.

Ids, destinations and reasons come with messages, so they are untrusted text: the template `report.html` escapes all of
it, and control characters are replaced. Jinja2 is imported inside functions: an executor need not have it.

Charts are SVG: readable at any width and by a screen reader, without a script. Their horizontal positions are
percentages, everything else is pixels: on a phone bars get narrower, and letters keep their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from syphon.model import duration, plural, printable, utc_time, volume

from .report_values import DestinationReport, Report, Timeline, TimelineStep

if TYPE_CHECKING:
    from jinja2 import Template

MOST_BARS = 12
MOST_LINES = 200
"""Lines of a table. `--json` has all of them."""
BAR_ROW = 42
PLOT, FOOT, HEAD = 180, 24, 18
LONGEST_LABEL = 36


def html_page(report: Report, made_at: datetime) -> str:
    """The whole page of a report."""
    return _template().render(
        report=report,
        made_at=made_at,
        subject=report.pair or ", ".join(report.pairs) or "no pair",
        start=report.period.since or report.first,
        end=report.period.until or report.last,
        columns=_timeline_chart(report.timeline),
        peak=max(report.timeline.steps, key=lambda step: step.forwarded, default=None),
        busy=[step for step in report.timeline.steps if step.forwarded or step.dead_lettered or step.left],
        bands=_bands(report) if report.in_backlog is not None else [],
        MOST_BARS=MOST_BARS,
        MOST_LINES=MOST_LINES,
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def printed(value: Any) -> Any:
        return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=printed, trim_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "number": "{:,}".format,
        "share": _share,
        "duration": lambda seconds: "–" if seconds is None else duration(seconds),
        "volume": volume,
        "plural": plural,
        "time": lambda when: "–" if when is None else utc_time(when),
        "clock": lambda when: f"{when:%Y-%m-%d %H:%M}",
        "name": lambda destination: destination or "(no destination)",
        "bars": _horizontal_bars,
    }
    return environment.from_string(files(__package__).joinpath("report.html").read_text("utf-8"))


def _share(part: int, whole: int) -> str:
    if not whole or not part:
        return "none"
    # A few must not be shown as none, 99.96 % not as 100 %, and 0.014 % not as 0.1 %.
    percent = 100 * part / whole
    if percent < 0.1:
        return "under 0.1 %"
    return "over 99.9 %" if 99.9 < percent < 100 else f"{percent:.1f} %".replace(".0 %", " %")


class WaitBar(NamedTuple):
    """A bar of the chart: messages that waited for a time within bounds."""

    name: str
    forwarded: int
    dead_lettered: int = 0
    left: int = 0


def _bands(report: Report) -> list[WaitBar]:
    """The bands from the first to the last that has a message."""
    bounds = [band.below for band in report.waits]
    labels = [_band(lower, upper) for lower, upper in zip([None, *bounds], bounds, strict=False)]
    filled = [number for number, band in enumerate(report.waits) if band.messages]
    return [WaitBar(labels[number], report.waits[number].messages) for number in range(filled[0], filled[-1] + 1)]


def _band(lower: int | None, upper: int | None) -> str:
    if upper is None:
        return f"over {duration(lower or 0)}"
    return f"under {duration(upper)}" if lower is None else f"{duration(lower)} to {duration(upper)}"


# --- charts -----------------------------------------------------------------------------------------------------------


class Rect(NamedTuple):
    """One part of a bar. Its kind is the name of a colour in the style sheet."""

    kind: str
    x: str
    width: str
    y: str
    height: str


class Column(NamedTuple):
    """A vertical bar of the timeline, with its label on the time axis if it has one."""

    title: str
    rects: list[Rect]
    label: str
    label_x: str
    anchor: str


class ColumnChart(NamedTuple):
    """Vertical bars along a time axis, over lines at some levels."""

    height: int
    grid: list[tuple[int, float]]
    columns: list[Column]
    label_y: int


class Row(NamedTuple):
    """A horizontal bar under its label."""

    title: str
    label: str
    amount: int
    y: int
    rects: list[Rect]


def _parts(line: TimelineStep | DestinationReport | WaitBar) -> list[tuple[str, int]]:
    return [("forwarded", line.forwarded), ("dead_lettered", line.dead_lettered), ("left", line.left)]


def _detail(line: TimelineStep | DestinationReport) -> str:
    """What browsers show while the mouse points at a bar."""
    return ", ".join(f"{amount:,} {kind.replace('_', '-')}" for kind, amount in _parts(line) if amount) or "nothing"


def _timeline_chart(timeline: Timeline) -> ColumnChart:
    steps = timeline.steps
    top = _ceiling(max((sum(amount for _, amount in _parts(step)) for step in steps), default=0))
    width, every = 100 / max(1, len(steps)), max(1, -(-len(steps) // 6))
    is_short = timedelta(seconds=timeline.seconds * len(steps)) <= timedelta(days=1)
    columns = []
    for number, step in enumerate(steps):
        center = (number + 0.5) * width
        anchor = "start" if center < 8 else "end" if center > 92 else "middle"
        label = (f"{step.start:%H:%M}" if is_short else f"{step.start:%d %b}") if number % every == 0 else ""
        place = {"start": 0.0, "middle": center, "end": 100.0}[anchor]
        title = f"{step.start:%Y-%m-%d %H:%M}: {_detail(step)}"
        columns.append(Column(title, _stacked(step, number * width, width, top), label, f"{place:.3f}%", anchor))
    grid = [(level, _height(level, top)) for level in sorted({top, top // 2, 0})]
    return ColumnChart(HEAD + PLOT + FOOT, grid, columns, HEAD + PLOT + 16)


def _stacked(step: TimelineStep, x: float, width: float, top: int) -> list[Rect]:
    rects, below = [], 0
    for kind, amount in _parts(step):
        if amount:
            foot = _height(below, top)
            y = min(_height(below + amount, top), foot - 1.5)  # a few among thousands must stay visible
            left, wide = f"{x + width * 0.1:.3f}%", f"{width * 0.8:.3f}%"
            rects.append(Rect(kind, left, wide, f"{y:.1f}", f"{foot - y:.1f}"))
            below += amount
    return rects


def _height(amount: int, top: int) -> float:
    return round(HEAD + PLOT * (1 - amount / top), 1)


def _ceiling(amount: int) -> int:
    """The smallest of 2, 4, 10, 20, 40, 100 … that is at least `amount`. Half of each is a whole number, too."""
    size = 1
    while True:
        for factor in (2, 4, 10):
            if factor * size >= amount:
                return factor * size
        size *= 10


def _horizontal_bars(lines: Sequence[DestinationReport | WaitBar]) -> list[Row]:
    """A bar for each line."""
    longest = max((sum(amount for _, amount in _parts(line)) for line in lines), default=0) or 1
    return [_bar(line, number * BAR_ROW, longest) for number, line in enumerate(lines)]


def _bar(line: DestinationReport | WaitBar, y: int, longest: int) -> Row:
    name = line.name or "(no destination)"
    label = name if len(name) <= LONGEST_LABEL else name[: LONGEST_LABEL - 1] + "…"
    shown = [(kind, amount) for kind, amount in _parts(line) if amount]
    # A few among thousands must stay visible; the largest part makes room for them.
    widths = [max(100 * amount / longest, 0.6) for _, amount in shown]
    if sum(widths) > 100:
        widths[widths.index(max(widths))] -= sum(widths) - 100
    rects, x = [], 0.0
    for (kind, _), width in zip(shown, widths, strict=True):
        rects.append(Rect(kind, f"{x:.3f}%", f"{width:.3f}%", f"{y + 21}", "9"))
        x += width
    detail = plural(line.forwarded, "message") if isinstance(line, WaitBar) else _detail(line)
    return Row(f"{name}: {detail}", label, sum(amount for _, amount in _parts(line)), y, rects)
