"""`syphon drain`: move the backlog to its destinations, once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode, InvalidOption, NotAuthorized, SyphonError, duration, plural, printable

from .backlog_queues import queue_options
from .give_up import GiveUp
from .options import MomentOption, Rate, Seconds, config_option, load_settings
from .output import say, show_table, shown_queues
from .signals import interruptible, stop_on_signal

if TYPE_CHECKING:
    from syphon.api import DrainRun, DrainSummary
    from syphon.backlog import SelectedQueue
    from syphon.worker import DrainProgress

SHOWS_WITHIN = 900.0
"""Seconds after which Service Bus shows every message that it has accepted."""


@click.command(short_help="Move the backlog to its destinations, once.")
@config_option
@click.option("--dry-run", is_flag=True, help="Show what would be moved, in what time and at what cost; move nothing.")
@queue_options
@click.option(
    "--destination", "destinations", multiple=True, metavar="PATTERN", help="Only messages for destinations that match."
)
@click.option(
    "--before", type=MomentOption(), help="Only messages that came into the backlog before: a time, or 2h for 2 h ago."
)
@click.option(
    "--after", type=MomentOption(), help="Only messages that came into the backlog since then: a time, or 2h."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Move at most N messages.")
@click.option("--rate", type=Rate(), help="Take at most so many messages a second, from each pair.")
@click.option("--timeout", type=Seconds(), help="Stop after this time; finish or give back messages in hand.")
@click.option(
    "--patience",
    type=Seconds(),
    default="2m",
    show_default=True,
    help="Give up a queue when nothing has moved for this time.",
)
@click.option(
    "--give-up",
    type=GiveUp(),
    default=frozenset(),
    help="missing, disabled or both, with a comma: dead-letter the messages for such destinations.",
)
@click.option(
    "--settle",
    type=Seconds(),
    default=0.0,
    help="Call a queue empty only if it stays empty for this time: 15m covers messages that show up late.",
)
@click.option("--all-found", is_flag=True, help="Also backlog queues beyond backlog_queue_count (needs Manage).")
@click.option(
    "--ttl",
    type=click.Choice(["restore", "remaining"]),
    help="restore: the time to live starts again; remaining: less the time spent in the backlog.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("-v", "--verbose", is_flag=True, help="Log more, with the output of Spark.")
def drain(
    config_file: Path,
    dry_run: bool,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    destinations: tuple[str, ...],
    before: datetime | None,
    after: datetime | None,
    limit: int | None,
    rate: float | None,
    timeout: float | None,
    patience: float,
    give_up: frozenset[str],
    settle: float,
    all_found: bool,
    ttl: str | None,
    as_json: bool,
    yes: bool,
    verbose: bool,
) -> None:
    """Move every message of the backlog queues to its destination, and prove that nothing is left.

    The drain completes a message in the backlog only after its destination has accepted it. A queue counts as empty
    when a peek finds no message in it that was asked for. Service Bus may show a message up to 15 minutes after it was
    sent: --settle 15m waits for such messages. A message that its destination does not take stays in the
    backlog; the drain tries it again until nothing has moved for the time of --patience. This includes destinations
    that are missing or disabled: --give-up sends their messages to the dead letters instead.

    \b
      syphon drain -c config.yaml --dry-run
      syphon drain -c config.yaml
      syphon drain -c config.yaml --destination 'billing/*' --rate 500/s
      syphon drain -c config.yaml --give-up missing,disabled
      syphon drain -c config.yaml --settle 15m --yes
      syphon drain -c config.yaml --after 2026-11-16T08:00 --limit 100 --yes --json

    Progress is on stderr: a table on a terminal, JSON lines elsewhere. Ctrl-C finishes the messages in hand; a second
    one leaves at once. Nothing is lost either way.

    Messages outside the filter stay in the backlog; the summary counts them. If --destination matches no message while
    messages for others wait, the exit code is 1: the pattern may be wrong.

    \b
    Exit codes: 0 nothing that was asked for is left · 1 something was left or dead-lettered, or --destination
    matched nothing · 69 a namespace is out of reach, or Spark was lost · 70 faulted · 77 not authorized ·
    78 the settings are wrong
    """
    from syphon.api import DrainRun, drain_options, queues_to_drain, with_given_up
    from syphon.backlog import NoQueueSelected
    from syphon.config import LogLevel
    from syphon.ops import set_up_logging

    from .dry_run import dry_run_of

    config = with_given_up(load_settings(config_file), give_up)
    set_up_logging(LogLevel.DEBUG if verbose else LogLevel.WARNING, config.log.format)
    try:
        options = drain_options(config, destinations, before, after, limit, rate, timeout, patience, settle, ttl)
        chosen = queues_to_drain(config, pairs, queues, all_found)
    except (InvalidOption, NoQueueSelected) as error:
        raise click.UsageError(str(error)) from None
    except SyphonError as error:
        raise SystemExit(_said(error)) from None
    if dry_run:
        raise SystemExit(dry_run_of(config, chosen, options, give_up, as_json))
    with interruptible("No message was moved."):
        _ask(chosen, yes)
    try:
        raise SystemExit(_drain(DrainRun(config, chosen, options, give_up), config.pipeline.master, as_json))
    except SyphonError as error:
        raise SystemExit(_said(error)) from None


def _said(error: SyphonError) -> ExitCode:
    click.echo(str(error), err=True)
    return ExitCode.NOT_AUTHORIZED if isinstance(error, NotAuthorized) else ExitCode.UNAVAILABLE


def _ask(chosen: list[SelectedQueue], yes: bool) -> None:
    from syphon.backlog import by_pair

    if yes:
        return
    for pair, queues in by_pair(chosen):
        hosts = f"{pair.secondary.host} → {pair.primary.host}"
        click.echo(f"{pair.name}: {len(queues)} backlog queues, {hosts}", err=True)
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for confirmation: add --yes.")
    if not click.confirm("Move their messages to their destinations?", err=True):
        click.echo("No message was moved.", err=True)
        raise SystemExit(ExitCode.LEFT)


def _drain(run: DrainRun, master: str, as_json: bool) -> ExitCode:
    from syphon.spark import shown_master

    with interruptible("No message was moved."):
        there_is_work = run.look()
    if there_is_work:
        if not as_json:
            click.echo(f"Starting Spark on {shown_master(master)} …", err=True)
        stop_on_signal(run.stop, "Stopping as soon as Spark has started. No message has been moved.", hangup=True)
        run.move(lambda: _showing(run), say=lambda line: click.echo(line, err=True), ends_process=True)
    if run.lost is not None:
        click.echo(str(run.lost), err=True)
    summary = run.summary()
    if as_json:
        click.echo(json.dumps(summary.as_json(), indent=2))
    else:
        _show(summary)
    return summary.exit_code


@contextmanager
def _showing(run: DrainRun) -> Iterator[Callable[[DrainProgress], None]]:
    """Shows the progress while messages move, and stops in order at a signal."""
    from syphon.ops import drain_progress

    live = False
    # Again: Spark sets a handler of its own.
    consequence = "Stopping: messages in hand are finished or given back."
    stop_on_signal(run.stop, consequence, hangup=True, is_shown=lambda: live)
    with drain_progress() as show:
        live = sys.stderr.isatty()
        yield show
    live = False
    if run.is_stopping and sys.stderr.isatty():
        click.echo("Stopped. What is left is being counted …", err=True)


def _show(summary: DrainSummary) -> None:
    from syphon.api import word_for

    names = shown_queues([queue.queue for queue in summary.queues])
    rows = [
        (
            name,
            f"{queue.state.value}: {queue.error}" if queue.error else queue.state.value,
            queue.forwarded,
            queue.dead_lettered,
            "?" if queue.remaining is None else queue.remaining,
        )
        for name, queue in zip(names, summary.queues, strict=True)
    ]
    show_table(("queue", "state", "forwarded", "dead-lettered", "left"), rows)
    for destination in summary.waiting:
        state = word_for(destination.error)
        text = f"{destination.path} {f'is {state}' if state else 'is unavailable'}: {destination.reason}"
        verb = "waits" if destination.left == 1 else "wait"
        say(printable(f"{plural(destination.left, 'message')} {verb}: {text}"), "  ", fg="yellow")
    click.echo()
    say(f"{summary.account}; {summary.seconds:,} s")
    if summary.ledger_error:
        say(f"The ledger is not complete: {printable(summary.ledger_error)}", fg="red")
    elif summary.account.received:  # a drain that found nothing has no ledger to point to
        click.echo(f"Ledger: {summary.ledger}; `syphon report` reads it")
    if summary.is_empty and not summary.others:
        say(_emptiness(summary.settled_for))
    say(printable(summary.verdict), bold=True, fg="green" if summary.is_done else "yellow")


def _emptiness(settled_for: float) -> str:
    """What an empty backlog proves: a message may show up late (S11)."""
    seen = f"Every queue stayed empty for {duration(settled_for)}." if settled_for else "Empty is as of now."
    if settled_for >= SHOWS_WITHIN:
        return seen
    return f"{seen} A message may show up to 15 minutes after it was sent: --settle 15m waits for it."
