"""`syphon.inspect`: shows what is in the backlog, by peek. It receives, locks and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from syphon.backlog import SelectedQueue, by_pair, expiry_warning, select_queues
from syphon.config import Config, ConfigLike, settings_of
from syphon.datasource import (
    SELECTED,
    VIEW,
    DeadLetterPreview,
    DestinationSummary,
    answer_query,
    asking,
    backlog_frame,
    dead_letter_previews,
    looking,
    summary,
)
from syphon.model import (
    EntityPath,
    ExitCode,
    InvalidOption,
    MessageCondition,
    SyphonError,
    exit_code_for,
    html_line,
    html_table,
    plural,
    volume,
)
from syphon.option_declarations import Names, Queues, read_names, read_where
from syphon.servicebus import connected, peek, try_receiver
from syphon.spark import session_for_queries, spark_session
from syphon.sql import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class UnseenQueue:
    """A backlog queue that could not be read, and why."""

    queue: str
    error: str


@dataclass(frozen=True, slots=True)
class BacklogOverview:
    """What is in the backlog."""

    destinations: tuple[DestinationSummary, ...] = ()
    """The messages that wait for each destination, the most first."""
    dead_letters: tuple[DeadLetterPreview, ...] = ()
    """The messages that a drain would dead-letter, by reason, the most first."""
    unseen: tuple[UnseenQueue, ...] = ()
    exit_code: ExitCode = ExitCode.OK

    @property
    def messages(self) -> int:
        return sum(found.messages for found in self.destinations)

    @property
    def bytes(self) -> int:
        return sum(found.bytes for found in self.destinations)

    @property
    def expiry_warning(self) -> str:
        """A warning about messages that expire in the backlog (M9); empty if there are none."""
        messages = sum(found.expiring_in_backlog for found in self.destinations)
        moments = (found.first_backlog_expiry for found in self.destinations)
        first = min((moment for moment in moments if moment), default=None)
        return expiry_warning(messages, f"{first:%Y-%m-%d %H:%M} UTC") if first is not None else ""

    def as_json(self, limit: int | None = None) -> dict[str, Any]:
        """The overview in its documented form for programs (docs/commands.md)."""
        return {
            "destinations": [_plain(asdict(found)) for found in self.destinations[:limit]],
            "dead_letters": [_plain(asdict(found)) for found in self.dead_letters[:limit]],
            "unseen": [asdict(found) for found in self.unseen],
        }

    def __str__(self) -> str:
        unseen = f"; {plural(len(self.unseen), 'queue')} could not be read" if self.unseen else ""
        if not self.destinations:
            return f"No messages found{unseen}." if unseen else "The backlog is empty."
        destinations = plural(len(self.destinations), "destination")
        return f"{plural(self.messages, 'message')}, {volume(self.bytes)}, for {destinations}{unseen}."

    def _repr_html_(self) -> str:
        parts = [html_line(str(self), strong=True)]
        if self.destinations:
            titles = ("pair", "destination", "messages", "size", "oldest (UTC)", "scheduled", "expired")
            rows = [
                (
                    found.pair,
                    found.destination or "(none)",
                    found.messages,
                    volume(found.bytes),
                    found.oldest and f"{found.oldest:%Y-%m-%d %H:%M:%S}",
                    found.scheduled,
                    found.expired,
                    found.dead_letters,
                )
                for found in self.destinations
            ]
            parts.append(html_table((*titles, "would be dead-lettered"), rows))
        if self.expiry_warning:
            parts.append(html_line(self.expiry_warning))
        if self.dead_letters:
            refused = [
                (found.pair, found.destination or "(none)", found.reason, found.messages, found.example)
                for found in self.dead_letters
            ]
            parts.append(html_table(("pair", "destination", "reason", "messages", "for example"), refused))
        if self.unseen:
            parts.append(html_table(("unreadable queue", "error"), [(each.queue, each.error) for each in self.unseen]))
        return "".join(parts)


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat(timespec="milliseconds") if isinstance(value, datetime) else value
        for name, value in record.items()
    }


@dataclass(frozen=True, slots=True)
class BacklogAnswer:
    """The answer to a query on the backlog. Values are those of JSON: times are texts in UTC."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_complete: bool = True
    """Whether these are all rows, and not only the first ones."""
    unseen: tuple[UnseenQueue, ...] = ()
    exit_code: ExitCode = ExitCode.OK

    def as_json(self) -> list[dict[str, Any]]:
        """The rows as `syphon inspect --sql --json` prints them: an object for each."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def _repr_html_(self) -> str:
        more = "" if self.is_complete else html_line(f"There are more than {len(self.rows):,} rows.")
        return html_table(self.columns, self.rows) + more


MOST_ROWS = 1000


class Reach(NamedTuple):
    """Which queues can be received from, and why others cannot."""

    queues: list[SelectedQueue]
    unreachable: list[tuple[SelectedQueue, SyphonError]]

    @property
    def unseen(self) -> tuple[UnseenQueue, ...]:
        return tuple(UnseenQueue(selected.queue, str(error)) for selected, error in self.unreachable)

    @property
    def exit_code(self) -> ExitCode:
        return exit_code_for(error for _, error in self.unreachable)


@overload
def inspect(
    config: ConfigLike,
    spark: SparkSession | None = None,
    *,
    pairs: Names = (),
    queues: Queues = (),
    where: str | Where | None = None,
) -> BacklogOverview: ...


@overload
def inspect(
    config: ConfigLike,
    spark: SparkSession | None = None,
    *,
    sql: str,
    pairs: Names = (),
    queues: Queues = (),
    where: str | Where | None = None,
    limit: int = MOST_ROWS,
) -> BacklogAnswer: ...


def inspect(
    config: ConfigLike,
    spark: SparkSession | None = None,
    *,
    sql: str | None = None,
    pairs: Names = (),
    queues: Queues = (),
    where: str | Where | None = None,
    limit: int = MOST_ROWS,
) -> BacklogOverview | BacklogAnswer:
    """Peek into the backlog queues: how many messages are waiting per destination, their size and age, and which would
    be dead-lettered and why. With `where`, only of the messages for which this SQL filter is true.

    With `sql`, run one query on the view `backlog` instead, with at most `limit` rows. It may read only this view, and
    needs a classic session. Settings and session are those of `drain`. An unreachable queue is in `unseen`; if all
    queues are unreachable, the error of the first is raised.
    """
    settings, condition = settings_of(config), None if where is None else read_where(where)
    reach = reach_queues(select_queues(settings.pairs, read_names(pairs), read_names(queues)))
    if not reach.queues:
        raise reach.unreachable[0][1]
    if sql is None:
        return look_at_backlog(settings, reach, spark, where=condition)
    if limit < 1:
        raise InvalidOption(f"limit is {limit}: it must be 1 or more.")
    with query_backlog(settings, reach, sql, spark, where=condition) as frame:
        texts, is_complete = json_rows(frame, limit)
        rows = tuple(tuple(value for _, value in json.loads(text, object_pairs_hook=list)) for text in texts)
        return BacklogAnswer(tuple(frame.columns), rows, is_complete, reach.unseen, reach.exit_code)


def reach_queues(selected: Sequence[SelectedQueue]) -> Reach:
    """The queues that can be received from, and why others cannot. Checked before Spark starts, which takes time."""
    reachable: list[SelectedQueue] = []
    unreachable: list[tuple[SelectedQueue, SyphonError]] = []
    for pair, ours in by_pair(selected):
        try:
            with connected(pair.secondary, ours[0].queue) as connection:
                for queue in ours:
                    error = try_receiver(connection, queue.queue)
                    if error is None:
                        reachable.append(queue)
                    else:
                        unreachable.append((queue, error))
        except SyphonError as error:
            unreachable += [(queue, error) for queue in ours]
    return Reach(reachable, unreachable)


def has_messages(selected: Sequence[SelectedQueue]) -> bool:
    """Whether a peek finds a message in one of these queues. A queue that cannot be peeked may have one.

    Checked first, because without messages Spark need not start.
    """
    try:
        for pair, ours in by_pair(selected):
            with connected(pair.secondary, ours[0].queue) as connection:
                for queue in ours:
                    if any(True for _ in peek(connection, queue.queue)):
                        return True
    except SyphonError:
        return True
    return False


def look_at_backlog(
    config: Config,
    reach: Reach,
    spark: SparkSession | None = None,
    starting: Callable[[], None] = lambda: None,
    where: MessageCondition | None = None,
) -> BacklogOverview:
    """What is in these queues. `starting` is called before Spark is used, if there are messages."""
    if not has_messages(reach.queues):
        return BacklogOverview(unseen=reach.unseen, exit_code=reach.exit_code)
    starting()
    with _session(config, spark) as ours, _peeked(ours, reach, where) as frame:
        destinations = with_renames(summary(frame), reach.queues)
        return BacklogOverview(tuple(destinations), tuple(dead_letter_previews(frame)), reach.unseen, reach.exit_code)


def with_renames(found: Iterable[DestinationSummary], queues: Iterable[SelectedQueue]) -> list[DestinationSummary]:
    """The destinations of these queues' pairs, each with the entity that its messages would go to (D13)."""
    renames = {selected.pair.name: selected.pair.destinations.renames for selected in queues}

    def renamed(each: DestinationSummary) -> str | None:
        path = EntityPath.of(each.destination or "")
        actual = renames[each.pair].actual(path)
        return None if actual is path else actual.name

    return [replace(each, renamed_to=renamed(each)) for each in found]


