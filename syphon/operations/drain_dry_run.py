"""A dry run: what a drain would forward, how long it would take and what it would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from syphon.backlog import SelectedQueue, by_pair, not_allowed
from syphon.config import Config, PairSettings, Via, settings_of
from syphon.cost import PricingTier, drain_cost, load_prices
from syphon.datasource import (
    SELECTED,
    DeadLetterPreview,
    DestinationSummary,
    backlog_frame,
    dead_letter_previews,
    larger_than,
    looking,
    summary,
)
from syphon.model import (
    DestinationError,
    DestinationMissing,
    EntityPath,
    ExitCode,
    Faulted,
    MessageTooLarge,
    NotAuthorized,
    SyphonError,
    html_line,
    html_table,
    plural,
    volume,
)
from syphon.option_declarations import called_with
from syphon.servicebus import NamespaceTier, administration_of, connected, largest_accepted
from syphon.spark import spark_session
from syphon.time_budget import TIER_WITHIN
from syphon.worker import DrainOptions, WaitingForecast

from .drain_run import DryRunCall, queues_to_drain
from .inspection import has_messages, reach_queues, with_renames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answers = dict[tuple[str, str], int | SyphonError]

STANDARD_RATE = 1000.0
"""Messages per second that a Standard namespace accepts before it throttles: it has 1,000 credits per second."""
PREMIUM_BYTES = 4_000_000.0
"""Bytes per second that one messaging unit of a Premium namespace accepts, about."""
FULL_SPEED = 5_000.0
"""Messages per second that a drain with two slots reaches without throttling, about (docs/performance.md)."""
MOST_TRIED = 200
"""Destinations that are checked: a backlog with more is rare, and each check costs a round trip."""


@dataclass(frozen=True)
class DestinationForecast(DestinationSummary):
    """What a drain would do with the messages for one destination. `dead_letters` has those of every reason."""

    waiting: int = 0
    """Messages that would wait for the destination."""


@dataclass(frozen=True, slots=True)
class UncheckedPrimary:
    """A primary that is unreachable or refuses us: whether its destinations accept messages is unknown."""

    pair: str
    host: str
    error: str


@dataclass(frozen=True, slots=True)
class CostForecast:
    """What Service Bus charges for the operations, at list prices of the Standard tier."""

    least: float
    most: float
    currency: str
    as_of: str


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a drain would do, and its exit code."""

    exit_code: ExitCode
    messages: int
    """Messages that would be forwarded, dead-lettered, or would wait."""
    others: int
    """Messages in the backlog that do not match."""
    bytes: int
    destinations: tuple[DestinationForecast, ...]
    dead_letters: tuple[DeadLetterPreview, ...]
    waiting: tuple[WaitingForecast, ...]
    unchecked: tuple[UncheckedPrimary, ...]
    """Primaries whose destinations could not be checked. A drain of their pairs moves nothing at the moment."""
    give_up: tuple[str, ...]
    seconds: float
    per_second: float
    assumed: tuple[str, ...]
    """What the time is based on, for each pair."""
    operations: int
    cost: CostForecast

    def as_json(self) -> dict[str, Any]:
        """The forecast in its documented form for programs (docs/commands.md)."""
        destinations = [
            asdict(each) | {"oldest": _text(each.oldest), "first_backlog_expiry": _text(each.first_backlog_expiry)}
            for each in self.destinations
        ]
        lists = {"destinations": destinations, "give_up": list(self.give_up)}
        return asdict(self) | {"exit_code": int(self.exit_code)} | lists

    def _repr_html_(self) -> str:
        rows = [
            (
                each.pair,
                each.destination or "(none)",
                each.messages,
                volume(each.bytes),
                each.dead_letters,
                each.waiting,
            )
            for each in self.destinations
        ]
        titles = ("pair", "destination", "messages", "size", "would be dead-lettered", "would wait")
        parts = [html_line("Dry run: nothing was forwarded.", strong=True)]
        parts.append(html_line(f"{plural(self.messages, 'message')}, {volume(self.bytes)}"))
        if rows:
            parts.append(html_table(titles, rows))
        reasons = [(each.destination or "(none)", each.messages, each.example) for each in self.dead_letters]
        reasons += [(each.path, each.left, each.reason) for each in self.waiting]
        if reasons:
            parts.append(html_table(("destination", "messages", "reason"), reasons))
        parts += [
            html_line(f"{each.pair}: the destinations could not be checked: {each.error}") for each in self.unchecked
        ]
        return "".join(parts)


@called_with(DryRunCall)
def dry_run(call: DryRunCall) -> DryRun:
    """Predict `drain` with the same options: peek into the backlog, check the destinations, and forward nothing.

    Errors that only a send can show (a full entity, one that requires sessions) are not predicted. Settings, session,
    options and errors are those of `drain`.
    """
    config = settings_of(call.config)
    return forecast(config, queues_to_drain(config, call), call, call.spark)


