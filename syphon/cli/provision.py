"""`syphon provision`: make the backlog queues of every pair."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.cli.exit_codes import ExitCode
from syphon.cli.settings_file import config_option, load
from syphon.pipeline.wording import harmless

if TYPE_CHECKING:
    from syphon.backlog.provisioning import Plan, Provisioned
    from syphon.config import PairSettings


@click.command(short_help="Make the backlog queues.")
@config_option
@click.option("--dry-run", is_flag=True, help="Say what is there and what would be made, and make nothing.")
@click.option("--via", type=click.Choice(["admin", "arm"]), help="Through the namespace itself or Resource Manager.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found and done as JSON.")
def provision(config_file: Path, dry_run: bool, via: str | None, as_json: bool) -> None:
    """Make the backlog queues that are not there yet, in the secondary namespace of every pair.

    A queue that is there is left as it is, whatever its description; what differs is said. Nothing is ever deleted.

    \b
      syphon provision -c config.yaml --dry-run
      syphon provision -c config.yaml
      syphon provision -c config.yaml --via arm
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    config = load(config_file)
    results = []
    worst = ExitCode.OK
    for pair in config.pairs:
        result, code = _provision(pair, dry_run, via)
        results.append(result)
        worst = max(worst, code)
        if not as_json:
            _show(result)
    if as_json:
        click.echo(json.dumps({"dry_run": dry_run, "pairs": results}, indent=2))
    raise SystemExit(worst)


def _provision(pair: PairSettings, dry_run: bool, via: str | None) -> tuple[dict[str, Any], ExitCode]:
    from syphon.backlog.preflight import queue_names, secondary_administration
    from syphon.backlog.provisioning import Unknown, plan, provision
    from syphon.config import Via
    from syphon.errors import NotAuthorized, SyphonError

    result: dict[str, Any] = {"pair": pair.name, "namespace": pair.secondary.host, "error": None}
    try:
        administration = secondary_administration(pair, Via(via) if via else None)
        try:
            planned = plan(administration, queue_names(pair))
            if dry_run:
                unseen = any(isinstance(queue, Unknown) for queue in planned.queues)
                return {**result, **_planned(planned)}, ExitCode.UNAVAILABLE if unseen else ExitCode.OK
            done = provision(administration, planned)
            return {**result, **_done(done)}, ExitCode.LEFT if done.dropped else ExitCode.OK
        finally:
            administration.close()
    except NotAuthorized as error:
        return {**result, "error": str(error)}, ExitCode.NOT_AUTHORIZED
    except SyphonError as error:
        return {**result, "error": str(error)}, ExitCode.UNAVAILABLE


def _planned(plan: Plan) -> dict[str, Any]:
    return {"queues": [{"name": queue.name, "text": str(queue)} for queue in plan.queues], "extra": list(plan.extra)}


def _done(done: Provisioned) -> dict[str, Any]:
    queues = [{"name": queue.name, "text": str(queue)} for queue in (*done.queues, *done.dropped)]
    return {"queues": queues, "extra": list(done.extra), "count": done.count}


def _show(result: dict[str, Any]) -> None:
    click.echo(f"{result['pair']}: secondary {result['namespace']}")
    if result["error"] is not None:
        click.echo(f"  {harmless(result['error'])}")
        return
    for queue in result["queues"]:
        click.echo(f"  {harmless(queue['text'])}")
    if result["extra"]:
        click.echo(f"  beyond the count, left as they are: {harmless(', '.join(result['extra']))}")
