"""`syphon inspect`: what is in the backlog now."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import volume

from .chosen_queues import assignments, exit_code_for, queue_options, unseen_records
from .exit_codes import ExitCode
from .settings_file import config_option, load
from .tables import show_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from syphon.backlog import SelectedQueue
    from syphon.spark import DestinationSummary, Objection

    from .chosen_queues import Unseen


@click.command(short_help="Say what is in the backlog, and change nothing.")
@config_option
@queue_options
@click.option("--sql", "query", metavar="QUERY", help="Spark SQL on the view `backlog` instead of the usual tables.")
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(min=1), help="Rows to print at the most.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Say more: Spark's own words, too.")
def inspect(
    config_file: Path,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    query: str | None,
    limit: int,
    as_json: bool,
    verbose: bool,
) -> None:
    """Look into the backlog queues by peek: per destination how many messages, how large, how old, and what would be
    dead-lettered and why. Nothing is received, locked or changed.

    \b
      syphon inspect -c config.yaml
      syphon inspect -c config.yaml --pair contoso --queue 0 --queue 1
      syphon inspect -c config.yaml --sql "select session_id, count(*) from backlog group by 1 order by 2 desc"
      syphon inspect -c config.yaml --json --sql "select * from backlog where delivery_count > 3"

    \b
    Columns of `backlog`: pair, queue, sequence_number, message_id, destination, session_id, enqueued_at,
    scheduled_for, expires_at, size, delivery_count, state (active, deferred, scheduled), dead_letter_reason,
    dead_letter_description (null for what can go home). Times are UTC.

    \b
    Exit codes: 0 · 1 a queue is missing · 2 usage, or a query that Spark does not take · 69 · 77 · 78 as ever
    """
    from syphon.config import LogLevel
    from syphon.ops import set_up_logging

    config = load(config_file)
    set_up_logging(LogLevel.DEBUG if verbose else LogLevel.WARNING, config.log.format)
    seen, unseen = _reachable(assignments(config, pairs, queues))
    told = unseen_records(unseen)
    if not seen:
        raise SystemExit(exit_code_for(unseen))

    from syphon.model import SyphonError
    from syphon.spark import VIEW, BadQuery, asking, backlog_frame, looking, spark_session

    if not as_json:
        click.echo(f"Starting Spark on {config.pipeline.master} …", err=True)
    try:
        with spark_session(config.pipeline, "syphon inspect") as spark:
            frame = backlog_frame(spark, seen).persist()
            try:
                with looking():
                    frame.count()  # everything is looked at once, and what is asked below is answered from that
                if query is None:
                    _overview(frame, limit, as_json, told)
                else:
                    frame.createOrReplaceTempView(VIEW)
                    with asking():
                        _answer(spark.sql(query), limit, as_json)
            finally:
                frame.unpersist()
    except BadQuery as error:
        raise click.UsageError(f"Spark does not take this query: {error}") from None
    except SyphonError as error:  # Spark did not start, or a namespace went away meanwhile
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.UNAVAILABLE) from None
    raise SystemExit(exit_code_for(unseen))


def _reachable(chosen: list[SelectedQueue]) -> tuple[list[SelectedQueue], list[Unseen]]:
    """Queues that can be listened to, and why others cannot: told before Spark takes its time to start."""
    from syphon.backlog import by_pair
    from syphon.bus import connected, try_receiver
    from syphon.model import SyphonError

    seen: list[SelectedQueue] = []
    unseen: list[Unseen] = []
    for pair, ours in by_pair(chosen):
        try:
            with connected(pair.secondary, ours[0].queue) as connection:
                for assignment in ours:
                    error = try_receiver(connection, assignment.queue)
                    if error is None:
                        seen.append(assignment)
                    else:
                        unseen.append((assignment, error))
        except SyphonError as error:
            unseen += [(assignment, error) for assignment in ours]
    return seen, unseen


def _overview(frame: DataFrame, limit: int, as_json: bool, unseen: list[dict[str, str]]) -> None:
    from syphon.spark import objections, summary

    waiting, refused = summary(frame), objections(frame)
    if as_json:
        result = {
            "destinations": [_plain(asdict(found)) for found in waiting[:limit]],
            "dead_letters": [_plain(asdict(found)) for found in refused[:limit]],
            "unseen": unseen,
        }
        click.echo(json.dumps(result, indent=2))
    else:
        _show(waiting, refused, limit)
    _mention_rest(max(len(waiting), len(refused)), limit)


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    oldest = record.get("oldest")
    return {**record, "oldest": oldest.isoformat(timespec="milliseconds")} if oldest is not None else record


def _show(waiting: list[DestinationSummary], refused: list[Objection], limit: int) -> None:
    if not waiting:
        click.echo("The backlog is empty.")
        return
    show_table(
        ("pair", "destination", "messages", "size", "oldest (UTC)", "scheduled", "expired", "would be dead-lettered"),
        [
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
            for found in waiting[:limit]
        ],
    )
    total, weight = sum(found.messages for found in waiting), sum(found.bytes for found in waiting)
    click.echo(f"\n{total:,} messages, {volume(weight)}, for {len(waiting):,} destinations.")
    if refused:
        click.echo("\nWould be dead-lettered:")
        rows = [
            (found.pair, found.destination or "(none)", found.reason, found.messages, found.example)
            for found in refused[:limit]
        ]
        show_table(("pair", "destination", "reason", "messages", "for example"), rows)


def _answer(frame: DataFrame, limit: int, as_json: bool) -> None:
    """The rows of a query. Spark itself writes the values: it knows all its types, and their time zone."""
    from pyspark.sql import functions as f

    some = frame.limit(limit + 1)
    if as_json:
        found = some.select(f.to_json(f.struct("*"), {"ignoreNullFields": "false"})).collect()
        click.echo("[" + ",\n ".join(row[0] for row in found[:limit]) + "]")
    else:
        renamed = some.toDF(*(f"c{number}" for number in range(len(frame.columns))))
        found = renamed.select(*(f.col(name).cast("string") for name in renamed.columns)).collect()
        show_table(frame.columns, [tuple(row) for row in found[:limit]])
    _mention_rest(len(found), limit)


def _mention_rest(found: int, limit: int) -> None:
    if found > limit:
        click.echo(f"There are more than {limit:,}: --limit shows more.", err=True)