def forecast(
    config: Config,
    chosen: list[SelectedQueue],
    options: DrainOptions,
    spark: SparkSession | None = None,
    starting: Callable[[], None] = lambda: None,
) -> DryRun:
    """What a drain of these queues would do.

    `starting` is called before Spark is used, if there are messages.
    """
    seen = _EMPTY
    existing = _existing(chosen)
    if has_messages(existing):
        starting()
        seen = _peek_backlog(config, existing, options, spark)
    absent = {pair.name for pair, _ in by_pair(chosen)} - {pair.name for pair, _ in by_pair(existing)}
    permanent = {selected.pair.name: selected.pair.destinations.permanent() for selected in chosen}
    stopped = _stopped(seen)
    given_up = [found for found in stopped if type(found.error) in permanent[found.pair]]
    waiting = [found for found in stopped if type(found.error) not in permanent[found.pair]]
    wanted = sum(found.messages for found in seen.destinations)
    count = wanted if options.limit is None else min(wanted, options.limit)
    others = seen.messages - wanted
    dead_letters = (*seen.refused, *(found.dead_letter() for found in given_up))
    no_match = not wanted and others and options.messages.is_specific
    is_left = absent or dead_letters or waiting or no_match or count < wanted
    paces = _paces(chosen, options, seen.destinations)
    total = max(1, sum(pace.messages for pace in paces))
    seconds = max((count * pace.messages / total / pace.per_second for pace in paces), default=0.0)
    prices = load_prices()
    charge = drain_cost(count, prices, PricingTier.STANDARD)
    return DryRun(
        exit_code=_exit_code(seen.unchecked.values(), is_left=bool(is_left)),
        messages=count,
        others=others,
        bytes=sum(found.bytes for found in seen.destinations),
        destinations=tuple(_destination(found, given_up, waiting) for found in seen.destinations),
        dead_letters=dead_letters,
        waiting=tuple(found.waiting() for found in waiting),
        unchecked=tuple(
            UncheckedPrimary(pair.name, pair.primary.host, str(seen.unchecked[pair.name]))
            for pair, _ in by_pair(chosen)
            if pair.name in seen.unchecked
        ),
        give_up=tuple(sorted(options.give_up)),
        seconds=round(seconds, 1),
        per_second=round(count / seconds, 1) if seconds else STANDARD_RATE,
        assumed=tuple(pace.assumed for pace in paces),
        operations=charge.operations,
        cost=CostForecast(charge.least, charge.most, prices.currency, prices.as_of),
    )


def _existing(chosen: list[SelectedQueue]) -> list[SelectedQueue]:
    """The queues that exist. Raises the worst error of the others: Spark need not start to find it in each task."""
    reach = reach_queues(chosen)
    errors = [error for _, error in reach.unreachable if not isinstance(error, DestinationMissing)]
    if errors:
        raise max(errors, key=exit_code_of_error)
    return reach.queues


def _exit_code(unchecked: Iterable[SyphonError], is_left: bool) -> ExitCode:
    return max(map(exit_code_of_error, unchecked), default=ExitCode.LEFT if is_left else ExitCode.OK)


def exit_code_of_error(error: SyphonError) -> ExitCode:
    """The exit code of a drain that this error of a namespace ends."""
    if isinstance(error, NotAuthorized):
        return ExitCode.NOT_AUTHORIZED
    return ExitCode.FAULTED if isinstance(error, Faulted) else ExitCode.UNAVAILABLE


class Pace(NamedTuple):
    """How fast the messages of one pair would move, and why."""

    messages: int
    per_second: float
    assumed: str


def _paces(chosen: list[SelectedQueue], options: DrainOptions, found: list[DestinationSummary]) -> list[Pace]:
    """The pace of each pair that has messages: what its primary accepts by its tier, and no more than the rate."""
    paces = []
    for pair, _ in by_pair(chosen):
        ours = [each for each in found if each.pair == pair.name]
        messages, size = sum(each.messages for each in ours), sum(each.bytes for each in ours)
        if messages:
            per_second, assumed = accepted_by(pair, size / messages)
            if options.rate is not None and options.rate < per_second:
                per_second, assumed = options.rate, "set by --rate"
            paces.append(Pace(messages, per_second, f"{pair.name}: {per_second:,.0f} messages per second, {assumed}"))
    return paces


