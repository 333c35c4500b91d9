"""`syphon drain --dry-run`: shows what a drain would move, in what time and at what cost. It moves nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from syphon.model import plural, printable, volume

from .exit_codes import ExitCode
from .output import show_table

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue
    from syphon.config import Config
    from syphon.worker import DrainOptions

STANDARD_RATE = 1000.0
"""Messages a second that a Standard namespace accepts before it throttles: it has 1,000 credits a second."""
MOST_TRIED = 200
"""Destinations that are checked: a backlog with more is rare, and each check costs a round trip."""


def dry_run_of(config: Config, chosen: list[SelectedQueue], options: DrainOptions, as_json: bool) -> ExitCode:
    """Peeks into the backlog, on Spark, and shows the result."""
    from syphon.model import NotAuthorized, SyphonError
    from syphon.spark import backlog_frame, dead_letter_previews, looking, spark_session, summary

    click.echo(f"Peeking into {len(chosen)} backlog queues …", err=True)
    try:
        with spark_session(config.pipeline, "syphon drain --dry-run") as spark:
            active = backlog_frame(spark, chosen).where("state = 'active'").persist()
            with looking():
                everything = active.count()
            frame = active.where(options.messages.sql())
            destinations, refused = summary(frame), dead_letter_previews(frame)
        missing = _missing(chosen, [(found.pair, found.destination) for found in destinations if found.destination])
    except SyphonError as error:
        click.echo(str(error), err=True)
        return ExitCode.NOT_AUTHORIZED if isinstance(error, NotAuthorized) else ExitCode.UNAVAILABLE
    count = sum(found.messages for found in destinations)
    others = everything - count
    count = count if options.limit is None else min(count, options.limit)
    result = {
        "messages": count,
        "others": others,
        "bytes": sum(found.bytes for found in destinations),
        "destinations": [_record(asdict(found)) for found in destinations],
        "dead_letters": [asdict(found) for found in refused],
        "missing": [{"pair": pair, "destination": path, "error": error} for (pair, path), error in missing.items()],
        **_estimate(count, options.rate),
    }
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        _show(result)
    no_match = not count and others and options.messages.needs_destination  # as the drain itself would say
    return ExitCode.LEFT if refused or missing or no_match else ExitCode.OK


def _missing(chosen: list[SelectedQueue], wanted: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Destinations that accept nothing now, and why."""
    from syphon.backlog import by_pair, not_allowed
    from syphon.bus import connected, try_sender
    from syphon.model import EntityPath

    found: dict[tuple[str, str], str] = {}
    for pair, _ in by_pair(chosen):
        allow = pair.destinations.allowed
        ours = (path for name, path in wanted if name == pair.name)
        paths = [path for path in ours if not_allowed(EntityPath.of(path), allow) is None][:MOST_TRIED]
        if not paths:
            continue
        with connected(pair.primary, paths[0]) as connection:
            for path in paths:
                error = try_sender(connection, path)
                if error is not None:
                    found[pair.name, path] = str(error)
    return found


def _record(found: dict[str, Any]) -> dict[str, Any]:
    oldest = found["oldest"]
    return {**found, "oldest": None if oldest is None else oldest.isoformat(timespec="seconds")}


def _estimate(count: int, rate: float | None) -> dict[str, Any]:
    from syphon.cost import PricingTier, drain_cost, load_prices

    pace = min(rate or STANDARD_RATE, STANDARD_RATE)
    prices = load_prices()
    charge = drain_cost(count, prices, PricingTier.STANDARD)
    return {
        "seconds": round(count / pace, 1),
        "per_second": pace,
        "operations": charge.operations,
        "cost": {"least": charge.least, "most": charge.most, "currency": prices.currency, "as_of": prices.as_of},
    }


def _show(result: dict[str, Any]) -> None:
    rows = [
        (
            found["destination"] or "(none)",
            found["messages"],
            volume(found["bytes"]),
            found["oldest"] or "",
            found["dead_letters"],
        )
        for found in result["destinations"]
    ]
    if rows:
        show_table(("destination", "messages", "bytes", "oldest (UTC)", "would be dead-lettered"), rows)
    for found in result["dead_letters"]:
        why = printable(f"{found['reason']}: {found['example']}")
        click.secho(f"{found['messages']:,} would be dead-lettered: {why}", fg="yellow")
    for found in result["missing"]:
        click.secho(printable(f"{found['destination']} takes no messages now: {found['error']}"), fg="yellow")
    cost = result["cost"]
    click.echo(
        f"\n{plural(result['messages'], 'message')}, {volume(result['bytes'])}: "
        f"about {_lasting(result['seconds'])} at {result['per_second']:,.0f} messages a second; "
        f"{result['operations']:,} operations, "
        f"{cost['least']:,.2f} to {cost['most']:,.2f} {cost['currency']} by the Standard list prices of {cost['as_of']}"
    )
    if result["others"]:
        verb = "is" if result["others"] == 1 else "are"
        if not result["messages"]:
            click.secho("Nothing in the backlog is for what was asked.", fg="yellow")
        click.echo(f"{plural(result['others'], 'message')} in the backlog {verb} for others.")
    click.secho("Nothing was moved.", bold=True)


def _lasting(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"
