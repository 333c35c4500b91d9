"""The sections of the page: each has a sentence, a chart, and the numbers behind the chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from syphon.model import duration, plural, utc_time, volume

from ..report_values import DestinationReport, Hour, OpenJobReport, ReasonCount, Renamed, Report, Timeline, TimelineStep
from .elements import Bar, BarPart, Markup, columns, rows, tag, together

MOST_BARS = 12
MOST_LINES = 200
"""Lines of a table. `--json` has all of them."""


def sections(report: Report) -> Iterator[Markup]:
    """All sections that have something to say, the most important first."""
    if report.empty:
        return
    if report.transfers.received:
        yield _numbers(report)
        yield _account(report)
        yield _over_time(report.timeline)
    if report.in_backlog is not None:
        yield _waits(report)
    if report.destinations:
        yield _destinations(report)
    if report.dead_letters:
        about = "They cannot be delivered unchanged, and are in the dead-letter queues of their backlog queues."
        yield _section("Dead letters", about, _reasons(report.dead_letters))
    if report.left:
        about = "According to the ledger they are still in the backlog, and syphon retries them."
        yield _section("Left in the backlog", about, _reasons(report.left))
    if report.repeats:
        yield _repeats(report)
    if report.shortfalls or report.unreadable_files:
        yield _unaccounted(report)
    if report.lost_jobs:
        about = (
            "The driver of these jobs ended before it had written their rows. The counts of their last report are "
            "unaccounted above; what they did after it is unknown. No message is lost: each is either at its "
            "destination, or still in the backlog or its dead-letter queue."
        )
        yield _section("Never closed", about, _open_jobs(report.lost_jobs))
    if report.running_jobs:
        about = "These jobs reported within the last minute. Their rows are written when they end."
        yield _section("May still be running", about, _open_jobs(report.running_jobs))


def _numbers(report: Report) -> Markup:
    messages, spread = report.messages, report.in_backlog
    tiles = [
        ("messages", f"{messages.total:,}", volume(report.transfers.bytes)),
        ("arrived", f"{messages.forwarded:,}", _share(messages.forwarded, messages.total)),
        ("dead letters", f"{messages.dead_lettered:,}", _share(messages.dead_lettered, messages.total)),
        ("left", f"{messages.left:,}", _share(messages.left, messages.total)),
        ("more than once", f"{messages.repeated:,}", f"{report.transfers.possible_duplicates:,} possible"),
    ]
    if spread is not None:
        tiles.append(("median time in the backlog", duration(spread.p50), f"at most {duration(spread.longest)}"))
    return tag(
        "dl",
        *(tag("div", tag("dt", name), tag("dd", value), tag("dd", more, class_="more")) for name, value, more in tiles),
        class_="numbers",
    )


def _share(part: int, whole: int) -> str:
    if not whole or not part:
        return "none"
    # 99.96 % must not be shown as 100 %.
    percent = min(100 * part / whole, 99.9) if part < whole else 100.0
    return f"{max(percent, 0.1):.1f} %".replace(".0 %", " %")


def _account(report: Report) -> Markup:
    transfers = report.transfers
    terms = (
        ("received", transfers.received),
        ("forwarded", transfers.forwarded),
        ("dead_lettered", transfers.dead_lettered),
        ("left", transfers.left),
        ("unaccounted", transfers.unaccounted),
    )
    pieces = []
    for (kind, amount), sign in zip(terms, ("", "= ", "+ ", "+ ", "+ "), strict=True):
        number = tag("b", tag("span", sign, class_="sign"), f"{amount:,}")
        pieces.append(tag("span", number, tag("span", tag("i", class_=f"dot {kind}"), kind.replace("_", "-"))))
    about = "In deliveries: a message that was left and redelivered was received more than once."
    return _section("The account", about, tag("p", *pieces, class_="account"))


def _over_time(timeline: Timeline) -> Markup:
    steps, length = timeline.steps, duration(timeline.seconds)
    bars = [Bar(_clock(step), _parts(step), _ends(step)) for step in steps]
    every = max(1, -(-len(steps) // 6))
    labels = {number: _short_clock(steps[number], timeline) for number in range(0, len(steps), every)}
    peak = max(steps, key=lambda step: step.forwarded, default=None)
    description = "" if peak is None else f"Most were forwarded at {_clock(peak)}: {peak.forwarded:,} within {length}."
    description = f"A column is {length}. {description}"
    busy = [step for step in steps if step.forwarded or step.dead_lettered or step.left]
    lines = [(_clock(step), *(f"{part.amount:,}" for part in _parts(step))) for step in busy]
    return _section(
        "Over time",
        description,
        _legend(),
        columns("timeline", "Forwarded over time", description, bars, labels),
        _behind(_table(("time", "forwarded", "dead-lettered", "left"), lines)),
    )


def _parts(line: TimelineStep | Hour | DestinationReport) -> tuple[BarPart, ...]:
    return (
        BarPart("forwarded", line.forwarded),
        BarPart("dead_lettered", line.dead_lettered),
        BarPart("left", line.left),
    )


def _ends(line: TimelineStep | DestinationReport) -> str:
    named = ((line.forwarded, "forwarded"), (line.dead_lettered, "dead-lettered"), (line.left, "left"))
    return ", ".join(f"{amount:,} {what}" for amount, what in named if amount) or "nothing"


def _clock(step: TimelineStep | Hour) -> str:
    return f"{step.start:%Y-%m-%d %H:%M}"


def _short_clock(step: TimelineStep, timeline: Timeline) -> str:
    whole = timedelta(seconds=timeline.seconds * len(timeline.steps))
    return f"{step.start:%H:%M}" if whole <= timedelta(days=1) else f"{step.start:%d %b}"


def _legend() -> Markup:
    names = ("forwarded", "dead-lettered", "left")
    items = (tag("li", tag("i", class_=f"dot {name.replace('-', '_')}"), name) for name in names)
    return tag("ul", *items, class_="legend")


def _waits(report: Report) -> Markup:
    spread, bands = report.in_backlog, _bands(report)
    assert spread is not None
    bars = [Bar(label, [BarPart("forwarded", messages)], plural(messages, "message")) for label, messages in bands]
    description = (
        f"Half of the messages that arrived were in it for less than {duration(spread.p50)}, 95 % for less than "
        f"{duration(spread.p95)}, and none for more than {duration(spread.longest)}."
    )
    return _section(
        "Time in the backlog",
        description,
        rows("waits", "Time in the backlog", description, bars),
        _behind(_table(("time in the backlog", "messages"), [(label, f"{n:,}") for label, n in bands])),
    )


def _bands(report: Report) -> list[tuple[str, int]]:
    """The bands from the first to the last that has a message."""
    bounds = [band.below for band in report.waits]
    labels = [_band(lower, upper) for lower, upper in zip([None, *bounds], bounds, strict=False)]
    filled = [number for number, band in enumerate(report.waits) if band.messages]
    return [(labels[number], report.waits[number].messages) for number in range(filled[0], filled[-1] + 1)]


def _band(lower: int | None, upper: int | None) -> str:
    if upper is None:
        return f"over {duration(lower or 0)}"
    return f"under {duration(upper)}" if lower is None else f"{duration(lower)} to {duration(upper)}"


def _destinations(report: Report) -> Markup:
    most = report.destinations[:MOST_BARS]
    bars = [Bar(_name(each.name), _parts(each), _ends(each)) for each in most]
    description = f"Messages for {plural(len(report.destinations), 'destination')}, and what happened to them."
    if len(report.destinations) > MOST_BARS:
        description += " The chart shows those with the most."
    if report.renames:
        went = (f"{_name(each.destination)} to {_name(each.renamed_to)}" for each in report.renames[:MOST_BARS])
        description += f" The operator has renamed {', '.join(went)}."
    if report.slowest and (slowest := report.slowest[0]).carrying is not None:
        slow = f"The slowest to accept was {_name(slowest.name)}: 95 % within {duration(slowest.carrying.p95)}."
        description = f"{description} {slow}"
    names = (
        "destination",
        "messages",
        "forwarded",
        "dead-lettered",
        "left",
        "repeated",
        "backlog p50",
        "p95",
        "max",
        "accepting p95",
    )
    return _section(
        "Destinations",
        description,
        _legend(),
        rows("destinations", "Messages by destination", description, bars),
        _behind(_table(names, [_destination(each) for each in report.destinations])),
        *([_behind(_renames(report.renames), "Renamed")] if report.renames else []),
        _behind(_hours(report.hours), "By hour"),
    )


def _destination(line: DestinationReport) -> tuple[str, ...]:
    backlog, carrying = line.in_backlog, line.carrying
    counts = (line.messages, line.forwarded, line.dead_lettered, line.left, line.repeated)
    waits = (backlog.p50, backlog.p95, backlog.longest) if backlog else (None, None, None)
    times = (*waits, carrying.p95 if carrying else None)
    written = ("–" if time is None else duration(time) for time in times)
    return (_name(line.name), *(f"{count:,}" for count in counts), *written)


def _renames(renames: Sequence[Renamed]) -> Markup:
    lines = [(_name(r.destination), _name(r.renamed_to), f"{r.messages:,}", f"{r.forwarded:,}") for r in renames]
    return _table(("destination", "went to", "messages", "forwarded"), lines, numbers=range(2, 4))


def _hours(hours: Sequence[Hour]) -> Markup:
    lines = [(_clock(each), _name(each.destination), *(f"{part.amount:,}" for part in _parts(each))) for each in hours]
    return _table(("hour", "destination", "forwarded", "dead-lettered", "left"), lines, numbers=range(2, 5))


def _name(destination: str) -> str:
    return destination or "(no destination)"


def _reasons(reasons: Sequence[ReasonCount]) -> Markup:
    def said(each: ReasonCount) -> Markup:
        example = each.example.removeprefix(f"{each.reason}: ")
        return together(tag("b", each.reason or "(no reason)"), tag("span", example, class_="example"))

    lines = [(f"{each.messages:,}", said(each), _name(each.destination), _time(each.oldest)) for each in reasons]
    return _table(("messages", "reason, with an example", "destination", "oldest"), lines, numbers=range(1))


def _repeats(report: Report) -> Markup:
    lines = [
        (each.message_id or "(none)", _name(each.destination), each.queue, str(each.sequence_number), str(each.times))
        for each in report.repeats
    ]
    about = (
        "All copies have the same message id, so a destination with duplicate detection keeps only the first. "
        f"Copies beyond the first, in all: {report.messages.copies:,}."
    )
    names = ("message id", "destination", "backlog queue", "sequence number", "times")
    return _section("Arrived more than once", about, _table(names, lines, numbers=range(3, 5)))


def _unaccounted(report: Report) -> Markup:
    lines = [
        (
            f"{each.job}, slot {each.slot}, attempt {each.attempt}",
            each.queue,
            _time(each.ended_at),
            each.error or "–",
            f"{each.unaccounted:,}",
            f"{each.forwarded:,}",
        )
        for each in report.shortfalls
    ]
    about = (
        "These tasks were lost before their rows were recorded. No message is lost: messages that they had not "
        "forwarded are still in the backlog, and are redelivered."
    )
    names = ("task", "backlog queue", "last heard of", "error", "unaccounted", "of these forwarded")
    broken = tag("ul", *(tag("li", file) for file in report.unreadable_files[:MOST_LINES]))
    return _section(
        "Unaccounted for",
        about,
        _table(names, lines, numbers=range(4, 6)) if lines else None,
        together(tag("p", "Files of the ledger that cannot be read:"), broken) if report.unreadable_files else None,
    )


def _open_jobs(jobs: Sequence[OpenJobReport]) -> Markup:
    """The jobs, with a line for each queue."""
    lines = [
        (
            f"{job.job}, {plural(job.slots, 'slot')}, {job.host} process {job.pid}",
            job.pair,
            queue,
            _time(job.opened_at),
            _time(job.heard_at),
            *(f"{count:,}" for count in (each.received, each.forwarded, each.dead_lettered, each.left)),
        )
        for job in jobs
        for queue, each in job.queues.items()
    ]
    names = (
        "job",
        "pair",
        "backlog queue",
        "opened",
        "last heard of",
        "received",
        "forwarded",
        "dead-lettered",
        "left",
    )
    return _table(names, lines, numbers=range(5, 9))


# --- parts of sections -----------------------------------------------------------------------------------------------


def _section(title: str, about: str | None, *content: Markup | None) -> Markup:
    return tag("section", tag("h2", title), tag("p", about, class_="what") if about else None, *content)


def _time(when: datetime | None) -> Markup:
    return tag("time", "–" if when is None else utc_time(when))


def _behind(table: Markup, name: str = "The numbers") -> Markup:
    return tag("details", tag("summary", name), table)


def _table(names: Sequence[str], lines: Sequence[Sequence[str]], numbers: range = range(1, 100)) -> Markup:
    """A table of at most MOST_LINES lines. `numbers` says which columns hold numbers."""

    def cells(kind: str, values: Sequence[str]) -> Iterator[Markup]:
        for place, value in enumerate(values):
            scope = "col" if kind == "th" else None
            yield tag(kind, value, scope=scope, class_="number" if place in numbers else None)

    head = tag("thead", tag("tr", *cells("th", names)))
    body = tag("tbody", *(tag("tr", *cells("td", line)) for line in lines[:MOST_LINES]))
    table = tag("div", tag("table", head, body), class_="scroll")
    if len(lines) <= MOST_LINES:
        return table
    more = f"… and {len(lines) - MOST_LINES:,} more; syphon report --json has them."
    return together(table, tag("p", more, class_="what"))
