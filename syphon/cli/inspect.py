"""`syphon inspect`: shows what is in the backlog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode, SyphonError, volume

from .backlog_queues import queue_options, report_unreachable, selected_queues, warn_of_stranded
from .shared_options import config_option, load_settings, needs_spark, where_option
from .tables import say, say_renames, show_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from syphon.operations import BacklogOverview
    from syphon.sql import Where


@click.command(short_help="Show what is in the backlog (read-only).")
@config_option
@queue_options
@where_option
@click.option(
    "--sql",
    "query",
    metavar="QUERY",
    help="Run a Spark SQL query on the view `backlog` instead of printing the usual tables.",
)
@click.option(
    "--limit", default=1000, show_default=True, type=click.IntRange(min=1), help="Print at most this many rows."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Log at debug level, with the output of Spark.")
@needs_spark
def inspect(
    config_file: Path,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    where: Where | None,
    query: str | None,
    limit: int,
    as_json: bool,
    verbose: bool,
) -> None:
    """Peek into the backlog queues and show, per destination, how many messages are waiting, their size and age, and
    which would be dead-lettered and why. The command receives, locks and changes nothing.

    \b
      syphon inspect -c config.yaml
      syphon inspect -c config.yaml --pair contoso --queue 0 --queue 1
      syphon inspect -c config.yaml --where "amount > 100"
      syphon inspect --sql "select session_id, count(*) from backlog group by 1"
      syphon inspect --json --sql "select * from backlog where delivery_count > 3"

    Columns of `backlog`: pair, queue, sequence_number, message_id, destination, session_id, enqueued_at,
    scheduled_for, expires_at, size, delivery_count, state (active, deferred, scheduled), dead_letter_reason,
    dead_letter_description (null for messages that can be forwarded), restored_size (bytes at its destination),
    backlog_expires_at (when it expires in the backlog, if ever). Times are UTC. `--sql` takes a single query, which
    may read only this view.

    Exit codes: 0 done · 1 a queue is missing · 2 wrong usage, or a rejected query ·
    69 a namespace is unreachable · 77 not authorized · 78 invalid settings
    """
    from syphon.config import LogLevel
    from syphon.datasource import BadQuery
    from syphon.operations import look_at_backlog, query_backlog, reach_queues
    from syphon.spark import shown_master
    from syphon.status import set_up_logging

    config = load_settings(config_file)
    set_up_logging(LogLevel.DEBUG if verbose else LogLevel.WARNING, config.log.format)
    reach = reach_queues(selected_queues(config, pairs, queues))
    report_unreachable(reach.unreachable)
    warn_of_stranded(config, reach.queues)
    if not reach.queues:
        raise SystemExit(reach.exit_code)

    def starting() -> None:
        if not as_json:
            click.echo(f"Starting Spark on {shown_master(config.pipeline.master)} …", err=True)

    try:
        if query is None:
            _show_overview(look_at_backlog(config, reach, starting=starting, where=where), limit, as_json)
        else:
            starting()
            with query_backlog(config, reach, query, where=where) as rows:
                _answer(rows, limit, as_json)
    except BadQuery as error:
        raise click.UsageError(f"Query rejected: {error}") from None
    except SyphonError as error:  # Spark did not start, or a namespace became unreachable
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.UNAVAILABLE) from None
    raise SystemExit(reach.exit_code)


def _show_overview(found: BacklogOverview, limit: int, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(found.as_json(limit), indent=2))
    else:
        _show(found, limit)
    _mention_rest(max(len(found.destinations), len(found.dead_letters)) > limit, limit)


def _show(overview: BacklogOverview, limit: int) -> None:
    if not overview.destinations:
        click.echo(str(overview))
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
            for found in overview.destinations[:limit]
        ],
        name=1,
        may_give_way=("pair", "scheduled", "expired"),
    )
    click.echo()
    say(str(overview))
    if overview.expiry_warning:
        say(f"warning: {overview.expiry_warning}.")
    say_renames(overview.destinations[:limit])
    if overview.dead_letters:
        click.echo("\nWould be dead-lettered:")
        rows = [
            (found.pair, found.destination or "(none)", found.reason, found.messages, found.example)
            for found in overview.dead_letters[:limit]
        ]
        titles = ("pair", "destination", "reason", "messages", "for example")
        show_table(titles, rows, name=1, may_give_way=("pair",))


def _answer(frame: DataFrame, limit: int, as_json: bool) -> None:
    """Prints the rows of a query."""
    from syphon.operations import json_rows, text_rows

    if as_json:
        texts, is_complete = json_rows(frame, limit)
        click.echo("[" + ",\n ".join(texts) + "]")
    else:
        rows, is_complete = text_rows(frame, limit)
        show_table(frame.columns, rows)
    _mention_rest(not is_complete, limit)


def _mention_rest(is_there: bool, limit: int) -> None:
    if is_there:
        click.echo(f"There are more than {limit:,} rows; --limit N prints more.", err=True)