@contextmanager
def query_backlog(
    config: Config,
    reach: Reach,
    query: str,
    spark: SparkSession | None = None,
    where: MessageCondition | None = None,
) -> Iterator[DataFrame]:
    """The rows that a query on the view of these queues gives. Raises BadQuery, also while the rows are fetched."""
    with _session(config, spark) as ours:
        # The caller's session may have a view of this name, and another time zone.
        apart = session_for_queries(ours)
        with _peeked(apart, reach, where) as frame:
            frame.createOrReplaceTempView(VIEW)
            with asking():
                yield answer_query(apart, query)


def _session(config: Config, given: SparkSession | None) -> AbstractContextManager[SparkSession]:
    return spark_session(config.pipeline, "syphon inspect", given=given)


@contextmanager
def _peeked(spark: SparkSession, reach: Reach, where: MessageCondition | None) -> Iterator[DataFrame]:
    """One peek at everything; the queries read its result."""
    frame = backlog_frame(spark, reach.queues, where).where(SELECTED).drop(SELECTED).persist()
    try:
        with looking(spark):
            frame.count()
        yield frame
    finally:
        frame.unpersist()


def json_rows(frame: DataFrame, limit: int) -> tuple[list[str], bool]:
    """Rows as JSON, and whether these are all. Spark itself writes the values: it knows all its types."""
    from pyspark.sql import functions as f

    found = frame.limit(limit + 1).select(f.to_json(f.struct("*"), {"ignoreNullFields": "false"})).collect()
    return [row[0] for row in found[:limit]], len(found) <= limit


def text_rows(frame: DataFrame, limit: int) -> tuple[list[tuple[str | None, ...]], bool]:
    """Rows as texts, and whether these are all."""
    from pyspark.sql import functions as f

    renamed = frame.limit(limit + 1).toDF(*(f"c{number}" for number in range(len(frame.columns))))
    found = renamed.select(*(f.col(name).cast("string") for name in renamed.columns)).collect()
    return [tuple(row) for row in found[:limit]], len(found) <= limit
