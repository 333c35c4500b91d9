"""`syphon.move`: moves messages from any queue, subscription or dead-letter queue to any entity (X12).

A move is a drain with another plan: the same jobs, proof of emptiness, ledger, report, endings and exit codes. What can
be wrong with it is found before its first message moves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Self

from syphon.backlog import QueueName, SelectedQueue
from syphon.config import (
    Config,
    ConfigLike,
    DestinationSettings,
    PairSettings,
    SideSettings,
    Via,
    named_namespace,
    settings_of,
)
from syphon.model import (
    DestinationMissing,
    InvalidOption,
    SyphonError,
    dead_letter_owner,
    never_a_destination,
    plural,
)
from syphon.option_declarations import called_with
from syphon.servicebus import administration_of, connected, largest_accepted, try_receiver
from syphon.time_budget import DUPLICATE_WINDOW_WITHIN
from syphon.transfer import DuplicateWindows, MovePlan
from syphon.worker import DrainResult, MoveEnd, MoveOptions

from .drain_run import DrainRun, Progress, finished_run
from .drain_summary import DrainSummary, scheduled_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(kw_only=True)
class MoveCall(MoveOptions):
    """What `syphon.move` is called with."""

    config: ConfigLike | None = field(default=None, kw_only=False)
    spark: SparkSession | None = field(default=None, kw_only=False)
    progress: Progress | None = None


class PlannedMove(NamedTuple):
    """A move that can begin."""

    config: Config
    queue: SelectedQueue
    """The source, as the backlog of a pair of both namespaces."""
    plan: MovePlan
    largest: int
    """The bytes of the largest message that the target takes."""


@called_with(MoveCall)
def move(call: MoveCall) -> DrainSummary:
    """Move the messages of a queue, subscription or dead-letter queue to another entity, of any namespace.

    `source` and `target` are texts like `contoso:orders/$deadletterqueue`. `config` is as of `drain`; without it both
    namespaces are `env:VARIABLE` or `file:PATH`. The options are those of `syphon move`; session, progress, interrupts
    and results are those of `drain`. Raises InvalidOption or an error of a namespace before the first message moves.
    """
    planned = planned_move(None if call.config is None else settings_of(call.config), call)
    return finished_run(MoveRun.planned(planned, call, call.spark), call.progress)


class MoveRun(DrainRun):
    """A move: peek, run, summary. Another thread or a signal handler may stop it."""

    command = "move"
    source = target = ""

    @classmethod
    def planned(cls, plan: PlannedMove, options: MoveOptions, spark: SparkSession | None = None) -> Self:
        """Peek into the source, and return the move, which has not begun."""
        found = cls.peek(plan.config, [plan.queue], options, spark, plan.plan)
        found.source, found.target = map(str, options.ends)
        return found

    def summary(self) -> DrainSummary:
        return replace(super().summary(), verdict=self._verdict(self._drain.result()), place=self.source)

    def _verdict(self, result: DrainResult) -> str:
        """How the move ended, in a sentence or two."""
        totals, source = result.totals, self.source
        moved = f"{totals.forwarded:,} moved from {source} to {self.target}"
        if totals.possible_duplicates:
            moved += f"; {plural(totals.possible_duplicates, 'possible duplicate')}"
        if result.fault is not None:
            side = "target" if result.fault.side == "primary" else "source"
            return f"Faulted: the namespace of the {side} is unusable: {result.fault.text} {moved}."
        if result.lost is not None:
            return f"{result.lost} {moved}."
        if result.remaining is None:
            return f"{moved}; {source} could not be peeked, so more messages may be left in it."
        others = "" if not result.others else f"; {plural(result.others, 'message')} there do not match the filter"
        if result.scheduled:
            others += f"; {scheduled_text(result.scheduled)}"
            if result.is_empty:
                return f"Only scheduled messages that match are left in {source}: {moved}{others}."
        if result.has_no_match:
            return f"No message in {source} matches the filter: {moved}{others}."
        if result.is_empty and others:
            return f"No matching message is left in {source}: {moved}{others}."
        if result.is_empty:
            return f"{source} is empty: {moved}." if totals.received else f"{source} was already empty."
        if result.primary_error:
            return f"{result.remaining:,} left: {moved}{others}. The target is unreachable: {result.primary_error}"
        why = next((f" {queue.error}" for queue in result.queues if queue.error), "")
        return f"{result.remaining:,} left in {source}: {moved}{others}.{why}"


# --- the plan, and what can be wrong with it -------------------------------------------------------------------------


def planned_move(config: Config | None, options: MoveOptions, environ: Mapping[str, str] = os.environ) -> PlannedMove:
    """The plan of a move. Receives nothing. Raises InvalidOption, or the error of a namespace, if it cannot begin."""
    source, target = options.ends
    sides = [_side_of(config, end, environ) for end in (source, target)]
    if sides[0].host == sides[1].host and source.entity == target.entity:
        raise InvalidOption(f"--from and --to are the same entity: '{source.entity}' of {sides[0].host}.")
    is_in_target = sides[0].host == sides[1].host and source.entity.key.startswith(
        f"{target.entity.key}/subscriptions/"
    )
    if is_in_target and dead_letter_owner(source.entity.name) is None:
        raise InvalidOption(
            f"--to {target} is the topic of --from: every message would come back, also into its other subscriptions. "
            f"Dead letters can go back: {source}/$deadletterqueue."
        )
    if (why := never_a_destination(target.entity)) is not None:
        raise InvalidOption(f"--to {target}: {why}.")
    _check_source(sides[0], source)
    largest = _check_target(sides[1], target)
    if not (options.new_ids or options.keep_ids):
        _check_duplicates(sides[1], target)
    pair = PairSettings(
        name=_pair_name(source, target),
        primary=sides[1],
        secondary=sides[0],
        destinations=DestinationSettings(allow=[target.entity.name]),
    )
    base = Config.model_construct(pairs=[pair]) if config is None else config.model_copy(update={"pairs": [pair]})
    are_dead_letters = dead_letter_owner(source.entity.name) is not None
    place = f"{sides[0].host}/{source.entity.key}"
    plan = MovePlan(place, target.entity, options.edit, options.new_ids, are_dead_letters)
    return PlannedMove(base, SelectedQueue(pair, QueueName(source.entity.name)), plan, largest)


def _side_of(config: Config | None, end: MoveEnd, environ: Mapping[str, str]) -> SideSettings:
    try:
        return named_namespace(config, end.namespace, environ)
    except InvalidOption as error:
        raise InvalidOption(f"{end}: {error}") from None


def _check_source(side: SideSettings, end: MoveEnd) -> None:
    with connected(side, end.entity.name) as connection:
        error = try_receiver(connection, end.entity.name)
    if error is None:
        return
    if isinstance(error, DestinationMissing):
        raise InvalidOption(f"--from {end}: there is no such entity in {side.host}.")
    if "session" in str(error).lower().replace(end.entity.key, ""):
        raise InvalidOption(
            f"--from {end}: it requires sessions, and syphon receives from no such entity. Its dead letters can be "
            f"moved: {end}/$deadletterqueue."
        )
    raise error


def _check_target(side: SideSettings, end: MoveEnd) -> int:
    with connected(side, end.entity.name) as connection:
        found = largest_accepted(connection, end.entity.name)
    if isinstance(found, DestinationMissing):
        raise InvalidOption(f"--to {end}: there is no such queue or topic in {side.host}.")
    if isinstance(found, SyphonError):
        raise found
    return found


def _check_duplicates(side: SideSettings, end: MoveEnd) -> None:
    """An entity with duplicate detection accepts a message whose id it knows, and drops it: it would be lost."""
    windows = DuplicateWindows(lambda: administration_of(side, Via.ADMIN, "", DUPLICATE_WINDOW_WITHIN))
    try:
        window = windows.of(end.entity)
    finally:
        windows.close()
    choice = "--new-ids sends every message under a new id; --keep-ids keeps the ids: what the target knows is dropped."
    if window is None:
        raise InvalidOption(
            f"--to {end}: whether it detects duplicates is unknown ({windows.trouble}). It would accept and drop a "
            f"message whose id it knows. {choice}"
        )
    if window:
        raise InvalidOption(
            f"--to {end}: it detects duplicates, and would accept and drop a message whose id it knows. {choice}"
        )


def _pair_name(source: MoveEnd, target: MoveEnd) -> str:
    """The name of the move in ledger and report, where it stands in the place of a pair's."""
    return "-to-".join(end.short_name for end in (source, target))
