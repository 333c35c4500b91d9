"""Queries the ledger for a report: asks a reader for the counts of a period, and puts the report together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from .aggregates import ATTEMPT, MOST_LINES, Aggregates, percentiles
from .ledger import LedgerUnreadable
from .reader import FilesChanged, LedgerExtract, Reader
from .report_values import (
    Band,
    DestinationReport,
    Hour,
    Messages,
    OpenJobReport,
    OrderViolation,
    ReasonCount,
    Renamed,
    Repeat,
    Report,
    Sessions,
    Shortfall,
    Spread,
    Timeline,
    TimelineStep,
    Transfers,
)
from .rows import EPOCH, Period, Selection

BANDS = (1, 10, 60, 300, 900, 3_600, 14_400, 86_400)
"""Seconds in the backlog: the borders between the bands."""
STEPS = (60, 300, 900, 3_600, 21_600, 86_400)
"""Possible lengths of a timeline step in seconds. The shortest that needs at most MOST_STEPS steps is used."""
MOST_STEPS = 120
LONGEST_JOB = timedelta(hours=1)
"""A job moves no message for longer than this after it was last heard of: a lease is at most an hour."""
HEARD = timedelta(minutes=1)
"""A job that reported within this time may still be running."""
ATTEMPTS = 3
OUTCOMES = ("forwarded", "dead_lettered", "left")


def query_report(
    reader: Reader, period: Period | None = None, pair: str | None = None, now: datetime | None = None
) -> Report:
    """The report on a period and a pair, or on everything. Raises LedgerUnreadable."""
    selection = Selection(period or Period(), pair)
    for _ in range(ATTEMPTS):
        try:
            # In the opposite order of writing, so that a job that is closed meanwhile is seen at least once.
            jobs, broken = reader.open_jobs()
            found = reader.read(selection, [job.job for job in jobs])
            return _report(reader.path, selection, found, jobs, broken, now or datetime.now(UTC))
        except FilesChanged:
            continue
    raise LedgerUnreadable(f"The ledger at {reader.path} cannot be read: its files change all the time.")


def _report(
    path: str, selection: Selection, found: LedgerExtract, jobs: list[OpenJobReport], broken: list[str], now: datetime
) -> Report:
    aggregates = found.aggregates
    selected = [replace(job, may_be_running=now - job.heard_at <= HEARD) for job in jobs if _concerns(job, selection)]
    shortfalls, open_jobs = _missing(found, selected)
    steps = aggregates.steps.to_pylist()
    first, last = min((step["first"] for step in steps), default=None), max((s["last"] for s in steps), default=None)
    transfers: Counter[str] = Counter()
    for step in steps:
        transfers[step["outcome"]] += step["transfers"]
    waited = _durations(aggregates, "waited")
    dead_letters, left = _reasons(aggregates)
    return Report(
        ledger=path,
        period=selection.period,
        pair=selection.pair,
        pairs=sorted(found.pairs | {job.pair for job in jobs}),
        first=_when(first),
        last=_when(last),
        first_enqueued=_when(min(_enqueued(aggregates, "first_enqueued"), default=None)),
        last_enqueued=_when(max(_enqueued(aggregates, "last_enqueued"), default=None)),
        transfers=Transfers(
            received=sum(transfers[outcome] for outcome in OUTCOMES)
            + sum(each.unaccounted for each in shortfalls)
            + sum(each.received for each in open_jobs if not each.may_be_running),
            **{outcome: transfers[outcome] for outcome in OUTCOMES},
            possible_duplicates=sum(step["possible_duplicates"] for step in steps),
            bytes=sum(step["bytes"] for step in steps),
        ),
        messages=_messages(aggregates),
        in_backlog=_spread(_together(waited.values()), _longest(aggregates, "longest_wait")),
        waits=_waits(_together(waited.values())),
        timeline=_timeline(steps, first, last),
        destinations=_destinations(aggregates, waited),
        renames=_renames(aggregates),
        hours=_hours(aggregates),
        dead_letters=dead_letters,
        left=left,
        repeats=[Repeat(*row.values()) for row in aggregates.repeats.to_pylist()],
        sessions=Sessions(found.order.sessions, found.order.violated),
        order_violations=[OrderViolation(*each) for each in found.order.violations],
        shortfalls=shortfalls,
        open_jobs=open_jobs,
        unreadable_files=sorted([*found.unreadable_files, *broken]),
    )


def _messages(aggregates: Aggregates) -> Messages:
    rows = aggregates.destinations.to_pylist()
    return Messages(
        *(sum(row[name] for row in rows) for name in (*OUTCOMES, "repeated", "copies", "arrived_otherwise"))
    )


def _durations(aggregates: Aggregates, what: str) -> dict[str, Counter[int]]:
    """How many messages took how many milliseconds, by destination."""
    found: dict[str, Counter[int]] = defaultdict(Counter)
    for row in aggregates.durations.to_pylist():
        if row["what"] == what:
            found[row["destination"]][row["millis"]] = row["messages"]
    return found


def _spread(durations: Counter[int], longest: int | None) -> Spread | None:
    if not durations or longest is None:
        return None
    p50, p95 = percentiles(durations.items(), (50, 95))
    return Spread(p50 / 1000, p95 / 1000, longest / 1000)


def _longest(aggregates: Aggregates, name: str) -> int | None:
    return max((value for value in aggregates.destinations[name].to_pylist() if value is not None), default=None)


def _enqueued(aggregates: Aggregates, name: str) -> list[int]:
    return [value for value in aggregates.destinations[name].to_pylist() if value]


def _together(durations: Iterable[Counter[int]]) -> Counter[int]:
    found: Counter[int] = Counter()
    for counts in durations:
        found.update(counts)
    return found


def _waits(durations: Counter[int]) -> list[Band]:
    found: Counter[int] = Counter()
    for millis, messages in durations.items():
        found[sum(band * 1000 <= millis for band in BANDS)] += messages
    return [Band(below, found[band]) for band, below in enumerate((*BANDS, None))]


def _timeline(steps: list[dict[str, Any]], first: int | None, last: int | None) -> Timeline:
    if first is None or last is None:
        return Timeline(STEPS[0], [])
    fitting = (step for step in STEPS if last // (step * 1000) - first // (step * 1000) < MOST_STEPS)
    seconds = next(fitting, STEPS[-1])
    found: Counter[tuple[int, str]] = Counter()
    for step in steps:
        found[step["minute"] * 60 // seconds, step["outcome"]] += step["transfers"]
    numbers = range(first // (seconds * 1000), last // (seconds * 1000) + 1)
    return Timeline(
        seconds,
        [
            TimelineStep(_at(number * seconds * 1000), *(found[number, outcome] for outcome in OUTCOMES))
            for number in numbers
        ],
    )


def _destinations(aggregates: Aggregates, waited: dict[str, Counter[int]]) -> list[DestinationReport]:
    in_flight = _durations(aggregates, "in_flight")
    order = [("messages", "descending"), ("destination", "ascending")]
    rows = aggregates.destinations.sort_by(order).slice(0, MOST_LINES).to_pylist()
    return [
        DestinationReport(
            name=row["destination"],
            **{key: row[key] for key in ("messages", *OUTCOMES, "possible_duplicates", "repeated", "bytes")},
            in_backlog=_spread(waited[row["destination"]], row["longest_wait"]),
            in_flight=_spread(in_flight[row["destination"]], row["longest_in_flight"]),
        )
        for row in rows
    ]


def _renames(aggregates: Aggregates) -> list[Renamed]:
    order = [("messages", "descending"), ("destination", "ascending"), ("renamed_to", "ascending")]
    rows = aggregates.renames.sort_by(order).slice(0, MOST_LINES).to_pylist()
    return [Renamed(row["destination"], row["renamed_to"], row["messages"], row["forwarded"]) for row in rows]


def _hours(aggregates: Aggregates) -> list[Hour]:
    found: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for row in aggregates.hours.to_pylist():
        found[row["hour"], row["destination"]][row["outcome"]] += row["transfers"]
    return [
        Hour(_at(hour * 3_600_000), destination, *(counts[outcome] for outcome in OUTCOMES))
        for (hour, destination), counts in sorted(found.items())[:MOST_LINES]
    ]


def _reasons(aggregates: Aggregates) -> tuple[list[ReasonCount], list[ReasonCount]]:
    """The reasons of dead letters, and of messages that are left."""
    order = [("messages", "descending"), ("kind", "ascending"), ("destination", "ascending")]
    rows = aggregates.reasons.sort_by(order).slice(0, MOST_LINES).to_pylist()

    def of(outcome: str) -> list[ReasonCount]:
        return [
            ReasonCount(
                row["kind"],
                row["destination"],
                row["messages"],
                _when(row["oldest"]),
                _at(row["last_attempt"]),
                row["example"],
            )
            for row in rows
            if row["outcome"] == outcome
        ]

    return of("dead_lettered"), of("left")


def _missing(found: LedgerExtract, open_jobs: list[OpenJobReport]) -> tuple[list[Shortfall], list[OpenJobReport]]:
    """Attempts and jobs of which rows are missing, each receipt once.

    A job whose attempts are on record was being closed: its attempts say exactly what is missing, if anything. But as
    long as its driver may be running, its rows may only be late.
    """
    shortfalls = _shortfalls(found)
    running = {(job.pair, job.job) for job in open_jobs if job.may_be_running}
    short = {(each.pair, each.job) for each in shortfalls}
    return (
        [each for each in shortfalls if (each.pair, each.job) not in running],
        [
            job
            for job in open_jobs
            if (job.pair, job.job) not in found.attempted or (job.may_be_running and (job.pair, job.job) in short)
        ],
    )


def _shortfalls(found: LedgerExtract) -> list[Shortfall]:
    """Attempts that had counted more than there are rows of them."""
    recorded = {
        tuple(row[name] for name in ATTEMPT): (row["rows"], row["forwarded"])
        for row in found.aggregates.recorded.to_pylist()
    }
    counted: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in found.attempts.to_pylist():
        key = tuple(row[name] for name in ATTEMPT)
        # An attempt that was recorded twice counts once.
        if key not in counted or row["received"] > counted[key]["received"]:
            counted[key] = row
    missing = []
    for key, row in counted.items():
        rows, forwarded = recorded.get(key, (0, 0))
        if row["received"] > rows:
            missing.append(
                Shortfall(
                    **{name: row[name] for name in (*ATTEMPT, "received", "error")},
                    ended_at=row["ended_at"] or row["started_at"],
                    unaccounted=row["received"] - rows,
                    forwarded=max(0, row["forwarded"] - forwarded),
                )
            )
    return sorted(missing, key=lambda each: (each.ended_at, each.job, each.slot, each.attempt, each.queue))


def _concerns(job: OpenJobReport, selection: Selection) -> bool:
    """Whether an open job may have moved messages of the selected pair within the period."""
    since, until = selection.period.since, selection.period.until
    return (
        selection.pair in (None, job.pair)
        and (until is None or job.opened_at < until)
        and (since is None or job.heard_at + LONGEST_JOB >= since)
    )


def _at(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def _when(millis: int | None) -> datetime | None:
    return None if millis is None else _at(millis)
