"""`syphon rate`: show or change how fast a running worker moves messages."""

from __future__ import annotations

import json
from pathlib import Path

import click

from syphon.model import ExitCode, InvalidOption
from syphon.option_declarations import RATE

from .shared_options import Reads
from .worker_client import WorkerClient, find_worker, worker_options

AUTO = "auto"


class RateOrAuto(Reads):
    """A rate, or `auto` for no limit but what the service accepts: None."""

    def __init__(self) -> None:
        super().__init__(RATE)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        try:
            return AUTO if value == AUTO else self.kind.read(value)
        except InvalidOption:
            self.fail(f"'{value}' is not a rate: use 500, 500/s or auto.", param, ctx)


@click.command(short_help="Show or change the rate of a running worker.")
@click.argument("rate", required=False, type=RateOrAuto(), metavar="[N/s|auto]")
@worker_options
@click.option("--pair", metavar="NAME", help="Only this pair.")
@click.option("--json", "as_json", is_flag=True, help="Print the rate of each pair, as JSON.")
def rate(rate: float | str | None, config_file: Path | None, url: str | None, pair: str | None, as_json: bool) -> None:
    """Limit the messages per second of each pair, for example because the primary is still weak. Jobs go on.

    `auto` means as fast as the service accepts. The new rate holds until the worker reloads its settings or ends: to
    keep it, set `rate` of the pair in the settings. Without a rate, the command shows the current ones.

    \b
      syphon rate 500/s -c config.yaml
      syphon rate auto --pair contoso -c config.yaml
      syphon rate -c config.yaml

    Exit codes: 0 done · 2 unknown pair · 69 no answer from the worker · 77 it rejected the token
    """
    worker = find_worker(config_file, url)
    if rate is None:
        limits = _current(worker, pair)
    else:
        named = {} if pair is None else {"pair": pair}
        answer = json.loads(worker.ask("/rate", {**named, "rate": None if rate == AUTO else rate}))
        limits = [{**each, "set_by": "operator" if each["rate"] else None} for each in answer["pairs"]]
    if as_json:
        click.echo(json.dumps({"pairs": limits}, indent=2))
        return
    for each in limits:
        click.echo(f"{each['pair']}: {_words(each['rate'], each['set_by'])}")


def _current(worker: WorkerClient, pair: str | None) -> list[dict[str, object]]:
    from syphon.status import WorkerStatus

    found = WorkerStatus.model_validate_json(worker.ask("/status")).pairs
    if pair is not None and pair not in [each.name for each in found]:
        click.echo(f"There is no pair {pair}; there are: {', '.join(each.name for each in found)}.", err=True)
        raise SystemExit(ExitCode.USAGE)
    return [
        {"pair": each.name, "rate": each.rate_limit, "set_by": each.rate_limit_set_by}
        for each in found
        if pair in (None, each.name)
    ]


def _words(rate: object, set_by: object) -> str:
    if not isinstance(rate, float | int):
        return "as fast as the service accepts"
    by = f" (the {set_by} throttles)" if set_by in ("primary", "secondary") else ""
    return f"at most {rate:,.10g} messages per second{by}"
