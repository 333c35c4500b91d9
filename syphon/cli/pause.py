"""`syphon pause` and `syphon resume`: pause and resume parts of a running worker."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from syphon.model import printable

from .worker_client import WorkerClient, find_worker, worker_options

MOST_NAMED = 10
"""Known destinations listed in the warning about an unknown one."""


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select what to pause or resume."""
    pair = click.option("--pair", metavar="NAME", help="Only this pair; all of it without --queue or --destination.")
    queue = click.option("--queue", metavar="QUEUE", help="Only this backlog queue: its index (0) or name.")
    destination = click.option("--destination", metavar="PATH", help="Only this queue or topic of the primary.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print everything currently paused, as JSON.")
    return worker_options(pair(queue(destination(as_json(command)))))


@click.command(short_help="Pause a pair, a queue or a destination of a running worker.")
@target_options
def pause(
    config_file: Path | None,
    url: str | None,
    pair: str | None,
    queue: str | None,
    destination: str | None,
    as_json: bool,
) -> None:
    """Pause everything, a pair, a backlog queue or a destination. A pause survives a restart of the worker.

    The worker does not listen on a paused queue; running jobs finish or abandon the messages in flight. Messages for a
    paused destination stay in the backlog; messages for other destinations are forwarded. No message is lost, but a
    pause does not stop the time to live of messages in the backlog. Pausing a destination that the worker has not seen
    works, with a warning, because the name may be misspelled.

    \b
      syphon pause -c config.yaml --destination billing/invoices
      syphon pause -c config.yaml --pair contoso --queue 3
      syphon pause --url http://127.0.0.1:8080

    Exit codes: 0 done · 2 unknown pair or queue · 69 no answer from the worker · 77 it rejected the token
    """
    _change("/pause", config_file, url, pair, queue, destination, as_json)


@click.command(short_help="Resume a pair, a queue or a destination.")
@target_options
def resume(
    config_file: Path | None,
    url: str | None,
    pair: str | None,
    queue: str | None,
    destination: str | None,
    as_json: bool,
) -> None:
    """Resume everything, a pair with all its queues and destinations, a backlog queue or a destination.

    Messages for a resumed destination are redelivered when their locks expire, within a minute.

    \b
      syphon resume -c config.yaml --destination billing/invoices
      syphon resume -c config.yaml

    Exit codes: 0 done · 2 unknown pair or queue · 69 no answer from the worker · 77 it rejected the token
    """
    _change("/resume", config_file, url, pair, queue, destination, as_json)


def _warn_of_unknown(worker: WorkerClient, pair: str | None, destination: str) -> None:
    """Says so if the worker has seen no message for the destination: its name may have a typing error."""
    from syphon.model import EntityPath
    from syphon.status import WorkerStatus

    found = WorkerStatus.model_validate_json(worker.ask("/status"))
    # Paused destinations are in the status even if no message for them has arrived.
    known = sorted(
        {
            seen.path
            for each in found.pairs
            if pair in (None, each.name)
            for seen in each.destinations
            if seen.forwarded or seen.dead_lettered or seen.left or seen.error
        }
    )
    keys = {EntityPath.of(path).key: path for path in known}
    if EntityPath.of(destination).key in keys:
        return
    close = difflib.get_close_matches(EntityPath.of(destination).key, keys, 1)
    maybe = f" Did you mean {keys[close[0]]}?" if close else ""
    seen = ", ".join(known[:MOST_NAMED]) + (" …" if len(known) > MOST_NAMED else "")
    click.secho(
        printable(
            f"Warning: this worker has seen no message for {destination}.{maybe} It has seen: {seen or 'none'}. "
            f"It is paused anyway; `syphon resume --destination {destination}` undoes that."
        ),
        fg="yellow",
        err=True,
    )


def _change(
    path: str,
    config_file: Path | None,
    url: str | None,
    pair: str | None,
    queue: str | None,
    destination: str | None,
    as_json: bool,
) -> None:
    named = {"pair": pair, "queue": queue, "destination": destination}
    asked = {key: value for key, value in named.items() if value is not None}
    worker = find_worker(config_file, url)
    if path == "/pause" and destination is not None:
        _warn_of_unknown(worker, pair, destination)
    answer = json.loads(worker.ask(path, asked))
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    if not answer["paused"]:
        click.echo("Nothing is paused.")
    for held in answer["paused"]:
        what = f"queue {held['queue']}" if held["queue"] else f"destination {held['destination']}"
        whole = not held["queue"] and not held["destination"]
        click.echo(f"paused: all of {held['pair']}" if whole else f"paused: {what} of {held['pair']}")
