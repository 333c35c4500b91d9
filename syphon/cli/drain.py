"""`syphon drain`: move the backlog to its destinations, once."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import plural, printable

from .backlog_queues import queue_options, selected_queues
from .exit_codes import ExitCode
from .give_up import GiveUp, with_given_up, word_for, words_for
from .options import Moment, Rate, Seconds, config_option, load_settings, millis_of
from .output import say, show_table, shown_queues
from .signals import interruptible, stop_on_signal

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue
    from syphon.config import Config
    from syphon.worker import Drain, DrainOptions, DrainResult, WaitingDestination

log = logging.getLogger("syphon")

MOST_NAMED = 5
"""Destinations that the verdict names. The lines above it name all."""


@click.command(short_help="Move the backlog to its destinations, once.")
@config_option
@click.option("--dry-run", is_flag=True, help="Show what would be moved, in what time and at what cost; move nothing.")
@queue_options
@click.option(
    "--destination", "destinations", multiple=True, metavar="PATTERN", help="Only messages for destinations that match."
)
@click.option(
    "--before", type=Moment(), help="Only messages that came into the backlog before: a time, or 2h for 2 h ago."
)
@click.option("--after", type=Moment(), help="Only messages that came into the backlog since then: a time, or 2h.")
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
    from syphon.backlog import Ttl
    from syphon.config import LogLevel
    from syphon.model import MessageFilter, PathPatterns
    from syphon.ops import set_up_logging
    from syphon.worker import DrainOptions

    from .dry_run import dry_run_of

    config = with_given_up(load_settings(config_file), give_up)
    set_up_logging(LogLevel.DEBUG if verbose else LogLevel.WARNING, config.log.format)
    if before is not None and after is not None and before <= after:
        raise click.UsageError(f"--before {before.isoformat()} is not later than --after {after.isoformat()}.")
    options = DrainOptions(
        messages=MessageFilter(PathPatterns.of(destinations or ["*"]), millis_of(before), millis_of(after)),
        limit=limit,
        rate=rate,
        timeout=timeout,
        patience=patience,
        settle=settle,
        lease=config.pipeline.lease / 1000,
        ttl=Ttl(ttl) if ttl else None,
    )
    chosen = selected_queues(config, pairs, queues)
    if all_found:
        chosen += _extra(chosen)
    if dry_run:
        raise SystemExit(dry_run_of(config, chosen, options, give_up, as_json))
    _ask(chosen, yes)
    raise SystemExit(_drain(config, chosen, options, give_up, as_json))


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
        hosts = f"{pair.secondary.host} → {pair.primary.host}"
        click.echo(f"{pair.name}: {len(queues)} backlog queues, {hosts}", err=True)
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask for confirmation: add --yes.")
    click.confirm("Move their messages to their destinations?", abort=True, err=True)


def _drain(
    config: Config, chosen: list[SelectedQueue], options: DrainOptions, give_up: frozenset[str], as_json: bool
) -> ExitCode:
    from syphon.model import NotAuthorized, SyphonError
    from syphon.worker import Drain, counts_of, waiting_destinations

    ledger_error = ""
    try:
        with interruptible("No message was moved."):
            drain = Drain(chosen, options, counts_of(chosen))
            there_is_work = drain.look()
        if there_is_work:
            ledger_error = _drain_on_spark(config, drain, options, as_json)
        result = drain.result()
    except SyphonError as error:
        click.echo(str(error), err=True)
        return ExitCode.NOT_AUTHORIZED if isinstance(error, NotAuthorized) else ExitCode.UNAVAILABLE
    if result.lost is not None:
        click.echo(str(result.lost), err=True)
    code = _exit_code(result, options)
    waiting = waiting_destinations(result, options)
    summary = _summary(config, result, waiting, ledger_error, code)
    summary["give_up"] = sorted(give_up)
    summary["settled_for"] = options.settle
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        _show(summary)
    return code


def _drain_on_spark(config: Config, drain: Drain, options: DrainOptions, as_json: bool) -> str:
    """Drains the queues. Returns why the ledger is not complete; an empty text if it is."""
    from syphon.ops import drain_progress
    from syphon.worker import running_engine

    if not as_json:
        click.echo(f"Starting Spark on {config.pipeline.master} …", err=True)
    live = False
    stop_on_signal(drain.stop, "Stopping as soon as Spark has started. No message has been moved.", hangup=True)
    with running_engine(config.pipeline, say=lambda line: click.echo(line, err=True)) as ready:
        # Again: Spark sets a handler of its own.
        consequence = "Stopping: messages in hand are finished or given back."
        stop_on_signal(drain.stop, consequence, hangup=True, is_shown=lambda: live)
        with drain_progress(drain, drain.expected) as show:
            live = sys.stderr.isatty()
            drain.run(ready, show)
        live = False
        if drain.is_stopping and sys.stderr.isatty():
            click.echo("Stopped. What is left is being counted …", err=True)
        ready.ending.exit_code = _exit_code(drain.result(), options)
    return ready.ledger_writer.error


def _exit_code(result: DrainResult, options: DrainOptions) -> ExitCode:
    """0 only if a script may take it for "what I asked for is done".

    A pattern of destinations that matches nothing while messages for others wait is probably a typing error, so it is
    not 0. A period that matches nothing is ordinary (`--before 2h` every hour), and is 0.
    """
    if result.fault is not None:
        return ExitCode.NOT_AUTHORIZED if result.fault.denied else ExitCode.FAULTED
    if result.lost is not None or result.remaining is None:
        return ExitCode.UNAVAILABLE
    if result.has_no_match and options.messages.needs_destination:
        return ExitCode.LEFT
    done = result.is_empty and not result.absent and not result.totals.dead_lettered
    return ExitCode.OK if done else ExitCode.LEFT


def _summary(
    config: Config, result: DrainResult, waiting: list[WaitingDestination], ledger_error: str, code: ExitCode
) -> dict[str, Any]:
    return {
        "verdict": _verdict(result, waiting),
        "exit_code": int(code),
        "seconds": round(result.seconds, 1),
        "account": {key: value for key, value in asdict(result.totals).items() if key != "in_hand"},
        "remaining": result.remaining,
        "others": result.others,
        "queues": [
            {
                "pair": queue.pair.name,
                "queue": queue.queue,
                "state": queue.state.value,
                "error": queue.error,
                "forwarded": queue.totals.forwarded,
                "dead_lettered": queue.totals.dead_lettered,
                "remaining": queue.remaining,
                "others": queue.others,
            }
            for queue in result.queues
        ],
        "waiting": [destination._asdict() for destination in waiting],
        "ledger": config.pipeline.ledger,
        "ledger_error": ledger_error,
    }


def _verdict(result: DrainResult, waiting: Sequence[WaitingDestination] = ()) -> str:
    totals, remaining = result.totals, result.remaining
    if result.fault is not None:
        return f"Faulted: the {result.fault.side} cannot be used: {result.fault.text}"
    if result.lost is not None:
        return f"{result.lost} {totals.forwarded:,} forwarded before."
    moved = f"{totals.forwarded:,} forwarded"
    if totals.dead_lettered:
        moved += f"; {totals.dead_lettered:,} went to the dead letters"
    if remaining is None:
        return f"{moved}; a backlog queue could not be peeked, so more may be left."
    if result.absent:
        missing = f"None of the backlog queues of {', '.join(result.absent)} exists: see `syphon check`"
        return f"{missing}; {moved}."
    if result.others:
        verb = "remains" if result.others == 1 else "remain"
        moved += f"; {plural(result.others, 'message')} for others {verb} in the backlog"
    if result.has_no_match:
        return f"Nothing in the backlog is for what was asked: {moved}."
    if result.is_empty:
        return f"Nothing that was asked for is left: {moved}." if result.others else f"Nothing is left: {moved}."
    verb = "message is" if remaining == 1 else "messages are"
    return f"{remaining:,} {verb} still in the backlog: {moved}.{_way_out(waiting)}"


def _way_out(waiting: Sequence[WaitingDestination]) -> str:
    """What to do about messages that wait for destinations that are missing or disabled."""
    stuck = [destination for destination in waiting if word_for(destination.error)]
    if not stuck:
        return ""
    words, count = words_for(destination.error for destination in stuck), sum(found.left for found in stuck)
    names = ", ".join(f"{found.path} ({word_for(found.error)})" for found in stuck[:MOST_NAMED])
    more = f" and {len(stuck) - MOST_NAMED} more" if len(stuck) > MOST_NAMED else ""
    verb = "waits" if count == 1 else "wait"
    return (
        f" {plural(count, 'message')} {verb} for {names}{more}: create or enable the entity and drain again, "
        f"or add --give-up {words} to send them to the dead letters."
    )


def _show(summary: dict[str, Any]) -> None:
    names = shown_queues([queue["queue"] for queue in summary["queues"]])
    rows = [
        (
            name,
            f"{queue['state']}: {queue['error']}" if queue["error"] else queue["state"],
            queue["forwarded"],
            queue["dead_lettered"],
            "?" if queue["remaining"] is None else queue["remaining"],
        )
        for name, queue in zip(names, summary["queues"], strict=True)
    ]
    show_table(("queue", "state", "forwarded", "dead-lettered", "left"), rows)
    for destination in summary["waiting"]:
        state = word_for(destination["error"])
        text = f"{destination['path']} {f'is {state}' if state else 'takes no messages'}: {destination['reason']}"
        verb = "waits" if destination["left"] == 1 else "wait"
        say(printable(f"{plural(destination['left'], 'message')} {verb}: {text}"), "  ", fg="yellow")
    account = summary["account"]
    click.echo()
    say(
        f"{account['received']:,} received = {account['forwarded']:,} forwarded + {account['dead_lettered']:,} "
        f"dead-lettered + {account['left']:,} left + {account['unaccounted']:,} unaccounted; "
        f"{account['possible_duplicates']:,} possible duplicates; {summary['seconds']:,} s"
    )
    if summary["ledger_error"]:
        say(f"The ledger is not complete: {printable(summary['ledger_error'])}", fg="red")
    elif account["received"]:  # a drain that found nothing has no ledger to point to
        click.echo(f"Ledger: {summary['ledger']}; `syphon report` reads it")
    if summary["remaining"] == 0 and not summary["settled_for"]:
        say("Empty is as of now: a message may show up to 15 minutes after it was sent. --settle 15m waits for it.")
    say(printable(summary["verdict"]), bold=True, fg="green" if summary["exit_code"] == 0 else "yellow")
