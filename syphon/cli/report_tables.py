"""Tables of a report on a terminal. Text from messages is escaped, so that it cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from syphon.ledger import (
    DestinationReport,
    Hour,
    OpenJobReport,
    OrderViolation,
    ReasonCount,
    Renamed,
    Repeat,
    Report,
    RunRecord,
    Shortfall,
    Spread,
)
from syphon.model import duration, printable, utc_time, volume

from .tables import say, show_table, shown_queues, terminal_width

MOST_LINES = 20
SLOWEST = 5
WIDTH = 120
"""The width of the tables without a terminal."""
NARROW = 110
"""Terminal width below which the table of destinations is split in two."""


def show(report: Report) -> None:
    """Prints the whole report, the most important parts first."""
    say(report.verdict, bold=True, fg=None if report.complete else "yellow")
    for line in _summary(report):
        say(line, "  ")
    for title, names, lines in _tables(report):
        if lines:
            click.echo()
            say(title, bold=True)
            _show_lines(names, lines)


def show_runs(runs: Sequence[RunRecord]) -> None:
    """Prints past runs, the newest first: when, how long, how many messages, and how each ended."""
    rows = [
        (
            utc_time(run.started_at),
            run.command,
            ", ".join(run.pairs),
            duration(run.seconds),
            run.forwarded,
            run.dead_lettered,
            "?" if run.remaining is None else run.remaining,
            run.exit_code,
        )
        for run in runs
    ]
    show_table(("started", "command", "pair", "took", "forwarded", "dead-lettered", "left", "exit code"), rows, "")
    click.echo()
    for run in runs:
        options = f" {run.options}" if run.options else ""
        say(printable(f"{utc_time(run.started_at)}: {run.command}{options}: {run.verdict}"), "  ")


def _summary(report: Report) -> Iterator[str]:
    transfers, messages, first, last = report.transfers, report.messages, report.first, report.last
    if report.empty:
        return
    if first is not None and last is not None:
        yield f"{utc_time(first)} to {utc_time(last)}, {volume(transfers.bytes)}"
    yield (
        f"Transfers: {transfers.received:,} received = {transfers.forwarded:,} forwarded + "
        f"{transfers.dead_lettered:,} dead-lettered + {transfers.left:,} left in the backlog "
        f"+ {transfers.unaccounted:,} unaccounted"
    )
    yield (
        f"Messages: {messages.total:,} = {messages.forwarded:,} arrived + "
        f"{messages.dead_lettered:,} dead-lettered + {messages.left:,} left in the backlog"
    )
    yield f"Arrived more than once: {messages.repeated:,} ({transfers.possible_duplicates:,} possible duplicates)"
    if report.first_enqueued is not None and report.last_enqueued is not None:
        yield f"Came into the backlog from {utc_time(report.first_enqueued)} to {utc_time(report.last_enqueued)}"
    if report.in_backlog is not None:
        p50, p95, longest = _times(report.in_backlog)
        yield f"Time in the backlog: p50 {p50}, p95 {p95}, max {longest}"


Lines = Sequence[Sequence[str]]


def _tables(report: Report) -> Iterator[tuple[str, str, Lines]]:
    """Title, column names (numeric ones with a #), lines."""
    counts = "destination #messages #forwarded #dead-lettered #left #bytes"
    lines = [_destination(each) for each in report.destinations]
    if (terminal_width() or WIDTH) >= NARROW:
        yield "Destinations", f"{counts} #backlog_p50 #p95 #max", lines
    else:  # side by side they would not fit, and each destination would become a block of lines
        yield "Destinations", counts, [line[:6] for line in lines]
        waits = [(line[0], *line[6:]) for line in lines if any(wait != "–" for wait in line[6:])]
        yield "Time in the backlog", "destination #p50 #p95 #max", waits
    names_of_renames = "destination went_to #messages #forwarded"
    yield "Renamed destinations", names_of_renames, [_renamed(each) for each in report.renames]
    slowest = [(_name(each.name), *_times(each.in_flight)) for each in report.slowest[:SLOWEST]]
    yield "Slowest to accept", "destination #p50 #p95 #max", slowest
    names = "hour destination #forwarded #dead-lettered #left"
    yield "By hour and destination, in transfers", names, [_hour(each) for each in report.hours]
    names = "#messages reason destination in_backlog_since_(UTC) example"
    yield "Dead letters", names, [_reason(each) for each in report.dead_letters]
    yield "Left in the backlog", names, [_reason(each) for each in report.left]
    names = "message_id destination backlog_queue #sequence_number #times"
    yield "Arrived more than once", names, [_repeat(each) for each in report.repeats]
    names = "session destination #messages #after_a_later_one"
    yield "Sessions out of order", names, [_out_of_order(each) for each in report.order_violations]
    names = "job #slot #attempt backlog_queue last_report_(UTC) #unaccounted #of_these_forwarded error"
    yield "Unaccounted: counted by a task that was lost", names, [_shortfall(each) for each in report.shortfalls]
    names = "job pair backlog_queue started_(UTC) last_report_(UTC) #received #forwarded #dead-lettered #left"
    lost, running = _open_jobs(report.lost_jobs), _open_jobs(report.running_jobs)
    yield "Never closed: the driver ended first; these are the counts of the last report", names, lost
    yield "May still be running: reported within the last minute", names, running
    yield "Unreadable ledger files", "file", [(file,) for file in report.unreadable_files]


def _destination(line: DestinationReport) -> tuple[str, ...]:
    counts = map(_number, (line.messages, line.forwarded, line.dead_lettered, line.left))
    return (_name(line.name), *counts, volume(line.bytes), *_times(line.in_backlog))


def _renamed(line: Renamed) -> tuple[str, ...]:
    return (_name(line.destination), _name(line.renamed_to), _number(line.messages), _number(line.forwarded))


def _hour(line: Hour) -> tuple[str, ...]:
    counts = map(_number, (line.forwarded, line.dead_lettered, line.left))
    return (f"{line.start:%Y-%m-%d %H:%M}", _name(line.destination), *counts)


def _reason(line: ReasonCount) -> tuple[str, ...]:
    oldest = "–" if line.oldest is None else _time(line.oldest)
    example = line.example.removeprefix(f"{line.reason}: ")
    return (_number(line.messages), line.reason or "(none)", _name(line.destination), oldest, example)


def _repeat(line: Repeat) -> tuple[str, ...]:
    return (line.message_id, _name(line.destination), line.queue, str(line.sequence_number), _number(line.times))


def _out_of_order(line: OrderViolation) -> tuple[str, ...]:
    return (line.session_id, _name(line.destination), _number(line.messages), _number(line.late))


def _shortfall(line: Shortfall) -> tuple[str, ...]:
    task = (line.job, str(line.slot), str(line.attempt), line.queue, _time(line.ended_at))
    return (*task, _number(line.unaccounted), _number(line.forwarded), line.error or "–")


def _open_jobs(jobs: Sequence[OpenJobReport]) -> list[tuple[str, ...]]:
    """A line for each queue of each job."""
    names = iter(shown_queues([queue for job in jobs for queue in job.queues]))
    return [
        (
            job.job,
            job.pair,
            next(names),
            _time(job.opened_at),
            _time(job.heard_at),
            *map(_number, (each.received, each.forwarded, each.dead_lettered, each.left)),
        )
        for job in jobs
        for each in job.queues.values()
    ]


def _times(spread: Spread | None) -> tuple[str, str, str]:
    return ("–", "–", "–") if spread is None else (duration(spread.p50), duration(spread.p95), duration(spread.longest))


def _time(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S}"


def _name(destination: str) -> str:
    return destination or "(none)"


def _number(number: int) -> str:
    return f"{number:,}"


def _show_lines(names: str, lines: Lines) -> None:
    titles = [name.lstrip("#").replace("_", " ") for name in names.split()]
    right = [name.startswith("#") for name in names.split()]
    show_table(titles, lines[:MOST_LINES], width=WIDTH, right=right)
    if len(lines) > MOST_LINES:
        click.echo(f"… and {len(lines) - MOST_LINES:,} more: --json has all of them")
