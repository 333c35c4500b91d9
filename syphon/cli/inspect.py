"""`syphon inspect`: shows what is in the backlog now."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import volume

from .backlog_queues import exit_code_for, has_messages, queue_options, report_unreachable, selected_queues
from .exit_codes import ExitCode
from .options import config_option, load_settings
from .output import say, show_table
from .renamed import say_renames, with_renames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from syphon.backlog import SelectedQueue
    from syphon.spark import DeadLetterPreview, DestinationSummary

    from .backlog_queues import UnreachableQueue


@click.command(short_help="Show what is in the backlog, and change nothing.")
@config_option
@queue_options
@click.option(
    "--sql",
    "query",
    metavar="QUERY",
    help="Answer a Spark SQL query on the view `backlog` instead of printing the usual tables.",
)
@click.option("--limit", default=1000, show_default=True, type=click.IntRange(min=1), help="The most rows to print.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Log more, with the output of Spark.")
def inspect(
    config_file: Path,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    query: str | None,
    limit: int,
    as_json: bool,
    verbose: bool,
) -> None:
    """Peek into the backlog queues: show per destination how many messages there are, how large and how old they are,
    and which would be dead-lettered and why. The command receives, locks and changes nothing.

    \b
      syphon inspect -c config.yaml
      syphon inspect -c config.yaml --pair contoso --queue 0 --queue 1
      syphon inspect -c config.yaml --sql "select session_id, count(*) from backlog group by 1 order by 2 desc"
      syphon inspect -c config.yaml --json --sql "select * from backlog where delivery_count > 3"

    \b
    Columns of `backlog`: pair, queue, sequence_number, message_id, destination, session_id, enqueued_at,
    scheduled_for, expires_at, size, delivery_count, state (active, deferred, scheduled), dead_letter_reason,
    dead_letter_description (null for messages that can be forwarded), restored_size (bytes at its destination). Times
    are UTC. `--sql` takes one query that reads this view and nothing else.

    \b
    Exit codes: 0 done · 1 a queue is missing · 2 usage, or a query that is rejected ·
    69 a namespace is out of reach · 77 not authorized · 78 the settings are wrong
    """
    from syphon.config import LogLevel
    from syphon.ops import set_up_logging

    config = load_settings(config_file)
    set_up_logging(LogLevel.DEBUG if verbose else LogLevel.WARNING, config.log.format)
    reachable, unreachable = _reachable(selected_queues(config, pairs, queues))
    records = report_unreachable(unreachable)
    if not reachable:
        raise SystemExit(exit_code_for(unreachable))

    if query is None and not has_messages(reachable):
        _show_overview([], [], reachable, limit, as_json, records)
        raise SystemExit(exit_code_for(unreachable))

    from syphon.model import SyphonError
    from syphon.spark import VIEW, BadQuery, answer_query, asking, backlog_frame, looking, spark_session

    if not as_json:
        click.echo(f"Starting Spark on {config.pipeline.master} …", err=True)
    try:
        with spark_session(config.pipeline, "syphon inspect") as spark:
            frame = backlog_frame(spark, reachable).persist()
            try:
                with looking():
                    frame.count()  # one peek at everything; the queries below read its result
                if query is None:
                    _overview(frame, reachable, limit, as_json, records)
                else:
                    frame.createOrReplaceTempView(VIEW)
                    with asking():
                        _answer(answer_query(spark, query), limit, as_json)
            finally:
                frame.unpersist()
    except BadQuery as error:
        raise click.UsageError(f"This query is rejected: {error}") from None
    except SyphonError as error:  # Spark did not start, or a namespace went out of reach
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.UNAVAILABLE) from None
    raise SystemExit(exit_code_for(unreachable))


def _reachable(selected: list[SelectedQueue]) -> tuple[list[SelectedQueue], list[UnreachableQueue]]:
    """The queues that can be received from, and why others cannot: known before Spark takes its time to start."""
    from syphon.backlog import by_pair
    from syphon.bus import connected, try_receiver
    from syphon.model import SyphonError

    reachable: list[SelectedQueue] = []
    unreachable: list[UnreachableQueue] = []
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
    return reachable, unreachable


def _overview(
    frame: DataFrame, chosen: list[SelectedQueue], limit: int, as_json: bool, unreachable: list[dict[str, str]]
) -> None:
    from syphon.spark import dead_letter_previews, summary

    _show_overview(summary(frame), dead_letter_previews(frame), chosen, limit, as_json, unreachable)


def _show_overview(
    waiting: list[DestinationSummary],
    refused: list[DeadLetterPreview],
    chosen: list[SelectedQueue],
    limit: int,
    as_json: bool,
    unreachable: list[dict[str, str]],
) -> None:
    destinations = with_renames([_plain(asdict(found)) for found in waiting[:limit]], chosen)
    if as_json:
        result = {
            "destinations": destinations,
            "dead_letters": [_plain(asdict(found)) for found in refused[:limit]],
            "unseen": unreachable,
        }
        click.echo(json.dumps(result, indent=2))
    else:
        _show(waiting, refused, limit)
        say_renames(destinations)
    _mention_rest(max(len(waiting), len(refused)), limit)


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    oldest = record.get("oldest")
    return {**record, "oldest": oldest.isoformat(timespec="milliseconds")} if oldest is not None else record


def _show(waiting: list[DestinationSummary], refused: list[DeadLetterPreview], limit: int) -> None:
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
    click.echo()
    say(f"{total:,} messages, {volume(weight)}, for {len(waiting):,} destinations.")
    if refused:
        click.echo("\nWould be dead-lettered:")
        rows = [
            (found.pair, found.destination or "(none)", found.reason, found.messages, found.example)
            for found in refused[:limit]
        ]
        show_table(("pair", "destination", "reason", "messages", "for example"), rows)


def _answer(frame: DataFrame, limit: int, as_json: bool) -> None:
    """Prints the rows of a query. Spark itself writes the values: it knows all its types, and their time zone."""
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
        click.echo(f"There are more than {limit:,} rows: --limit sets the number to print.", err=True)
