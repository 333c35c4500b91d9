"""`syphon canary`: prove that messages pass, with one probe per pair."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode
from syphon.option_declarations import DURATION

from .shared_options import Reads, config_option, load_settings
from .tables import FindingLine, show_findings

if TYPE_CHECKING:
    from syphon.config import PairSettings
    from syphon.transfer import ProbeResult


@click.command(short_help="Send a probe through the backlog to a canary queue.")
@config_option
@click.option("--pair", "pairs", metavar="NAME", multiple=True, help="Only this pair. Repeatable.")
@click.option(
    "--queue", metavar="INDEX", type=click.IntRange(min=0), default=0, help="The backlog queue.  [default: 0]"
)
@click.option("--to", "destination", metavar="PATH", help="The queue of the primary that receives the probe.")
@click.option(
    "--within", type=Reads(DURATION), default="1m", show_default=True, help="How long the probe may take to arrive."
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def canary(
    config_file: Path, pairs: tuple[str, ...], queue: int, destination: str | None, within: float, as_json: bool
) -> None:
    """Send a probe to a backlog queue of each pair, and wait until it arrives at the canary queue on the primary.

    A worker must be running: it forwards the probe like any message. Create the canary queue (`canary.destination`, or
    syphon-canary) once; nothing else may receive from it. The command peeks for its probe, which expires there after an
    hour. It needs Send on the secondary and Listen on the canary queue. With `canary` in the settings of a pair
    a worker does the same every five minutes.

    \b
      syphon canary -c config.yaml
      syphon canary -c config.yaml --pair contoso --queue 3 --within 2m

    Exit codes: 0 all probes arrived · 1 one did not, or there is no canary queue · 2 wrong usage · 69 a namespace is
    unreachable · 77 not authorized · 78 invalid settings
    """
    from syphon.config import LogLevel
    from syphon.status import set_up_logging

    config = load_settings(config_file)
    set_up_logging(LogLevel.ERROR, config.log.format)
    chosen = [pair for pair in config.pairs if not pairs or pair.name in pairs]
    if unknown := set(pairs) - {pair.name for pair in chosen}:
        known = ", ".join(pair.name for pair in config.pairs)
        raise click.UsageError(f"There is no pair {', '.join(sorted(unknown))}; there are: {known}.")
    results = [_probe(pair, queue, destination, within) for pair in chosen]
    if as_json:
        click.echo(json.dumps({"probes": [result.as_json() for result in results]}, indent=2))
    else:
        show_findings(FindingLine("ok" if result.has_arrived else "lost", (), str(result)) for result in results)
    raise SystemExit(max((result.exit_code for result in results), default=ExitCode.OK))


def _probe(pair: PairSettings, index: int, destination: str | None, within: float) -> ProbeResult:
    from syphon.backlog import queue_names
    from syphon.config import CANARY_QUEUE
    from syphon.transfer import send_probe

    names = queue_names(pair)
    if index >= len(names):
        raise click.UsageError(f"{pair.name} has no backlog queue {index}: it has {len(names)}.")
    path = destination or (pair.canary.destination if pair.canary is not None else CANARY_QUEUE)
    return send_probe(pair, names[index], path, within)
