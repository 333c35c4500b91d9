"""`syphon pause` and `syphon resume`: stop and restart parts of a running worker's transfer."""

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
"""Destinations that the warning about an unknown one names."""


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that name what to pause or resume."""
    pair = click.option("--pair", metavar="NAME", help="This pair; without --queue and --destination, all of it.")
    queue = click.option("--queue", metavar="QUEUE", help="This backlog queue: its index (0), or its name.")
    destination = click.option("--destination", metavar="PATH", help="This queue or topic of the primary.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print everything that is paused now, as JSON.")
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
    """Pause everything, a pair, a backlog queue or a destination. The pause outlasts a restart of the worker.

    The worker does not listen to a paused queue; its jobs finish or release the messages they have received. The
    messages of a paused destination stay in the backlog, and messages for other destinations pass. Nothing is lost, but
    messages in the backlog have a time to live, and a pause does not stop it. A destination that the worker has not
    seen yet is paused as well, with a warning: its name may have a typing error.

    \b
      syphon pause -c config.yaml --destination billing/invoices
      syphon pause -c config.yaml --pair contoso --queue 3
      syphon pause --url http://127.0.0.1:8080

    \b
    Exit codes: 0 done · 2 unknown pair or queue · 69 no worker answers · 77 it refused the token
    """
    _change("/pause", config_file, url, pair, queue, destination, as_json)


@click.command(short_help="Resume what was paused.")
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

    Messages of a destination that was paused are delivered again when their locks have expired: within a minute.

    \b
      syphon resume -c config.yaml --destination billing/invoices
      syphon resume -c config.yaml

    \b
    Exit codes: 0 done · 2 unknown pair or queue · 69 no worker answers · 77 it refused the token
    """
    _change("/resume", config_file, url, pair, queue, destination, as_json)


def _warn_of_unknown(worker: WorkerClient, pair: str | None, destination: str) -> None:
    """Says so if the worker has seen no message for the destination: its name may have a typing error."""
    from syphon.model import EntityPath
    from syphon.ops import WorkerStatus

    found = WorkerStatus.model_validate_json(worker.ask("/status"))
    # What is or was paused is in the status, too, although no message for it has come.
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
            f"The pause holds for messages that come; `syphon resume --destination {destination}` ends it."
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
