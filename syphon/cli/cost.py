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
@click.option("--messages", type=click.IntRange(min=0), metavar="N", help="Also estimate a drain of N messages.")
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
      syphon cost --messages 1000000                 and a drain of a million messages
      syphon cost --tier premium --units 2
      syphon cost --prices our-prices.yaml --json
    """
    from syphon.cost import (
        BILLED_OPERATIONS,
        LIST_PRICES,
        PricingTier,
        drain_cost,
        idle_cost,
        load_prices,
        namespace_cost,
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
    idle = idle_cost(queues, days, prices, level)
    drain = None if messages is None else drain_cost(messages, prices, level, message_bytes)
    if as_json:
        result = {
            "prices": {"as_of": prices.as_of, "currency": prices.currency, "file": str(file)},
            "tier": tier,
            "namespace": round(base, 4),
            "idle": {"queues": queues, "days": days, **asdict(idle)},
            "drain": None
            if drain is None
            else {
                "messages": messages,
                "message_bytes": message_bytes,
                **asdict(drain),
                "shares": [
                    {**asdict(share), "operations": drain.operations // len(BILLED_OPERATIONS)}
                    for share in BILLED_OPERATIONS
                ],
            },
        }
        click.echo(json.dumps(result, indent=2))
        return
    whose = "List prices" if price_file is None else f"Prices of {file}"
    click.echo(f"{whose} as of {prices.as_of}, {tier.capitalize()} tier. Check yours: {prices.source or file}\n")
    _title(f"Idle for {days} days: {queues} backlog queues, a receive of 15 minutes at a time")
    _show(idle, prices, level)
    if drain is not None:
        _title(f"\nA drain of {messages:,} messages")
        _show(drain, prices, level)
        for share in BILLED_OPERATIONS:
            click.echo(f"  {drain.operations // len(BILLED_OPERATIONS):>15,}  {share.what:<26}the {share.whose}'s")
        click.echo("  The sender and the receiver would pay their shares without an outage, too.")
    _title("\nThe namespaces themselves")
    if level is PricingTier.PREMIUM:
        what = f"{units} messaging unit{'s'[: units != 1]} for {days} days; twice that for primary and secondary"
    else:
        what = f"a month, once per subscription, {prices.standard.included_operations:,} operations included"
    click.echo(f"  {base:>11,.2f} {prices.currency}  {what}")


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
