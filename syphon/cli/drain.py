"""`syphon drain`: carry the backlog home, once."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import printable

from .backlog_queues import queue_options, selected_queues
from .exit_codes import ExitCode
from .options import Moment, Rate, Seconds, config_option, load_settings, millis_of
from .output import show_table
from .signals import stop_on_signal

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue
    from syphon.config import Config
    from syphon.worker import DrainOptions, DrainResult

log = logging.getLogger("syphon")


@click.command(short_help="Carry the backlog home, once.")
@config_option
@click.option("--dry-run", is_flag=True, help="Say what would be moved, in what time and at what cost; move nothing.")
@queue_options
@click.option("--destination", "only", multiple=True, metavar="PATTERN", help="Only messages for such destinations.")
@click.option("--before", type=Moment(), help="Only what came into the backlog before then: a time, or 2h for 2 h ago.")
@click.option("--after", type=Moment(), help="Only what came into the backlog from then on.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Move so many messages at the most.")
@click.option("--rate", type=Rate(), help="Take so many messages a second at the most, from each pair.")
@click.option("--timeout", type=Seconds(), help="Stop after this time, with care.")
@click.option(
    "--patience",
    type=Seconds(),
    default="2m",
    show_default=True,
    help="Give a queue up when nothing has moved for so long.",
)
@click.option("--all-found", is_flag=True, help="Also backlog queues beyond backlog_queue_count (needs Manage).")
@click.option("--ttl", type=click.Choice(["restore", "remaining"]), help="What becomes of a time to live.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("-v", "--verbose", is_flag=True, help="Say more: Spark's own words, too.")
def drain(
    config_file: Path,
    dry_run: bool,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    only: tuple[str, ...],
    before: datetime | None,
    after: datetime | None,
    limit: int | None,
    rate: float | None,
    timeout: float | None,
    patience: float,
    all_found: bool,
    ttl: str | None,
    as_json: bool,
    yes: bool,
    verbose: bool,
) -> None:
    """Move every message of the backlog queues to its destination, and prove that nothing is left.

    A message is completed on the backlog only after its destination has accepted it. A queue counts as empty when a
    peek finds nothing in it. What a destination does not take stays in the backlog; it is tried again until nothing has
    moved for the time of --patience.

    \b
      syphon drain -c config.yaml --dry-run
      syphon drain -c config.yaml
      syphon drain -c config.yaml --destination 'billing/*' --rate 500/s
      syphon drain -c config.yaml --after 2026-11-16T08:00 --limit 100 --yes --json

    Progress is on stderr: a table on a terminal, JSON lines elsewhere. Ctrl-C finishes what is in hand; a second one
    leaves at once. Nothing is lost either way.

    \b
    Exit codes: 0 nothing is left · 1 something was left or dead-lettered · 69 a namespace is out of reach ·
    70 faulted · 77 not authorized · 78 the settings are wrong
    """
    from syphon.backlog import Ttl
    from syphon.config import LogLevel
    from syphon.model import MessageFilter, PathPatterns
    from syphon.ops import set_up_logging
    from syphon.worker import DrainOptions

    from .dry_run import dry_run_of

    config = load_settings(config_file)
    set_up_logging(LogLevel.DEBUG if verbose else LogLevel.WARNING, config.log.format)
    if before is not None and after is not None and before <= after:
        raise click.UsageError(f"--before {before.isoformat()} is not later than --after {after.isoformat()}.")
    options = DrainOptions(
        messages=MessageFilter(PathPatterns.of(only or ["*"]), millis_of(before), millis_of(after)),
        limit=limit,
        rate=rate,
        timeout=timeout,
        patience=patience,
        lease=config.pipeline.lease / 1000,
        ttl=Ttl(ttl) if ttl else None,
    )
    chosen = selected_queues(config, pairs, queues)
    if all_found:
        chosen += _extra(chosen)
    if dry_run:
        raise SystemExit(dry_run_of(config, chosen, options, as_json))
    _ask(chosen, yes)
    raise SystemExit(_drain(config, chosen, options, as_json))


def _extra(chosen: list[SelectedQueue]) -> list[SelectedQueue]:
    """Backlog queues beyond the count, of the same pairs (P4)."""
    from syphon.backlog import SelectedQueue, by_pair, plan, queue_names, secondary_administration
    from syphon.model import NotAuthorized, SyphonError

    found: list[SelectedQueue] = []
    for pair, _ in by_pair(chosen):
        try:
            administration = secondary_administration(pair)
            try:
                found += [SelectedQueue(pair, name) for name in plan(administration, queue_names(pair)).extra]
            finally:
                administration.close()
        except SyphonError as error:
            click.echo(f"--all-found: {error}", err=True)
            denied = isinstance(error, NotAuthorized)
            raise SystemExit(ExitCode.NOT_AUTHORIZED if denied else ExitCode.UNAVAILABLE) from None
    return found


def _ask(chosen: list[SelectedQueue], yes: bool) -> None:
    from syphon.backlog import by_pair

    if yes:
        return
    for pair, queues in by_pair(chosen):
        way = f"{pair.secondary.host} → {pair.primary.host}"
        click.echo(f"{pair.name}: {len(queues)} backlog queues, {way}", err=True)
    if not sys.stdin.isatty():
        raise click.UsageError("nobody is there to be asked: add --yes.")
    click.confirm("Carry their messages home?", abort=True, err=True)


def _drain(config: Config, chosen: list[SelectedQueue], options: DrainOptions, as_json: bool) -> ExitCode:
    from syphon.model import NotAuthorized, SyphonError
    from syphon.ops import drain_progress
    from syphon.worker import Drain, counts_of, running_engine

    try:
        hints = counts_of(chosen)
        if not as_json:
            click.echo(f"Starting Spark on {config.pipeline.master} …", err=True)
        with running_engine(config.pipeline) as ready:
            drain = Drain(chosen, ready.jobs, ready.desk, options, hints)
            stop_on_signal(drain.stop, "Stopping: what is in hand is finished or given back.")
            total = sum(hints.values()) if len(hints) == len(drain.queues) else None
            with drain_progress(drain, total) as show:
                result = drain.run(show)
    except SyphonError as error:
        click.echo(str(error), err=True)
        return ExitCode.NOT_AUTHORIZED if isinstance(error, NotAuthorized) else ExitCode.UNAVAILABLE
    code = _exit_code(result)
    summary = _summary(config, result, ready.clerk.error, code)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        _show(summary)
    return code


def _exit_code(result: DrainResult) -> ExitCode:
    if result.fault is not None:
        return ExitCode.NOT_AUTHORIZED if result.fault.denied else ExitCode.FAULTED
    if result.remaining is None:
        return ExitCode.UNAVAILABLE
    done = result.is_empty and not result.absent and not result.account.dead_lettered
    return ExitCode.OK if done else ExitCode.LEFT


def _summary(config: Config, result: DrainResult, ledger_error: str, code: ExitCode) -> dict[str, Any]:
    account = result.account
    return {
        "verdict": _verdict(result),
        "exit_code": int(code),
        "seconds": round(result.seconds, 1),
        "account": {key: value for key, value in asdict(account).items() if key != "in_hand"},
        "remaining": result.remaining,
        "queues": [
            {
                "pair": queue.pair.name,
                "queue": queue.queue,
                "state": queue.state.value,
                "error": queue.error,
                "forwarded": queue.account.forwarded,
                "dead_lettered": queue.account.dead_lettered,
                "remaining": queue.remaining,
            }
            for queue in result.queues
        ],
        "waiting": [destination._asdict() for destination in result.waiting],
        "ledger": config.pipeline.ledger,
        "ledger_error": ledger_error,
    }


def _verdict(result: DrainResult) -> str:
    account, remaining = result.account, result.remaining
    if result.fault is not None:
        return f"Faulted: the {result.fault.side} cannot be used: {result.fault.text}"
    dead = f"; {account.dead_lettered:,} went to the dead letters" if account.dead_lettered else ""
    if remaining is None:
        return f"{account.forwarded:,} forwarded{dead}; nobody could look whether more is left."
    if result.absent:
        which = f"None of the backlog queues of {', '.join(result.absent)} is there: see `syphon check`"
        return f"{which}; {account.forwarded:,} forwarded{dead}."
    if result.is_empty:
        outside = "Nothing that was asked for is left" if account.outside else "Nothing is left"
        return f"{outside}: {account.forwarded:,} forwarded{dead}."
    return f"{remaining:,} messages are still in the backlog: {account.forwarded:,} forwarded{dead}."


def _show(summary: dict[str, Any]) -> None:
    rows = [
        (
            queue["queue"],
            f"{queue['state']}: {queue['error']}" if queue["error"] else queue["state"],
            queue["forwarded"],
            queue["dead_lettered"],
            "?" if queue["remaining"] is None else queue["remaining"],
        )
        for queue in summary["queues"]
    ]
    show_table(("queue", "state", "forwarded", "dead-lettered", "left"), rows)
    for destination in summary["waiting"]:
        click.secho(printable(f"{destination['path']} takes no messages: {destination['reason']}"), fg="yellow")
    account = summary["account"]
    click.echo(
        f"\n{account['received']:,} received = {account['forwarded']:,} forwarded + {account['dead_lettered']:,} "
        f"dead-lettered + {account['left']:,} left + {account['unaccounted']:,} unaccounted; "
        f"{account['possible_duplicates']:,} possible duplicates; {summary['seconds']:,} s"
    )
    if summary["ledger_error"]:
        click.secho(f"The ledger is not complete: {summary['ledger_error']}", fg="red")
    else:
        click.echo(f"Ledger: {summary['ledger']}, to be asked with syphon report")
    click.secho(printable(summary["verdict"]), bold=True, fg="green" if summary["exit_code"] == 0 else "yellow")
