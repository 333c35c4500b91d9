"""`syphon.inspect`: shows what is in the backlog now, by peek. It receives, locks and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, overload

from syphon.backlog import SelectedQueue, by_pair, select_queues
from syphon.bus import connected, peek, try_receiver
from syphon.config import Config
from syphon.model import EntityPath, ExitCode, InvalidOption, SyphonError, exit_code_for
from syphon.spark import (
    VIEW,
    DestinationSummary,
    answer_query,
    asking,
    backlog_frame,
    dead_letter_previews,
    looking,
    session_for_queries,
    spark_session,
    summary,
)

from .backlog_overview import BacklogAnswer, BacklogOverview, UnseenQueue
from .options import ConfigLike, Names, Queues, names_of, settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
) -> BacklogOverview: ...


@overload
def inspect(
    config: ConfigLike,
    spark: SparkSession | None = None,
    *,
    sql: str,
    pairs: Names = (),
    queues: Queues = (),
    limit: int = MOST_ROWS,
) -> BacklogAnswer: ...


def inspect(
    config: ConfigLike,
    spark: SparkSession | None = None,
    *,
    sql: str | None = None,
    pairs: Names = (),
    queues: Queues = (),
    limit: int = MOST_ROWS,
) -> BacklogOverview | BacklogAnswer:
    """Peeks into the backlog queues: per destination how many messages there are, how large and how old they are, and
    which would be dead-lettered and why.

    With `sql`, one query on the view `backlog` is answered instead, with at most `limit` rows. It may read this view
    and nothing else, and needs a classic session. Settings and session are those of `drain`. A queue that is out of
    reach is in `unseen`; if all are, the error of the first is raised.
    """
    settings = settings_of(config)
    reach = reach_queues(select_queues(settings.pairs, names_of(pairs), names_of(queues)))
    if not reach.queues:
        raise reach.unreachable[0][1]
    if sql is None:
        return look_at_backlog(settings, reach, spark)
    if limit < 1:
        raise InvalidOption(f"{limit} is not a limit: it must be 1 or more.")
    with query_backlog(settings, reach, sql, spark) as frame:
        texts, is_complete = json_rows(frame, limit)
        rows = tuple(tuple(value for _, value in json.loads(text, object_pairs_hook=list)) for text in texts)
        return BacklogAnswer(tuple(frame.columns), rows, is_complete, reach.unseen, reach.exit_code)


def reach_queues(selected: Sequence[SelectedQueue]) -> Reach:
    """The queues that can be received from, and why others cannot: known before Spark takes its time to start."""
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

    Asked first: where there is nothing to look at, Spark need not start.
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
    config: Config, reach: Reach, spark: SparkSession | None = None, starting: Callable[[], None] = lambda: None
) -> BacklogOverview:
    """What these queues hold. `starting` is called before Spark is used, if there is something to look at."""
    if not has_messages(reach.queues):
        return BacklogOverview(unseen=reach.unseen, exit_code=reach.exit_code)
    starting()
    with _session(config, spark) as ours, _peeked(ours, reach) as frame:
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
def query_backlog(config: Config, reach: Reach, query: str, spark: SparkSession | None = None) -> Iterator[DataFrame]:
    """The rows that a query on the view of these queues gives. Raises BadQuery, also while the rows are fetched."""
    with _session(config, spark) as ours:
        # The caller's session may have a view of this name, and another time zone.
        apart = session_for_queries(ours)
        with _peeked(apart, reach) as frame:
            frame.createOrReplaceTempView(VIEW)
            with asking():
                yield answer_query(apart, query)


def _session(config: Config, given: SparkSession | None) -> AbstractContextManager[SparkSession]:
    return spark_session(config.pipeline, "syphon inspect", given=given)


@contextmanager
def _peeked(spark: SparkSession, reach: Reach) -> Iterator[DataFrame]:
    """One peek at everything; the queries read its result."""
    frame = backlog_frame(spark, reach.queues).persist()
    try:
        with looking():
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
