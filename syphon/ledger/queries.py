"""The queries of a report on the ledger, in Spark SQL. Their results are a `Report`.

A message is identified by pair, queue, sequence number and the time it came into the backlog: a queue that was deleted
and created again starts its sequence numbers at one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from .files import cause
from .open_jobs import OpenRecord
from .report import (
    Band,
    DestinationReport,
    Hour,
    Messages,
    OpenJobReport,
    OpenQueue,
    Period,
    ReasonCount,
    Repeat,
    Report,
    Shortfall,
    Spread,
    Timeline,
    TimelineStep,
    Transfers,
)
from .schema import EPOCH
from .store import Ledger, LedgerUnreadable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

DAY = timedelta(days=1)
BANDS = (1, 10, 60, 300, 900, 3_600, 14_400, 86_400)
"""Seconds in the backlog: the borders between the bands."""
STEPS = (60, 300, 900, 3_600, 21_600, 86_400)
"""Possible lengths of a timeline step in seconds. The shortest that needs at most MOST_STEPS steps is used."""
MOST_STEPS = 120
MOST_LINES = 10_000
"""The limit of lists whose length depends on the content of messages."""
LONGEST_ATTEMPT = timedelta(days=2)
"""Longer than any attempt: a task lives no longer than its lease, and a lease is at most an hour."""


LONGEST_JOB = timedelta(hours=1)
"""A job moves no message for longer than this after it was last heard of: a lease is at most an hour."""
HEARD = timedelta(minutes=1)
"""A job that was heard of within this time may still be running."""
TRIES = 3


def query_report(
    spark: SparkSession,
    ledger: Ledger,
    period: Period | None = None,
    pair: str | None = None,
    now: datetime | None = None,
) -> Report:
    """The report on a period and a pair, or on everything. Raises LedgerUnreadable."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    for last in (False,) * (TRIES - 1) + (True,):
        try:
            with _Queries(spark, ledger, period or Period(), pair, now or datetime.now(UTC)) as queries:
                return queries.report()
        except (Py4JError, PySparkException) as error:
            # A file that is gone was merged into another one since Spark listed it.
            if last or not re.search("FileNotFoundException|FILE_NOT_EXIST", str(error)):
                raise LedgerUnreadable(f"The ledger at {ledger.path} cannot be read: {cause(error)}.") from error
    raise AssertionError("unreachable")


