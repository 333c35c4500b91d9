"""How a drain ended: the counts, each queue and destination, the verdict in words, and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from syphon.control import Account
from syphon.model import DestinationError, ExitCode, Stats, html_line, html_table, plural
from syphon.worker import GIVE_UP, DrainResult, DrainState, QueueDrain, TransferOptions, WaitingDestination

_WORDS = {DestinationError.MISSING: "missing", DestinationError.DISABLED: "disabled"}
"""The word of --give-up for each error."""
MOST_NAMED = 5
"""Destinations that the verdict lists. The lines above it list all of them."""


@dataclass(frozen=True, slots=True)
class QueueResult:
    """How the drain of one backlog queue ended."""

    pair: str
    queue: str
    state: DrainState
    error: str
    forwarded: int
    dead_lettered: int
    remaining: int | None
    """Matching messages left in the backlog, by peek; None if the queue could not be peeked."""
    others: int | None
    """Messages that do not match, by peek; None likewise."""

    @classmethod
    def of(cls, queue: QueueDrain) -> QueueResult:
        totals = queue.totals
        counts = (totals.forwarded, totals.dead_lettered, queue.remaining, queue.others)
        return cls(queue.pair.name, queue.queue, queue.state, queue.error, *counts)


@dataclass(frozen=True, slots=True)
class DestinationResult:
    """What happened to the messages for one destination of a pair. Beyond 200, destinations count as `(others)`."""

    pair: str
    destination: str
    forwarded: int
    dead_lettered: int


@dataclass(frozen=True, slots=True)
class DrainSummary:
    """How a drain ended. `exit_code` is 0 only if no matching message is left and nothing was dead-lettered."""

    verdict: str
    exit_code: ExitCode
    seconds: float
    account: Account
    remaining: int | None
    """Matching messages left in the backlog, by peek; None if a queue could not be peeked."""
    others: int | None
    """Messages in the backlog that do not match, by peek; None likewise."""
    scheduled: int
    """Matching messages that stay until their time: no receiver gets them before."""
    queues: tuple[QueueResult, ...]
    destinations: tuple[DestinationResult, ...]
    """The destinations that messages were forwarded to or dead-lettered for, the most first."""
    waiting: tuple[WaitingDestination, ...]
    """Unavailable destinations, with the number of messages waiting for each and the reason."""
    ledger: str
    ledger_error: str
    """Why the ledger is incomplete; empty if it is complete."""
    give_up: tuple[str, ...] = ()
    settled_for: float = 0.0
    """Seconds for which every queue stayed empty, if --settle was given; otherwise 0."""
    place: str = "the backlog"
    """Where messages were left: a move has another source than the backlog."""

    @property
    def is_done(self) -> bool:
        """No matching message is left, and nothing was dead-lettered."""
        return self.exit_code is ExitCode.OK

    @property
    def is_empty(self) -> bool:
        """Every queue was empty when peeked, or does not exist."""
        return all(queue.state in (DrainState.EMPTY, DrainState.MISSING) for queue in self.queues)

    def as_json(self) -> dict[str, Any]:
        """The summary in its documented form for programs (docs/commands.md)."""
        return {
            "verdict": self.verdict,
            "exit_code": int(self.exit_code),
            "seconds": self.seconds,
            "account": asdict(self.account),
            "remaining": self.remaining,
            "others": self.others,
            "scheduled": self.scheduled,
            "queues": [asdict(queue) | {"state": queue.state.value} for queue in self.queues],
            "waiting": [asdict(destination) for destination in self.waiting],
            "ledger": self.ledger,
            "ledger_error": self.ledger_error,
            "give_up": list(self.give_up),
            "settled_for": self.settled_for,
        }

    def _repr_html_(self) -> str:
        parts = [
            html_line(self.verdict, strong=True),
            html_line(f"{self.account.text(self.place)}; {self.seconds:,} s"),
        ]
        rows = [
            (
                queue.queue,
                f"{queue.state.value}: {queue.error}" if queue.error else queue.state.value,
                queue.forwarded,
                queue.dead_lettered,
                "?" if queue.remaining is None else queue.remaining,
            )
            for queue in self.queues
        ]
        parts.append(
            html_table(
                ("queue", "state", "forwarded", "dead-lettered", f"left in {self.place.removeprefix('the ')}"), rows
            )
        )
        if self.destinations:
            lines = [(each.pair, each.destination, each.forwarded, each.dead_lettered) for each in self.destinations]
            parts.append(html_table(("pair", "destination", "forwarded", "dead-lettered"), lines))
        if self.waiting:
            waits = [(each.pair, each.path, each.left, each.reason) for each in self.waiting]
            parts.append(html_table(("pair", "destination", "messages waiting", "reason"), waits))
        if self.ledger_error:
            parts.append(html_line(f"The ledger is incomplete: {self.ledger_error}"))
        return "".join(parts)


def summarized(
    result: DrainResult,
    options: TransferOptions,
    waiting: Sequence[WaitingDestination],
    ledger: str,
    ledger_error: str = "",
) -> DrainSummary:
    """The summary of a drain that has ended."""
    return DrainSummary(
        verdict=verdict_of(result, waiting),
        exit_code=exit_code_of(result, options),
        seconds=round(result.seconds, 1),
        account=Account.total([result.totals]),
        remaining=result.remaining,
        others=result.others,
        scheduled=result.scheduled,
        queues=tuple(map(QueueResult.of, result.queues)),
        destinations=_destinations(result.queues),
        waiting=tuple(waiting),
        ledger=ledger,
        ledger_error=ledger_error,
        give_up=options.given_up,
        # A queue that does not exist was not watched.
        settled_for=options.settle if all(_stayed_empty(queue) for queue in result.queues) else 0.0,
    )


def _destinations(queues: Iterable[QueueDrain]) -> tuple[DestinationResult, ...]:
    found = []
    for pair, ours in groupby(queues, key=lambda queue: queue.pair.name):
        stats = Stats()
        for queue in ours:
            stats.add(queue.stats)
        found += [
            DestinationResult(pair, each.path, each.forwarded, each.dead_lettered)
            for each in stats.destinations.values()
            if each.forwarded or each.dead_lettered
        ]
    return tuple(sorted(found, key=lambda each: (-each.forwarded - each.dead_lettered, each.pair, each.destination)))


def _stayed_empty(queue: QueueDrain) -> bool:
    """Whether no peek has found a message since the queue was first empty."""
    return queue.state is DrainState.EMPTY and queue.empty_since is not None


def exit_code_of(result: DrainResult, options: TransferOptions) -> ExitCode:
    """The exit code: 0 only if a script may conclude that the drain did what its options say.

    A destination pattern that matches nothing while other messages wait is probably misspelled, so it is not 0. A
    period that matches nothing is normal (`--before 2h` every hour), and is 0.
    """
    if result.fault is not None:
        return ExitCode.NOT_AUTHORIZED if result.fault.denied else ExitCode.FAULTED
    if result.lost is not None or result.remaining is None or result.primary_error:
        return ExitCode.UNAVAILABLE
    if result.has_no_match and options.messages.is_specific:
        return ExitCode.LEFT
    done = result.is_empty and not result.absent and not result.totals.dead_lettered and not result.scheduled
    return ExitCode.OK if done else ExitCode.LEFT


def verdict_of(result: DrainResult, waiting: Sequence[WaitingDestination] = ()) -> str:
    """How the drain ended, in a sentence or two."""
    totals, remaining = result.totals, result.remaining
    if result.fault is not None:
        return f"Faulted: the {result.fault.side} is unusable: {result.fault.text}"
    if result.lost is not None:
        return f"{result.lost} {totals.forwarded:,} forwarded before that."
    moved = f"{totals.forwarded:,} forwarded"
    if totals.dead_lettered:
        moved += f"; {totals.dead_lettered:,} dead-lettered"
    if remaining is None:
        return f"{moved}; a backlog queue could not be peeked, so more messages may be left in it."
    if result.absent:
        missing = f"None of the backlog queues of {', '.join(result.absent)} exists: see `syphon check`"
        return f"{missing}; {moved}."
    if result.others:
        verb = "does" if result.others == 1 else "do"
        moved += f"; {plural(result.others, 'message')} in the backlog {verb} not match the filter"
    if result.scheduled:
        moved += f"; {scheduled_text(result.scheduled)}"
    if result.has_no_match:
        return f"No message in the backlog matches the filter: {moved}."
    if result.is_empty and result.scheduled:
        return f"Only scheduled messages match in the backlog: {moved}."
    if result.is_empty and result.others:
        return f"No matching message is left in the backlog: {moved}."
    if result.is_empty and not totals.received:
        return "The backlog was already empty."
    if result.is_empty:
        return f"The backlog is empty: {moved}."
    if not remaining:
        return f"The drain ended before it could verify that the backlog is empty. The last peek found none: {moved}."
    if result.primary_error:
        verb = "message waits" if remaining == 1 else "messages wait"
        return f"{moved}; {remaining:,} {verb} in the backlog. The primary is unreachable: {result.primary_error}"
    verb, way_out = "message is" if remaining == 1 else "messages are", _way_out(waiting)
    if all(queue.state is DrainState.MORE_CAME for queue in result.queues if queue.remaining):
        arrived = f"{remaining:,} {verb} in the backlog that arrived after their queue was empty"
        return f"{arrived}: {moved}. Drain again.{way_out}"
    return f"{remaining:,} {verb} still in the backlog: {moved}.{way_out}"


def scheduled_text(count: int) -> str:
    """Says that no drain and no move takes scheduled messages before their time."""
    return (
        "1 scheduled message stays until its time"
        if count == 1
        else f"{count:,} scheduled messages stay until their time"
    )


def _way_out(waiting: Sequence[WaitingDestination]) -> str:
    """What to do about messages for missing or disabled destinations."""
    stuck = [destination for destination in waiting if word_for(destination.error)]
    if not stuck:
        return ""
    words, count = words_for(destination.error for destination in stuck), sum(found.left for found in stuck)
    names = ", ".join(f"{found.path} ({word_for(found.error)})" for found in stuck[:MOST_NAMED])
    more = f" and {len(stuck) - MOST_NAMED} more" if len(stuck) > MOST_NAMED else ""
    verb, one = "is waiting" if count == 1 else "are waiting", len(stuck) == 1
    return (
        f" {plural(count, 'message')} {verb} for {names}{more}: create or enable the entity and drain again, "
        # Without a destination it would give up all that are missing, also those that the operator has not seen.
        f"or dead-letter them with --give-up {words} --destination {_quoted(stuck[0].path) if one else 'NAME'}."
    )


def _quoted(path: str) -> str:
    """A destination as `--destination` takes it; NAME if the path is a pattern: messages name destinations."""
    return "NAME" if set("*?[]") & set(path) else shlex.quote(path)


def word_for(error: DestinationError) -> str | None:
    """The --give-up word for this error; None if there is none."""
    return _WORDS.get(error)


def words_for(errors: Iterable[DestinationError]) -> str:
    """The value of --give-up for these errors; empty if there is none."""
    found = {word_for(error) for error in errors}
    return ",".join(word for word in GIVE_UP if word in found)
