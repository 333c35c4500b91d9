"""`syphon drain --dry-run`: shows what a drain would move, in what time and at what cost. It moves nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from syphon.model import plural, printable, volume

from .backlog_queues import has_messages
from .exit_codes import ExitCode
from .give_up import words_for
from .output import say, show_table
from .renamed import say_renames, with_renames

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue
    from syphon.config import Config
    from syphon.model import SyphonError
    from syphon.spark import DeadLetterPreview, DestinationSummary
    from syphon.worker import DrainOptions

    Answers = dict[tuple[str, str], int | SyphonError]

STANDARD_RATE = 1000.0
"""Messages a second that a Standard namespace accepts before it throttles: it has 1,000 credits a second."""
MOST_TRIED = 200
"""Destinations that are checked: a backlog with more is rare, and each check costs a round trip."""


def dry_run_of(
    config: Config, chosen: list[SelectedQueue], options: DrainOptions, give_up: frozenset[str], as_json: bool
) -> ExitCode:
    """Peeks into the backlog, on Spark, and shows what the drain would do, with the exit code it would have.

    The pair's settings already contain what is given up. What only a send shows (a full entity, one that requires
    sessions) is not predicted.
    """
    from syphon.model import NotAuthorized, SyphonError

    click.echo(f"Peeking into {len(chosen)} backlog queues …", err=True)
    everything, destinations, refused, answers, too_large = _EMPTY
    try:
        if has_messages(chosen):
            everything, destinations, refused, answers, too_large = _look(config, chosen, options)
    except SyphonError as error:
        click.echo(str(error), err=True)
        return ExitCode.NOT_AUTHORIZED if isinstance(error, NotAuthorized) else ExitCode.UNAVAILABLE
    permanent = {selected.pair.name: selected.pair.destinations.permanent() for selected in chosen}
    stopped = _stopped(destinations, answers, too_large)
    given_up = [found for found in stopped if type(found.error) in permanent[found.pair]]
    waiting = [found for found in stopped if type(found.error) not in permanent[found.pair]]
    wanted = sum(found.messages for found in destinations)
    count = wanted if options.limit is None else min(wanted, options.limit)
    others = everything - wanted
    dead_letters = [asdict(found) for found in refused] + [found.dead_letter() for found in given_up]
    no_match = not wanted and others and options.messages.needs_destination
    code = ExitCode.LEFT if dead_letters or waiting or no_match or count < wanted else ExitCode.OK
    result = {
        "exit_code": int(code),
        "messages": count,
        "others": others,
        "bytes": sum(found.bytes for found in destinations),
        "destinations": with_renames([_record(asdict(found), given_up, waiting) for found in destinations], chosen),
        "dead_letters": dead_letters,
        "waiting": [found.waiting() for found in waiting],
        "give_up": sorted(give_up),
        **_estimate(count, options.rate),
    }
    if as_json:
        click.echo(json.dumps(result, indent=2))
    else:
        _show(result)
    return code


class Seen(NamedTuple):
    """What the peek and the destinations have shown."""

    messages: int
    """All active messages, also those that were not asked for."""
    destinations: list[DestinationSummary]
    refused: list[DeadLetterPreview]
    answers: Answers
    too_large: dict[tuple[str, str], int]


_EMPTY = Seen(0, [], [], {}, {})


def _look(config: Config, chosen: list[SelectedQueue], options: DrainOptions) -> Seen:
    from syphon.spark import backlog_frame, dead_letter_previews, larger_than, looking, spark_session, summary

    with spark_session(config.pipeline, "syphon drain --dry-run") as spark:
        active = backlog_frame(spark, chosen).where("state = 'active'").persist()
        with looking():
            everything = active.count()
        frame = active.where(options.messages.sql())
        destinations, refused = summary(frame), dead_letter_previews(frame)
        answers = _answers(chosen, [(found.pair, found.destination) for found in destinations if found.destination])
        too_large = larger_than(frame, {key: size for key, size in answers.items() if isinstance(size, int)})
        return Seen(everything, destinations, refused, answers, too_large)


class Stopped(NamedTuple):
    """Messages that their destination would not take now."""

    pair: str
    destination: str
    messages: int
    error: SyphonError

    def dead_letter(self) -> dict[str, Any]:
        """The keys of a dead-letter preview."""
        return {
            "pair": self.pair,
            "destination": self.destination,
            "reason": getattr(self.error, "reason", type(self.error).__name__),
            "messages": self.messages,
            "example": f"Destination '{self.destination}': {self.error}",
        }

    def waiting(self) -> dict[str, Any]:
        """The keys that the summary of a drain has for it."""
        return {
            "pair": self.pair,
            "path": self.destination,
            "left": self.messages,
            "reason": str(self.error),
            "error": type(self.error).__name__,
        }


def _stopped(
    destinations: list[DestinationSummary], answers: Answers, too_large: dict[tuple[str, str], int]
) -> list[Stopped]:
    """The messages that can be restored and are allowed, but that the destination would not take, and why."""
    from syphon.model import MessageTooLarge, SyphonError

    found = []
    for each in destinations:
        if each.destination is None:
            continue
        key = each.pair, each.destination
        answer, restorable = answers.get(key), each.messages - each.dead_letters
        if isinstance(answer, SyphonError) and restorable:
            found.append(Stopped(*key, restorable, answer))
        elif too_large.get(key):
            found.append(Stopped(*key, too_large[key], MessageTooLarge(f"it takes {answer:,} bytes.")))
    return found


def _answers(chosen: list[SelectedQueue], wanted: list[tuple[str, str]]) -> Answers:
    """What each allowed destination takes now: the bytes of its largest message, or why it takes nothing."""
    from syphon.backlog import by_pair, not_allowed
    from syphon.bus import connected, largest_accepted
    from syphon.model import EntityPath

    found: Answers = {}
    for pair, _ in by_pair(chosen):
        allow = pair.destinations.allowed
        ours = (path for name, path in wanted if name == pair.name)
        paths = [path for path in ours if not_allowed(EntityPath.of(path), allow) is None][:MOST_TRIED]
        if not paths:
            continue
        actual = {path: pair.destinations.renames.actual(EntityPath.of(path)).name for path in paths}
        with connected(pair.primary, actual[paths[0]]) as connection:
            for path in paths:
                found[pair.name, path] = largest_accepted(connection, actual[path])
    return found


def _record(found: dict[str, Any], given_up: list[Stopped], waiting: list[Stopped]) -> dict[str, Any]:
    """One destination, with the messages that would be dead-lettered for any reason, and those that would wait."""

    def ours(stopped: list[Stopped]) -> int:
        key = found["pair"], found["destination"]
        return sum(each.messages for each in stopped if (each.pair, each.destination) == key)

    oldest = found["oldest"]
    return {
        **found,
        "oldest": None if oldest is None else oldest.isoformat(timespec="seconds"),
        "dead_letters": found["dead_letters"] + ours(given_up),
        "waiting": ours(waiting),
    }


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
            (found["oldest"] or "").removesuffix("+00:00").replace("T", " "),
            found["dead_letters"],
            found["waiting"],
        )
        for found in result["destinations"]
    ]
    if rows:
        show_table(("destination", "messages", "bytes", "oldest (UTC)", "would be dead-lettered", "would wait"), rows)
    say_renames(result["destinations"])
    for found in result["dead_letters"]:
        why = printable(f"{found['reason']}: {found['example']}")
        say(f"{found['messages']:,} would be dead-lettered: {why}", "  ", fg="yellow")
    for found in result["waiting"]:
        say(printable(f"{found['left']:,} would wait for {found['path']}: {found['reason']}"), "  ", fg="yellow")
    if words := words_for(found["error"] for found in result["waiting"]):
        say(f"--give-up {words} would send those of missing or disabled destinations to the dead letters.")
    cost = result["cost"]
    click.echo()
    say(
        f"{plural(result['messages'], 'message')}, {volume(result['bytes'])}: "
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
