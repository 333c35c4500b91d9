"""`syphon pause` and `syphon resume`: what a running worker is to leave alone, and what not any more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from .running_worker import find_worker, worker_options


def thing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What is meant."""
    pair = click.option("--pair", metavar="NAME", help="This pair: with nothing else, all of it.")
    queue = click.option("--queue", metavar="QUEUE", help="This backlog queue: its index (0), or its name.")
    destination = click.option("--destination", metavar="PATH", help="This queue or topic of the primary.")
    as_json = click.option("--json", "as_json", is_flag=True, help="Print what is paused now as JSON.")
    return worker_options(pair(queue(destination(as_json(command)))))


@click.command(short_help="Let a running worker leave something alone.")
@thing_options
def pause(
    config_file: Path | None,
    url: str | None,
    pair: str | None,
    queue: str | None,
    destination: str | None,
    as_json: bool,
) -> None:
    """Pause everything, a pair, a backlog queue or a destination. It is remembered over a restart of the worker.

    A queue that is paused is not listened to; what its jobs have in hand is finished or given back. The messages of a
    destination that is paused stay in the backlog, and those for others pass. Nothing is lost; but messages in the
    backlog have a time to live, and it goes on.

    \b
      syphon pause -c config.yaml --destination billing/invoices
      syphon pause -c config.yaml --pair contoso --queue 3
      syphon pause --url http://127.0.0.1:8080

    \b
    Exit codes: 0 done · 2 no such thing · 69 no worker answers · 77 the token was refused
    """
    _change("/pause", config_file, url, pair, queue, destination, as_json)


@click.command(short_help="Let a running worker go on with what was paused.")
@thing_options
def resume(
    config_file: Path | None,
    url: str | None,
    pair: str | None,
    queue: str | None,
    destination: str | None,
    as_json: bool,
) -> None:
    """Resume everything, a pair with all its queues and destinations, a backlog queue or a destination.

    Messages of a destination that was paused come again when their locks have run out: within a minute.

    \b
      syphon resume -c config.yaml --destination billing/invoices
      syphon resume -c config.yaml

    \b
    Exit codes: 0 done · 2 no such thing · 69 no worker answers · 77 the token was refused
    """
    _change("/resume", config_file, url, pair, queue, destination, as_json)


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
    answer = json.loads(find_worker(config_file, url).ask(path, asked))
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    if not answer["paused"]:
        click.echo("Nothing is paused.")
    for held in answer["paused"]:
        what = f"queue {held['queue']}" if held["queue"] else f"destination {held['destination']}"
        whole = not held["queue"] and not held["destination"]
        click.echo(f"paused: all of {held['pair']}" if whole else f"paused: {what} of {held['pair']}")
