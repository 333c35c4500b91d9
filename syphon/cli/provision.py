"""`syphon provision`: creates the missing backlog queues of every pair."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import ExitCode

from .shared_options import config_option, load_settings
from .signals import interruptible
from .tables import finding_lines, show_findings, silence_sdk_logs

if TYPE_CHECKING:
    from syphon.backlog import ProvisionedQueue
    from syphon.config import Config, PairSettings, Via


@click.command(short_help="Create the backlog queues.")
@config_option
@click.option("--dry-run", is_flag=True, help="Show which queues exist and which would be created.")
@click.option(
    "--via",
    type=click.Choice(["admin", "arm"]),
    help="Use the namespace's own API, or Azure Resource Manager. [default: provision.via in the settings]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON (docs/commands.md).")
def provision(config_file: Path, dry_run: bool, via: str | None, as_json: bool) -> None:
    """Create the missing backlog queues in the secondary namespace of every pair.

    The command never changes or deletes an existing queue; it reports how a queue differs from the documented
    description. It is safe to run repeatedly and concurrently. A failed step is attempted three times, 30 seconds
    apart. It needs the Manage claim, or with --via arm permission to write queues.

    \b
      syphon provision -c config.yaml --dry-run
      syphon provision -c config.yaml
      syphon provision -c config.yaml --via arm

    \b
    Exit codes (the highest of all pairs):
       0  all queues exist            69  unreachable, or none could be created
       1  some could not be created   77  refused, or a claim is missing
     130  stopped by Ctrl-C           78  invalid settings
    """
    from syphon.config import Via

    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    silence_sdk_logs()
    config = load_settings(config_file, as_json)
    chosen = Via(via) if via else None
    _require_arm(config, config_file, chosen)
    results = []
    worst = ExitCode.OK
    with interruptible("Queues created so far are kept; run the command again to create the rest."):
        for pair in config.pairs:
            if not as_json:  # before the first request, so that a person sees which namespace the command waits for
                click.echo(f"{pair.name}: secondary {pair.secondary.host}")
            result, code = _provision(pair, dry_run, chosen)
            results.append(result)
            worst = max(worst, code)
            if not as_json:
                show_findings(finding_lines(_findings(result)))
                click.echo()
    if as_json:
        click.echo(json.dumps({"exit_code": worst, "dry_run": dry_run, "pairs": results}, indent=2))
    raise SystemExit(worst)


def _require_arm(config: Config, file: Path, via: Via | None) -> None:
    lacking = [f"pairs[{n}]" for n, pair in enumerate(config.pairs) if via == "arm" and pair.secondary.arm is None]
    for pair in lacking:
        remedy = "add it, with subscription_id and resource_group"
        click.echo(f"{file}: --via arm needs {pair}.secondary.arm, which is missing; {remedy}", err=True)
    if lacking:
        raise SystemExit(ExitCode.CONFIG)


def _provision(pair: PairSettings, dry_run: bool, via: Via | None) -> tuple[dict[str, Any], ExitCode]:
    from syphon.backlog import ProvisionState, plan, provision, queue_names, secondary_administration
    from syphon.model import NotAuthorized, SyphonError

    result: dict[str, Any] = {
        "pair": pair.name,
        "namespace": pair.secondary.host,
        "error": None,
        "queues": [],
        "extra": [],
        "count": 0,
    }
    administration = None
    try:
        administration = secondary_administration(pair, via)
        planned = plan(administration, queue_names(pair))
        result["extra"] = list(planned.extra)
        if dry_run:
            result |= {"queues": _queues(planned.queues), "count": len(planned.of(ProvisionState.EXISTS))}
            unseen = planned.unlisted or next((queue.because for queue in planned.of(ProvisionState.UNKNOWN)), None)
            return result, ExitCode.OK if unseen is None else ExitCode.UNAVAILABLE
        done = provision(administration, planned, reports=False)
        result |= {"queues": _queues((*done.queues, *done.dropped)), "count": done.count}
        return result, ExitCode.LEFT if done.dropped else ExitCode.OK
    except NotAuthorized as error:
        return result | {"error": str(error)}, ExitCode.NOT_AUTHORIZED
    except SyphonError as error:
        return result | {"error": str(error)}, ExitCode.UNAVAILABLE
    finally:
        if administration is not None:
            administration.close()


def _queues(queues: Iterable[ProvisionedQueue]) -> list[dict[str, Any]]:
    return [
        {
            "name": queue.name,
            "state": "differs" if queue.differences else queue.state,
            "differences": [asdict(difference) for difference in queue.differences],
            "error": None if queue.because is None else str(queue.because),
        }
        for queue in queues
    ]


def _difference(difference: dict[str, Any]) -> str:
    text = "{property} is {found}, not {documented}".format_map(difference)
    return text if difference["consequence"] is None else f"{text} ({difference['consequence']})"


_TEXTS = {"exists": "as documented", "missing": "would be created", "created": "with the documented settings"}


def _findings(result: dict[str, Any]) -> Iterator[tuple[str, str | None, str]]:
    if result["error"] is not None:
        yield "failed", None, result["error"]
    for queue in result["queues"]:
        name, state = queue["name"], queue["state"]
        if state == "differs":
            yield state, name, f"used unchanged: {'; '.join(map(_difference, queue['differences']))}"
        else:
            yield state, name, _TEXTS.get(state) or queue["error"].replace(f" '{name}'", "")
    for name in result["extra"]:
        yield "extra", name, "beyond the configured count, not used; `syphon drain --all-found` empties it"
