"""`syphon drain`: forward the backlog to its destinations, once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode, NotAuthorized, SyphonError, by_cause, duration, plural, printable
from syphon.time_budget import SHOWN_WITHIN
from syphon.worker import DrainOptions

from .backlog_queues import warn_of_stranded
from .shared_options import config_option, load_settings, needs_spark, options_from
from .signals import interruptible, stop_on_signal
from .tables import say, show_table, shown_queues

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue
    from syphon.operations import DrainRun, DrainSummary
    from syphon.worker import DrainProgress

NOTHING_FORWARDED = "No message was forwarded."


@click.command(short_help="Forward the backlog to its destinations, once.")
@config_option
@click.option("--dry-run", is_flag=True, help="Show what would be forwarded, how long it takes and what it costs.")
@options_from(DrainOptions)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("-v", "--verbose", is_flag=True, help="Log at debug level, with the output of Spark.")
@needs_spark
def drain(config_file: Path, dry_run: bool, options: DrainOptions, as_json: bool, yes: bool, verbose: bool) -> None:
    """Forward every message in the backlog queues to its destination, and verify that the backlog is empty.

    The drain completes a message in the backlog only after its destination has accepted it. A queue counts as empty
    when a peek finds no matching message. Service Bus can show a message up to 15 minutes late: --settle 15m waits for
    those. A message stays in the backlog if its destination does not accept it, and the drain retries it until there
    was no progress for --patience. This includes missing and disabled destinations; --give-up dead-letters their
    messages instead.

    \b
      syphon drain -c config.yaml --dry-run
      syphon drain -c config.yaml
      syphon drain -c config.yaml --destination 'billing/*' --rate 500/s
      syphon drain -c config.yaml --give-up missing,disabled
      syphon drain -c config.yaml --settle 15m --yes
      syphon drain --after 2026-11-16T08:00 --limit 100 --yes --json

    Progress goes to stderr: a table on a terminal, JSON lines elsewhere. Ctrl-C finishes the messages in flight; a
    second one exits immediately. No message is lost either way.

    Messages that do not match stay in the backlog; the summary counts them. If --destination matches no message but
    the backlog has others, the exit code is 1, because the pattern may be wrong.

    Exit codes: 0 no matching message is left · 1 something was left or dead-lettered, or --destination
    matched nothing · 69 a namespace is unreachable, or Spark was lost · 70 faulted · 77 not authorized ·
    78 invalid settings
    """
    from syphon.backlog import NoQueueSelected
    from syphon.config import LogLevel
    from syphon.operations import DrainRun, queues_to_drain
    from syphon.status import set_up_logging

    from .dry_run import dry_run_of

    config = load_settings(config_file)
    set_up_logging(LogLevel.DEBUG if verbose else LogLevel.WARNING, config.log.format)
    try:
        chosen = queues_to_drain(config, options)
    except NoQueueSelected as error:
        raise click.UsageError(str(error)) from None
    except SyphonError as error:
        raise SystemExit(exit_code_of_refusal(error)) from None
    if options.all_found:
        warn_of_stranded(config, chosen)
    if dry_run:
        raise SystemExit(dry_run_of(config, chosen, options, as_json))
    with interruptible(NOTHING_FORWARDED):
        _confirm(chosen, yes)
    try:
        with interruptible(NOTHING_FORWARDED):
            drain_run = DrainRun.peek(config, chosen, options)
        raise SystemExit(carry_out(drain_run, config.pipeline.master, as_json, NOTHING_FORWARDED))
    except SyphonError as error:
        raise SystemExit(exit_code_of_refusal(error)) from None


def exit_code_of_refusal(error: SyphonError) -> ExitCode:
    """Print why a namespace refuses the command, and return the exit code."""
    click.echo(str(error), err=True)
    return ExitCode.NOT_AUTHORIZED if isinstance(error, NotAuthorized) else ExitCode.UNAVAILABLE


def _confirm(chosen: list[SelectedQueue], yes: bool) -> None:
    from syphon.backlog import by_pair

    if yes:
        return
    for pair, queues in by_pair(chosen):
        hosts = f"{pair.secondary.host} → {pair.primary.host}"
        click.echo(f"{pair.name}: {plural(len(queues), 'backlog queue')}, {hosts}", err=True)
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for confirmation on: add --yes.")
    if not click.confirm("Forward their messages to their destinations?", err=True):
        click.echo(NOTHING_FORWARDED, err=True)
        raise SystemExit(ExitCode.LEFT)


def carry_out(drain_run: DrainRun, master: str, as_json: bool, nothing_happened: str) -> ExitCode:
    """Carry a drain or a move out, show progress and result, and return the exit code."""
    from syphon.spark import shown_master

    if drain_run.has_work:
        if not as_json:
            click.echo(f"Starting Spark on {shown_master(master)} …", err=True)
        stop_on_signal(drain_run.stop, f"Stopping once Spark has started. {nothing_happened}", hangup=True)
        drain_run.run(lambda: _showing(drain_run), say=lambda line: click.echo(line, err=True), ends_process=True)
    if drain_run.lost is not None:
        click.echo(f"{drain_run.lost} Run the command again.", err=True)
    summary = drain_run.summary()
    if as_json:
        click.echo(json.dumps(summary.as_json(), indent=2))
    else:
        _show(summary)
    return summary.exit_code


@contextmanager
def _showing(run: DrainRun) -> Iterator[Callable[[DrainProgress], None]]:
    """Show the progress, and stop gracefully on a signal."""
    from syphon.status import drain_progress, is_screen

    live = False
    # Set it again: Spark installs its own handler.
    consequence = "Stopping: finishing or abandoning messages in flight."
    stop_on_signal(run.stop, consequence, hangup=True, is_shown=lambda: live)
    with drain_progress() as show:
        live = is_screen(sys.stderr)
        yield show
    live = False
    if run.is_stopping and sys.stderr.isatty():
        click.echo("Stopped. Counting the messages that are left …", err=True)


def _show(summary: DrainSummary) -> None:
    from syphon.operations import word_for
    from syphon.worker import DrainState

    names = shown_queues([queue.queue for queue in summary.queues])
    rows = [
        (
            name,
            queue.state.value,
            queue.forwarded,
            queue.dead_lettered,
            "?" if queue.remaining is None else queue.remaining,
        )
        for name, queue in zip(names, summary.queues, strict=True)
    ]
    show_table(("queue", "state", "forwarded", "dead-lettered", f"left in {summary.place.removeprefix('the ')}"), rows)
    # A fault of the pair ends all its queues: the verdict names it, and the queue that met it.
    failed = (queue for queue in summary.queues if queue.error and queue.error not in summary.verdict)
    for line in by_cause((queue.queue, queue.error) for queue in failed):
        say(printable(line), "  ", fg="yellow")
    for destination in summary.waiting:
        state = word_for(destination.error)
        text = f"{destination.path} {f'is {state}' if state else 'is unavailable'}: {destination.reason}"
        verb = "waits" if destination.left == 1 else "wait"
        say(printable(f"{plural(destination.left, 'message')} {verb}: {text}"), "  ", fg="yellow")
    click.echo()
    if summary.account.received:
        say(f"{summary.account.text(summary.place)}; {summary.seconds:,} s")
    else:
        say(f"No message was received; {summary.seconds:,} s")
    if summary.ledger_error:
        say(f"The ledger is incomplete: {printable(summary.ledger_error)}", fg="red")
    elif summary.account.received:  # a drain that found nothing has no ledger to point to
        click.echo(f"Ledger: {summary.ledger} (see `syphon report`)")
    if summary.is_empty and not summary.others and any(queue.state is DrainState.EMPTY for queue in summary.queues):
        say(how_empty(summary.settled_for))
    say(printable(summary.verdict), bold=True, fg="green" if summary.is_done else "yellow")


def how_empty(settled_for: float) -> str:
    """Say how certain it is that the backlog is empty: Service Bus can show a message late (S11)."""
    seen = (
        f"Every queue stayed empty for {duration(settled_for)}." if settled_for else "The queues are empty right now."
    )
    if settled_for >= SHOWN_WITHIN:
        return seen
    return f"{seen} Service Bus can show a message up to 15 minutes late; --settle 15m waits for those."