def accepted_by(pair: PairSettings, size: float) -> tuple[float, str]:
    """Messages of this mean size per second that a primary is expected to accept from syphon, and why."""
    share = pair.rate_share
    try:
        administration = administration_of(pair.primary, Via.ADMIN, "", TIER_WITHIN)
        try:
            tier, source = administration.tier(), "the tier was read from the namespace"
        finally:
            administration.close()
    except NotAuthorized:
        tier, source = (
            NamespaceTier("Standard"),
            "the tier is an assumption: reading it needs Manage on the primary",
        )
    except SyphonError as error:
        tier, source = NamespaceTier("Standard"), f"the tier is an assumption, reading it failed: {error}"
    if tier.name.lower() == "premium":
        found = min(FULL_SPEED, share * PREMIUM_BYTES * tier.units / max(1.0, size))
        return found, (
            f"{share:.0%} (rate_share) of the {tier.units * PREMIUM_BYTES / 1e6:,.0f} MB/s that a Premium namespace "
            f"with {plural(tier.units, 'messaging unit')} accepts, "
            f"at most {FULL_SPEED:,.0f} messages per second; {source}"
        )
    name = tier.name or "Standard"
    return share * STANDARD_RATE, (
        f"{share:.0%} (rate_share) of the {STANDARD_RATE:,.0f} that a {name} namespace accepts; {source}"
    )


class Seen(NamedTuple):
    """The results of the peek and of checking the destinations."""

    messages: int
    """All active and deferred messages, including those that do not match."""
    destinations: list[DestinationSummary]
    refused: list[DeadLetterPreview]
    answers: Answers
    too_large: dict[tuple[str, str], int]
    unchecked: dict[str, SyphonError]
    """Why the destinations of a pair could not be checked."""


_EMPTY = Seen(0, [], [], {}, {}, {})


def _peek_backlog(
    config: Config, chosen: list[SelectedQueue], options: DrainOptions, session: SparkSession | None
) -> Seen:
    with spark_session(config.pipeline, "syphon drain --dry-run", given=session) as spark:
        frame = backlog_frame(spark, chosen, options.where)
        movable = frame.where("state IN ('active', 'deferred')").persist()
        try:
            with looking(spark):
                everything = movable.count()
            frame = movable.where(options.messages.sql()).where(SELECTED)
            destinations, refused = with_renames(summary(frame), chosen), dead_letter_previews(frame)
            named = [(found.pair, found.destination) for found in destinations if found.destination]
            answers, unchecked = _answers(chosen, named)
            too_large = larger_than(frame, {key: size for key, size in answers.items() if isinstance(size, int)})
            return Seen(everything, destinations, refused, answers, too_large, unchecked)
        finally:
            movable.unpersist()


class Stopped(NamedTuple):
    """Messages that their destination would not accept."""

    pair: str
    destination: str
    messages: int
    error: SyphonError

    def dead_letter(self) -> DeadLetterPreview:
        """As a preview of dead letters, with --give-up."""
        reason = getattr(self.error, "reason", type(self.error).__name__)
        example = f"Destination '{self.destination}': {self.error}"
        return DeadLetterPreview(self.pair, self.destination, reason, self.messages, example)

    def waiting(self) -> WaitingForecast:
        error = DestinationError.of(self.error)
        return WaitingForecast(self.pair, self.destination, self.messages, str(self.error), error)


def _stopped(seen: Seen) -> list[Stopped]:
    """The messages that could be forwarded, but that their destination would not accept, and why."""
    found = []
    for each in seen.destinations:
        if each.destination is None:
            continue
        key = each.pair, each.destination
        answer, restorable = seen.answers.get(key), each.messages - each.dead_letters
        if isinstance(answer, SyphonError) and restorable:
            found.append(Stopped(*key, restorable, answer))
        elif seen.too_large.get(key):
            found.append(Stopped(*key, seen.too_large[key], MessageTooLarge(f"it accepts at most {answer:,} bytes.")))
    return found


def _answers(chosen: list[SelectedQueue], wanted: list[tuple[str, str]]) -> tuple[Answers, dict[str, SyphonError]]:
    """What each allowed destination accepts: the size of its largest message, or why it accepts none.

    Also why those of a pair could not be checked: what was peeked is worth showing without it.
    """
    found: Answers = {}
    unchecked: dict[str, SyphonError] = {}
    for pair, _ in by_pair(chosen):
        allow = pair.destinations.allowed
        ours = (path for name, path in wanted if name == pair.name)
        paths = [path for path in ours if not_allowed(EntityPath.of(path), allow) is None][:MOST_TRIED]
        if not paths:
            continue
        actual = {path: pair.destinations.renames.actual(EntityPath.of(path)).name for path in paths}
        try:
            with connected(pair.primary, actual[paths[0]]) as connection:
                for path in paths:
                    found[pair.name, path] = largest_accepted(connection, actual[path])
        except SyphonError as error:
            unchecked[pair.name] = error
    return found, unchecked


def _text(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="seconds")


def _destination(found: DestinationSummary, given_up: list[Stopped], waiting: list[Stopped]) -> DestinationForecast:
    """One destination, with the messages that would be dead-lettered for any reason, and those that would wait."""

    def ours(stopped: list[Stopped]) -> int:
        key = found.pair, found.destination
        return sum(each.messages for each in stopped if (each.pair, each.destination) == key)

    values = asdict(found) | {"dead_letters": found.dead_letters + ours(given_up), "waiting": ours(waiting)}
    return DestinationForecast(**values)
