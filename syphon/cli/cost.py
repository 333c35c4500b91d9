"""`syphon cost`: estimates what an idle month and a drain cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .exit_codes import ExitCode

if TYPE_CHECKING:
    from syphon.cost import Charge, Prices


@click.command(short_help="Estimate what an idle month and a drain cost.")
@click.option(
    "--queues", default=10, show_default=True, type=click.IntRange(min=1), help="The number of backlog queues."
)
@click.option("--days", default=30, show_default=True, type=click.IntRange(min=1), help="How many days they are idle.")
@click.option("--messages", type=click.IntRange(min=0), metavar="N", help="Also estimate the transfer of N messages.")
@click.option(
    "--rings",
    type=click.IntRange(min=0),
    metavar="N",
    help="How often a message comes to a quiet queue and rings. [default: once for each queue; 0 for a drain]",
)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(min=1), help="Workers on the same pair.")
@click.option(
    "--outage",
    type=click.FloatRange(min=0, min_open=True),
    metavar="HOURS",
    help="Also estimate an outage: of the primary, and of one destination.",
)
@click.option(
    "--size",
    "message_bytes",
    default=1024,
    show_default=True,
    type=click.IntRange(min=0),
    help="Bytes of a message: every 64 KB count as one operation.",
)
@click.option(
    "--tier",
    default="standard",
    show_default=True,
    type=click.Choice(["standard", "premium"]),
    help="The tier of both namespaces.",
)
@click.option("--units", default=1, show_default=True, type=click.IntRange(min=1), help="Premium messaging units.")
@click.option(
    "--prices",
    "price_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Your own prices, in a copy of the file that `--json` names.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def cost(
    queues: int,
    days: int,
    messages: int | None,
    rings: int | None,
    workers: int,
    outage: float | None,
    message_bytes: int,
    tier: str,
    units: int,
    price_file: Path | None,
    as_json: bool,
) -> None:
    """Calculate, from list prices or your own, what it costs to wait for messages and to forward them.

    The command does not ask Azure: it calculates with a dated price file.

    \b
      syphon cost                                    ten idle queues, a month
      syphon cost --messages 1000000                 and the transfer of a million messages
      syphon cost --messages 2500 --outage 8         and what waiting costs in an outage of eight hours
      syphon cost --workers 2
      syphon cost --tier premium --units 2
      syphon cost --prices our-prices.yaml --json
    """
    from syphon.cost import (
        BILLED_OPERATIONS,
        LIST_PRICES,
        PricingTier,
        charge_of,
        dead_destination,
        drain_cost,
        drain_operations,
        idle_cost,
        load_prices,
        namespace_cost,
        ring_receives,
    )
    from syphon.yaml_settings import SettingsError

    file = price_file or LIST_PRICES
    try:
        prices = load_prices(file)
    except SettingsError as error:
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.CONFIG) from None
    level = PricingTier(tier)
    base = namespace_cost(days, prices, level, units)
    idle = idle_cost(queues, days, prices, level, workers=workers)
    rung = min(messages or 0, queues) if rings is None else rings
    bells = ring_receives(rung, message_bytes, workers)
    drain = None if messages is None else drain_cost(messages, prices, level, message_bytes, bells)
    share = drain_operations(messages or 0, message_bytes) // len(BILLED_OPERATIONS)
    waiting = queues if messages is None else messages
    dead = None if outage is None else dead_destination(queues, waiting, outage, workers)
    silence = None if dead is None else charge_of(dead.operations, prices, level)
    if as_json:
        result = {
            "prices": {"as_of": prices.as_of, "currency": prices.currency, "file": str(file)},
            "tier": tier,
            "namespace": round(base, 4),
            "idle": {"queues": queues, "days": days, "workers": workers, **asdict(idle)},
            "drain": None
            if drain is None
            else {
                "messages": messages,
                "message_bytes": message_bytes,
                **asdict(drain),
                "rings": rung,
                "shares": [
                    *({**asdict(each), "operations": share} for each in BILLED_OPERATIONS),
                    {"what": BELL, "whose": "syphon", "operations": bells},
                ],
            },
            "outage": None
            if dead is None or silence is None
            else {
                "hours": outage,
                "messages": waiting,
                "primary_away": asdict(charge_of(0, prices, level)),
                "dead_destination": {**asdict(silence), **asdict(dead)},
            },
        }
        click.echo(json.dumps(result, indent=2))
        return
    whose = "List prices" if price_file is None else f"Prices of {file}"
    click.echo(f"{whose} as of {prices.as_of}, {tier.capitalize()} tier. Check yours: {prices.source or file}\n")
    each = "" if workers == 1 else f", {workers} workers"
    _title(f"Idle for {days} days: {queues} backlog queues{each}, a receive of 15 minutes at a time")
    _show(idle, prices, level)
    if drain is not None:
        _title(f"\nThe transfer of {messages:,} messages")
        _show(drain, prices, level)
        for operation in BILLED_OPERATIONS:
            click.echo(f"  {share:>15,}  {operation.what:<26}the {operation.whose}'s")
        if bells:
            click.echo(f"  {bells:>15,}  {BELL:<26}the syphon's, once for each ring")
        click.echo("  The sender and the receiver would pay their shares without an outage, too.")
    if dead is not None and silence is not None:
        _title(f"\nThe primary is out of reach for {outage:g} hours")
        click.echo(f"  {0:>15,}  operations: nothing is received until it is back")
        _title(f"\nOne destination takes nothing for {outage:g} hours, {waiting:,} messages wait for it")
        _show(silence, prices, level)
        for number, what in (
            (dead.first_receives, "receives, until every worker knows"),
            (dead.browse_peeks, "peeks, to look through the queues once"),
            (dead.peeks, "peeks, to find newcomers"),
            (2 * dead.tries, "receives and sends, to try the destination with one message"),
        ):
            click.echo(f"  {number:>15,}  {what}")
    _title("\nThe namespaces themselves")
    if level is PricingTier.PREMIUM:
        what = f"{units} messaging unit{'s'[: units != 1]} for {days} days; twice that for primary and secondary"
    else:
        what = f"a month, once per subscription, {prices.standard.included_operations:,} operations included"
    click.echo(f"  {base:>11,.2f} {prices.currency}  {what}")


BELL = "receive by a doorbell"


def _title(text: str) -> None:
    click.echo(click.style(text, bold=True))


def _show(charge: Charge, prices: Prices, tier: str) -> None:
    click.echo(f"  {charge.operations:>15,}  operations")
    if tier == "premium":
        click.echo(f"  {0:>11,.2f} {prices.currency}  operations are not billed")
    elif f"{charge.most:.2f}" == f"{charge.least:.2f}":
        click.echo(f"  {charge.most:>11,.2f} {prices.currency}")
    else:
        click.echo(f"  {charge.least:>11,.2f} {prices.currency}  if all free operations are still unused")
        click.echo(f"  {charge.most:>11,.2f} {prices.currency}  if other traffic has used them up")
