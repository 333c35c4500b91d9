"""`syphon retry`: retry destinations of a running worker at once, and reopen its faulted pairs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from syphon.model import ExitCode, plural, printable

from .worker_client import find_worker, worker_options


@click.command(short_help="Retry a destination now, without waiting for its back-off to end.")
@click.argument("destination", required=False)
@worker_options
@click.option("--pair", metavar="NAME", help="Only this pair.")
@click.option("--json", "as_json", is_flag=True, help="Print what is retried, as JSON.")
def retry(destination: str | None, config_file: Path | None, url: str | None, pair: str | None, as_json: bool) -> None:
    """End the back-off of a destination, after you have removed the cause: its messages move within a few seconds.

    Without DESTINATION the worker retries all destinations that do not accept messages, and reopens faulted pairs. A
    throttled destination keeps the quiet that the service asks for; to end a pause, use `syphon resume`.

    \b
      syphon retry billing/invoices -c config.yaml
      syphon retry -c config.yaml
      syphon retry --url http://127.0.0.1:8080

    Exit codes: 0 retried · 1 nothing was failing · 2 unknown pair · 69 no answer from the worker ·
    77 it rejected the token
    """
    if destination == "":
        raise click.UsageError("DESTINATION is empty: name a queue or topic, or omit it to retry all.")
    named = {"pair": pair, "destination": destination}
    answer = json.loads(
        find_worker(config_file, url).ask("/retry", {key: value for key, value in named.items() if value is not None})
    )
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        for each in answer["retried"]:
            click.echo(printable(f"Retrying {each['destination']} of {each['pair']}."))
        if answer["reopened"]:
            click.echo(f"Reopening {plural(len(answer['reopened']), 'pair')}: {', '.join(answer['reopened'])}.")
    if answer["retried"] or answer["reopened"]:
        return
    if not as_json:
        what = "No destination is backing off, and no pair has faulted."
        if destination is not None:
            what = f"{destination} is not backing off: there is nothing to retry."
        click.echo(printable(what))
    raise SystemExit(ExitCode.LEFT)
