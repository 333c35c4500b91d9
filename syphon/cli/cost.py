"""`syphon cost`: estimates what an idle month and a drain cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from syphon.model import ExitCode, plural, volume

if TYPE_CHECKING:
    from syphon.cost import Charge, Prices, PricingTier, UnavailableDestination

BELL = "wake-up receive"
"""Part of the JSON output."""


@click.command(short_help="Estimate what an idle month and a drain cost.")
@click.option("--queues", default=10, show_default=True, type=click.IntRange(min=1), help="Number of backlog queues.")
@click.option("--days", default=30, show_default=True, type=click.IntRange(min=1), help="Number of idle days.")
@click.option("--messages", type=click.IntRange(min=0), metavar="N", help="Also estimate forwarding N messages.")
@click.option(
    "--rings",
    type=click.IntRange(min=0),
    metavar="N",
    help="How often a message wakes an idle queue. [default: once per queue; use 0 for a drain]",
)
@click.option("--workers", default=1, show_default=True, type=click.IntRange(min=1), help="Workers per pair.")
@click.option(
    "--outage",
    type=click.FloatRange(min=0, min_open=True),
    metavar="HOURS",
    help="Also estimate an outage of the primary, and one of a single destination.",
)
@click.option(
    "--entities",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Queues and topics that fail over in the outage; each is pinged.",
)
@click.option(
    "--senders",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Sender processes with failover; each of them pings.",
)
@click.option(
    "--ping-interval",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=1, max=1800),
    metavar="SECONDS",
    help="The senders' `ping_primary_interval`.",
)
@click.option(
    "--size",
    "message_bytes",
    default=1024,
    show_default=True,
    type=click.IntRange(min=0),
    help="Message size in bytes; every 64 KB count as one operation.",
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
    help="Use your own price file (start from the one `--json` names).",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def cost(
    queues: int,
    days: int,
    messages: int | None,
    rings: int | None,
    workers: int,
    outage: float | None,
    entities: int,
    senders: int,
    ping_interval: float,
    message_bytes: int,
    tier: str,
    units: int,
    price_file: Path | None,
    as_json: bool,
) -> None:
    """Estimate, from list prices or your own, what it costs to wait for messages and to forward them.

    The command does not query Azure: it uses a dated price file. With `--outage` it adds the senders' pings and the
    bandwidth between the two regions, and states its assumptions.

    \b
      syphon cost                                    ten idle queues, a month
      syphon cost --messages 1000000             and forwarding a million messages
      syphon cost --messages 2500 --outage 8     and waiting for eight hours
      syphon cost --outage 8 --entities 20 --senders 4       and the pings
      syphon cost --workers 2
      syphon cost --tier premium --units 2
      syphon cost --prices our-prices.yaml --json
    """
    from syphon.cost import LIST_PRICES, PricingTier, load_prices
    from syphon.yaml_settings import SettingsError

    file = price_file or LIST_PRICES
    try:
        prices = load_prices(file)
    except SettingsError as error:
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.CONFIG) from None
    inputs = CostInputs(
        queues=queues,
        days=days,
        workers=workers,
        messages=messages,
        rings=rings,
        message_bytes=message_bytes,
        outage=outage,
        entities=entities,
        senders=senders,
        ping_interval=ping_interval,
        tier=PricingTier(tier),
        units=units,
    )
    estimate = _estimate(inputs, prices)
    if as_json:
        sources = {"as_of": prices.as_of, "currency": prices.currency, "file": str(file)}
        click.echo(json.dumps({"prices": sources, **_as_json(inputs, estimate)}, indent=2))
        return
    whose = "List prices" if price_file is None else f"Prices of {file}"
    click.echo(f"{whose} as of {prices.as_of}, {tier.capitalize()} tier. Check yours: {prices.source or file}\n")
    _show_idle(inputs, estimate, prices)
    _show_drain(inputs, estimate, prices)
    _show_outage(inputs, estimate, prices)
    _show_namespaces(inputs, estimate, prices)


class CostInputs(NamedTuple):
    """The options of the estimate."""

    queues: int
    days: int
    workers: int
    messages: int | None
    rings: int | None
    message_bytes: int
    outage: float | None
    entities: int
    senders: int
    ping_interval: float
    tier: PricingTier
    units: int

    @property
    def rung(self) -> int:
        """How often a message arrives in an idle queue."""
        return min(self.messages or 0, self.queues) if self.rings is None else self.rings

    @property
    def waiting(self) -> int:
        """Messages that wait through an outage."""
        return self.queues if self.messages is None else self.messages


class Estimate(NamedTuple):
    """What it costs."""

    namespace: float
    idle: Charge
    drain: Charge | None
    share: int
    """The operations of one of the four parties to a drain."""
    bells: int
    """Wake-up receives in a drain."""
    dead: UnavailableDestination | None
    """Operations while one destination is unavailable, if there is an outage."""
    unavailable: Charge | None
    """What these cost."""
    unreachable: Charge | None
    """What an unreachable primary costs, if there is an outage."""
    pings: Charge | None
    """What the pings of the senders cost, if there is an outage."""
    crossing: int
    """Bytes that cross between the regions of the two namespaces."""
    bandwidth: float | None
    """What these cost, if the price file says it."""


def _estimate(inputs: CostInputs, prices: Prices) -> Estimate:
    from syphon.cost import (
        BILLED_OPERATIONS,
        bandwidth_cost,
        charge_of,
        crossing_bytes,
        drain_cost,
        drain_operations,
        idle_cost,
        namespace_cost,
        peeks_within,
        pings_within,
        ring_receives,
        unavailable_destination,
    )

    bells = ring_receives(inputs.rung, inputs.message_bytes, inputs.workers)
    dead = (
        None
        if inputs.outage is None
        else unavailable_destination(inputs.queues, inputs.waiting, inputs.outage, inputs.workers)
    )
    pings = pings_within(inputs.outage or 0, inputs.entities, inputs.senders, inputs.ping_interval)
    peeks = peeks_within(inputs.outage or 0, inputs.queues, inputs.workers)
    crossing = crossing_bytes(inputs.waiting, inputs.message_bytes)
    return Estimate(
        namespace=namespace_cost(inputs.days, prices, inputs.tier, inputs.units),
        idle=idle_cost(inputs.queues, inputs.days, prices, inputs.tier, workers=inputs.workers),
        drain=None
        if inputs.messages is None
        else drain_cost(inputs.messages, prices, inputs.tier, inputs.message_bytes, bells),
        share=drain_operations(inputs.messages or 0, inputs.message_bytes) // len(BILLED_OPERATIONS),
        bells=bells,
        dead=dead,
        unavailable=None if dead is None else charge_of(dead.operations, prices, inputs.tier),
        unreachable=None if dead is None else charge_of(peeks, prices, inputs.tier),
        pings=None if dead is None else charge_of(pings, prices, inputs.tier),
        crossing=crossing,
        bandwidth=bandwidth_cost(crossing, prices),
    )


def _as_json(inputs: CostInputs, estimate: Estimate) -> dict[str, Any]:
    from syphon.cost import BILLED_OPERATIONS

    drain = outage = None
    if estimate.drain is not None:
        shares = [{**asdict(each), "operations": estimate.share} for each in BILLED_OPERATIONS]
        drain = {
            "messages": inputs.messages,
            "message_bytes": inputs.message_bytes,
            **asdict(estimate.drain),
            "rings": inputs.rung,
            "shares": [*shares, {"what": BELL, "whose": "syphon", "operations": estimate.bells}],
        }
    if estimate.dead and estimate.unavailable and estimate.unreachable and estimate.pings:
        pings = {"entities": inputs.entities, "senders": inputs.senders, "interval": inputs.ping_interval}
        outage = {
            "hours": inputs.outage,
            "messages": inputs.waiting,
            "primary_unreachable": asdict(estimate.unreachable),
            "unavailable_destination": {**asdict(estimate.unavailable), **asdict(estimate.dead)},
            "pings": {**pings, **asdict(estimate.pings)},
            "bandwidth": {"bytes": estimate.crossing, "cost": estimate.bandwidth},
        }
    return {
        "tier": inputs.tier.value,
        "namespace": round(estimate.namespace, 4),
        "idle": {"queues": inputs.queues, "days": inputs.days, "workers": inputs.workers, **asdict(estimate.idle)},
        "drain": drain,
        "outage": outage,
    }


def _show_idle(inputs: CostInputs, estimate: Estimate, prices: Prices) -> None:
    each = "" if inputs.workers == 1 else f", {inputs.workers} workers"
    queues = plural(inputs.queues, "backlog queue")
    _title(f"Idle for {plural(inputs.days, 'day')}: {queues}{each}, 15-minute long polls")
    _show(estimate.idle, prices, inputs.tier)


def _show_drain(inputs: CostInputs, estimate: Estimate, prices: Prices) -> None:
    from syphon.cost import BILLED_OPERATIONS

    if estimate.drain is None:
        return
    _title(f"\nForwarding {inputs.messages:,} messages")
    _show(estimate.drain, prices, inputs.tier)
    for operation in BILLED_OPERATIONS:
        click.echo(f"  {estimate.share:>15,}  {operation.what:<26}the {operation.whose}'s")
    if estimate.bells:
        click.echo(f"  {estimate.bells:>15,}  {'wake-up receives':<26}syphon's, one per idle queue")
    click.echo("  The sender's and the receiver's operations would be billed without an outage, too.")


def _show_outage(inputs: CostInputs, estimate: Estimate, prices: Prices) -> None:
    dead, hours = estimate.dead, inputs.outage
    if dead is None or estimate.unavailable is None or estimate.unreachable is None or estimate.pings is None:
        return
    lasting = f"{hours:g} {'hour' if hours == 1 else 'hours'}"
    _title(f"\nPrimary unreachable for {lasting}")
    _show(estimate.unreachable, prices, inputs.tier)
    click.echo("  Peeks at the oldest message of each queue. Nothing is received until the primary is back.")
    _title(f"\nOne destination unavailable for {lasting}, {inputs.waiting:,} messages waiting for it")
    _show(estimate.unavailable, prices, inputs.tier)
    for number, what in (
        (dead.first_receives, "receives, before the messages are deferred"),
        (dead.browse_peeks, "peeks, to scan the queues once"),
        (dead.pings, "pings, to check whether the destination is available"),
    ):
        click.echo(f"  {number:>15,}  {what}")
    entities = "1 entity" if inputs.entities == 1 else f"{inputs.entities:,} entities"
    senders = plural(inputs.senders, "sender")
    _title(f"\nPings in {lasting}: {entities} failed over, {senders}, every {inputs.ping_interval:g} seconds")
    _show(estimate.pings, prices, inputs.tier)
    click.echo("  At most: a ping that does not reach Service Bus is not billed.")
    _title(f"\nBandwidth for {inputs.waiting:,} messages of {inputs.message_bytes:,} bytes through the backlog")
    cost = "no price in the file" if estimate.bandwidth is None else f"{estimate.bandwidth:,.2f} {prices.currency}"
    click.echo(f"  {cost:>15}  {volume(estimate.crossing)} between two regions")
    click.echo(
        "  Assumption: sender and primary in one region, the secondary in another on the same continent, so that each"
    )
    click.echo("  message crosses twice, wherever syphon runs; without AMQP overhead. Within one region it is free.")


def _show_namespaces(inputs: CostInputs, estimate: Estimate, prices: Prices) -> None:
    _title("\nThe namespaces themselves")
    if inputs.tier == "premium":
        what = f"{inputs.units} messaging unit{'s'[: inputs.units != 1]} for {inputs.days} days; "
        what += "twice that for primary and secondary"
    else:
        what = f"a month, once per subscription, {prices.standard.included_operations:,} operations included"
    click.echo(f"  {estimate.namespace:>11,.2f} {prices.currency}  {what}")


def _title(text: str) -> None:
    click.echo(click.style(text, bold=True))


def _show(charge: Charge, prices: Prices, tier: str) -> None:
    click.echo(f"  {charge.operations:>15,}  operations")
    if tier == "premium":
        click.echo(f"  {0:>11,.2f} {prices.currency}  operations are not billed")
    elif f"{charge.most:.2f}" == f"{charge.least:.2f}":
        click.echo(f"  {charge.most:>11,.2f} {prices.currency}")
    else:
        click.echo(f"  {charge.least:>11,.2f} {prices.currency}  if no included operations are used yet")
        click.echo(f"  {charge.most:>11,.2f} {prices.currency}  if other traffic has used them all")