class _Queries:
    """Queries over the transfers of a period, and over the messages of these transfers."""

    def __init__(self, spark: SparkSession, ledger: Ledger, period: Period, pair: str | None, now: datetime) -> None:
        from pyspark.sql.functions import col, expr

        self._spark, self._ledger, self._period, self._pair, self._now = spark, ledger, period, pair, now
        # In the opposite order of writing, so that a job that is closed meanwhile is seen at least once.
        self._open, self._broken = ledger.open_jobs()
        all_attempts = ledger.attempts()
        of_pair = expr("true") if pair is None else col("pair") == pair
        near = Period(period.since and period.since - LONGEST_ATTEMPT, period.until and period.until + LONGEST_ATTEMPT)
        everything = ledger.transfers()
        self._views = {
            "everything": everything,
            "all_attempts": all_attempts,
            "attempts": all_attempts.where(of_pair & _within(period, "ended_at")),
            # An attempt may also have rows outside the borders of the period.
            "recorded": everything.where(of_pair & _within(near, "settled_at")),
            "transfers": everything.where(of_pair & _within(period, "settled_at")).selectExpr(*_TRANSFER).persist(),
        }
        self._views["messages"] = self._sql(_MESSAGES).persist()

    def __enter__(self) -> _Queries:
        return self

    def __exit__(self, *_: object) -> None:
        self._views["messages"].unpersist()
        self._views["transfers"].unpersist()

    def report(self) -> Report:
        shortfalls, open_jobs = self.missing()
        messages, in_backlog = self.messages()
        dead_letters, left = self.reasons()
        (totals,) = self._rows("""
            select count_if(outcome in ('forwarded', 'dead_lettered', 'left')) as recorded,
                   count_if(outcome = 'forwarded') as forwarded, count_if(outcome = 'dead_lettered') as dead_lettered,
                   count_if(outcome = 'left') as left, count_if(possible_duplicate) as possible_duplicates,
                   coalesce(sum(size), 0) as bytes,
                   unix_millis(min(settled_at)) as first, unix_millis(max(settled_at)) as last
            from {transfers}
        """)
        return Report(
            ledger=self._ledger.path,
            period=self._period,
            pair=self._pair,
            pairs=self.pairs(),
            first=_when(totals.first),
            last=_when(totals.last),
            transfers=Transfers(
                received=totals.recorded
                + sum(each.unaccounted for each in shortfalls)
                + sum(each.received for each in open_jobs if not each.may_be_running),
                forwarded=totals.forwarded,
                dead_lettered=totals.dead_lettered,
                left=totals.left,
                possible_duplicates=totals.possible_duplicates,
                bytes=totals.bytes,
            ),
            messages=messages,
            in_backlog=in_backlog,
            waits=self.waits(),
            timeline=self.timeline(totals.first, totals.last),
            destinations=self.destinations(),
            hours=self.hours(),
            dead_letters=dead_letters,
            left=left,
            repeats=self.repeats(),
            shortfalls=shortfalls,
            open_jobs=open_jobs,
            unreadable_files=sorted([*self._ledger.unreadable_files(), *self._broken]),
        )

    def pairs(self) -> list[str]:
        found = {row.pair for row in self._rows("select distinct pair from {everything}")}
        return sorted(found | {job.pair for job in self._open})

    def messages(self) -> tuple[Messages, Spread | None]:
        (row,) = self._rows("""
            select count_if(outcome = 'forwarded') as forwarded,
                   count_if(outcome = 'dead_lettered') as dead_lettered, count_if(outcome = 'left') as left,
                   count_if(forwards > 1) as repeated,
                   coalesce(sum(forwards - 1) filter (where forwards > 1), 0) as copies,
                   percentile_approx(waited, array(0.5, 0.95)) as points, max(waited) as longest
            from {messages}
        """)
        messages = Messages(row.forwarded, row.dead_lettered, row.left, row.repeated, row.copies)
        return messages, _spread(row.points, row.longest)

    def waits(self) -> list[Band]:
        from pyspark.sql.functions import array, lit

        rows = self._rows(
            """
            select size(filter(:bands, band -> band * 1000 <= waited)) as band, count(*)
            from {messages} where waited is not null group by band
            """,
            bands=array(*map(lit, BANDS)),
        )
        found = dict(map(tuple, rows))
        return [Band(below, found.get(band, 0)) for band, below in enumerate((*BANDS, None))]

    def timeline(self, first: int | None, last: int | None) -> Timeline:
        if first is None or last is None:
            return Timeline(STEPS[0], [])
        fitting = (step for step in STEPS if last // (step * 1000) - first // (step * 1000) < MOST_STEPS)
        seconds = next(fitting, STEPS[-1])
        rows = self._rows(
            """
            select floor(unix_seconds(settled_at) / :seconds) as step, count_if(outcome = 'forwarded'),
                   count_if(outcome = 'dead_lettered'), count_if(outcome = 'left')
            from {transfers} group by step
            """,
            seconds=seconds,
        )
        found = {row.step: row[1:] for row in rows}
        numbers = range(first // (seconds * 1000), last // (seconds * 1000) + 1)
        return Timeline(
            seconds, [TimelineStep(_at(number * seconds * 1000), *found.get(number, (0, 0, 0))) for number in numbers]
        )

    def destinations(self) -> list[DestinationReport]:
        rows = self._rows(
            """
            select destination as name, count(*) as messages, count_if(outcome = 'forwarded') as forwarded,
                   count_if(outcome = 'dead_lettered') as dead_lettered, count_if(outcome = 'left') as left,
                   count_if(possible_duplicate) as possible_duplicates, count_if(forwards > 1) as repeated,
                   sum(size) as bytes,
                   struct(percentile_approx(waited, array(0.5, 0.95)), max(waited)) as in_backlog,
                   struct(percentile_approx(carried, array(0.5, 0.95)), max(carried)) as carrying
            from {messages} group by destination order by messages desc, name limit :most
            """,
            most=MOST_LINES,
        )
        return [
            DestinationReport(**_values(row, in_backlog=_spread(*row.in_backlog), carrying=_spread(*row.carrying)))
            for row in rows
        ]

    def hours(self) -> list[Hour]:
        rows = self._rows(
            """
            select floor(unix_seconds(settled_at) / 3600) as hour, destination, count_if(outcome = 'forwarded'),
                   count_if(outcome = 'dead_lettered'), count_if(outcome = 'left')
            from {transfers} group by hour, destination order by hour, destination limit :most
            """,
            most=MOST_LINES,
        )
        return [Hour(_at(row.hour * 3_600_000), *row[1:]) for row in rows]

    def reasons(self) -> tuple[list[ReasonCount], list[ReasonCount]]:
        """The reasons of dead letters, and of messages that are left."""
        rows = self._rows(
            """
            select outcome, kind as reason, destination, count(*) as messages,
                   unix_millis(min(enqueued_at)) as oldest, unix_millis(max(settled_at)) as last_tried,
                   max_by(reason, settled_at) as example
            from {messages} where outcome != 'forwarded'
            group by all order by messages desc, reason, destination limit :most
            """,
            most=MOST_LINES,
        )

        def of(outcome: str) -> list[ReasonCount]:
            return [
                ReasonCount(
                    row.reason, row.destination, row.messages, _when(row.oldest), _at(row.last_tried), row.example
                )
                for row in rows
                if row.outcome == outcome
            ]

        return of("dead_lettered"), of("left")

    def repeats(self) -> list[Repeat]:
        rows = self._rows(
            """
            select pair, queue, sequence_number, message_id, destination, forwards
            from {messages} where forwards > 1 order by forwards desc, pair, queue, sequence_number limit :most
            """,
            most=MOST_LINES,
        )
        return [Repeat(*row) for row in rows]

    def missing(self) -> tuple[list[Shortfall], list[OpenJobReport]]:
        """Attempts and jobs of which rows are missing, each receipt once.

        A job whose attempts are on record was being closed: its attempts say exactly what is missing, if anything. But
        as long as its driver may be running, its rows may only be on their way.
        """
        shortfalls = self.shortfalls()
        open_jobs = [self._open_job(job) for job in self._open if self._concerns(job)]
        running = {(job.pair, job.job) for job in open_jobs if job.may_be_running}
        short = {(each.pair, each.job) for each in shortfalls}
        closing = self._with_attempts(open_jobs)
        return (
            [each for each in shortfalls if (each.pair, each.job) not in running],
            [
                job
                for job in open_jobs
                if (job.pair, job.job) not in closing or (job.may_be_running and (job.pair, job.job) in short)
            ],
        )

    def _concerns(self, job: OpenRecord) -> bool:
        """Whether an open job may have moved messages of this pair within the period."""
        since, until = self._period.since, self._period.until
        return (
            self._pair in (None, job.pair)
            and (until is None or job.opened_at < until)
            and (since is None or job.heard_at + LONGEST_JOB >= since)
        )

    def _open_job(self, job: OpenRecord) -> OpenJobReport:
        queues = [
            OpenQueue(name, each.received, each.forwarded, each.dead_lettered, each.left)
            for name, each in sorted(job.queues.items())
        ]
        may_be_running = self._now - job.heard_at <= HEARD
        times = (job.opened_at, job.heard_at)
        return OpenJobReport(job.pair, job.job, job.slots, *times, job.host, job.pid, may_be_running, queues)

    def _with_attempts(self, jobs: list[OpenJobReport]) -> set[tuple[str, str]]:
        """Those of these jobs that have attempts on record."""
        from pyspark.sql.functions import array, lit

        if not jobs:
            return set()
        names = array(*(lit(job.job) for job in jobs))
        rows = self._rows("select distinct pair, job from {all_attempts} where array_contains(:jobs, job)", jobs=names)
        return {(row.pair, row.job) for row in rows}

    def shortfalls(self) -> list[Shortfall]:
        rows = self._rows("""
            with counted as (
                select pair, job, slot, attempt, queue, max(coalesce(ended_at, started_at)) as ended_at,
                       max(received) as received, max(forwarded) as forwarded, max(error) as error
                from {attempts} group by pair, job, slot, attempt, queue
            ), found as (
                select pair, job, slot, attempt, queue, count(*) as rows, count_if(outcome = 'forwarded') as forwarded
                from {recorded} group by pair, job, slot, attempt, queue
            )
            select pair, queue, job, slot, attempt, unix_millis(ended_at) as ended_at, received,
                   received - coalesce(rows, 0) as unaccounted,
                   greatest(0, counted.forwarded - coalesce(found.forwarded, 0)) as forwarded, error
            from counted left join found using (pair, job, slot, attempt, queue)
            where received > coalesce(rows, 0) order by ended_at, job, slot, attempt, queue
        """)
        return [Shortfall(**_values(row, ended_at=_at(row.ended_at))) for row in rows]

    def _rows(self, query: str, **values: Any) -> list[Row]:
        return self._sql(query, **values).collect()

    def _sql(self, query: str, **values: Any) -> DataFrame:
        """Runs a query, which names the views in braces and its values with a colon."""
        return self._spark.sql(query, values, **self._views)


_TRANSFER = (
    "pair",
    "queue",
    "sequence_number",
    "message_id",
    "enqueued_at",
    "settled_at",
    "size",
    "outcome",
    "reason",
    "possible_duplicate",
    # Names of entities: capitals and slashes around them make no difference to Service Bus.
    "lower(trim(both '/' from destination)) as destination",
    "unix_millis(forwarded_at) - unix_millis(received_at) as carried",
    # The clock of the broker, which set the first of these times, and ours may differ a little.
    "unix_millis(greatest(enqueued_at, coalesce(forwarded_at, settled_at))) - unix_millis(enqueued_at) as waited",
    # The first word of a reason if a colon follows it; else the whole reason without the parts that always differ.
    r"coalesce(nullif(regexp_extract(reason, r'^(\S+): ', 1), ''), regexp_replace(reason, ' ?TrackingId:.*', ''))"
    " as kind",
)

_MESSAGES = """
    select best.*, pair, queue, sequence_number, enqueued_at, message_id, size, forwards, possible_duplicate, waited,
           carried
    from (
        select pair, queue, sequence_number, enqueued_at, max(message_id) as message_id, max(size) as size,
               max(named_struct(
                   'rank', case outcome when 'forwarded' then 2 when 'dead_lettered' then 1 else 0 end,
                   'settled_at', settled_at, 'outcome', outcome, 'destination', destination, 'kind', kind,
                   'reason', reason
               )) as best,
               count_if(outcome = 'forwarded') as forwards,
               bool_or(possible_duplicate) as possible_duplicate,
               min(waited) filter (where outcome = 'forwarded') as waited,
               max(carried) filter (where outcome = 'forwarded') as carried
        from {transfers} group by pair, queue, sequence_number, enqueued_at
    )
"""


def _within(period: Period, time: str) -> Column:
    """The condition for rows of a period. It also compares the date, so that Spark skips folders of other days.

    The attempts of a job are all in the folder of the day on which the last of them ended.
    """
    from pyspark.sql.functions import col, expr

    date, micros, found = col("date"), expr(f"unix_micros({time})"), expr("true")
    if period.since is not None:
        found &= (date >= period.since.astimezone(UTC).date()) & (micros >= _micros(period.since))
    if period.until is not None:
        found &= (date <= period.until.astimezone(UTC).date() + DAY) & (micros < _micros(period.until))
    return found


def _micros(when: datetime) -> int:
    return (when - EPOCH) // timedelta(microseconds=1)


def _at(millis: int) -> datetime:
    return EPOCH + timedelta(milliseconds=millis)


def _when(millis: int | None) -> datetime | None:
    return None if millis is None else _at(millis)


def _values(row: Row, **others: Any) -> dict[str, Any]:
    """A row as keyword arguments; `others` replaces columns whose values Python represents differently."""
    return row.asDict() | others


def _spread(points: list[int] | None, longest: int | None) -> Spread | None:
    if points is None or longest is None:
        return None
    return Spread(points[0] / 1000, points[1] / 1000, longest / 1000)
