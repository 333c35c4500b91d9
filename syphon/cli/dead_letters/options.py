"""The options that select dead letters, the target of a replay, and edits before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from syphon.model import InvalidOption, dead_letter_owner, millis_of, printable
from syphon.option_declarations import TIME
from syphon.worker import MOVE_END

from ..backlog_queues import queue_options, selected_queues
from ..shared_options import Reads, config_option, where_option

if TYPE_CHECKING:
    from syphon.backlog import DeadLetterFilter, LetterEdit, SelectedQueue
    from syphon.config import Config, PairSettings
    from syphon.sql import Where
    from syphon.transfer import DuplicateGuard, Route
    from syphon.worker import MoveEnd


FILTERS = (
    click.option(
        "--reason",
        default="*",
        metavar="PATTERN",
        help="Only dead letters with a matching reason, such as 'Destination*'.",
    ),
    click.option(
        "--destination",
        default="*",
        metavar="PATTERN",
        help="Only dead letters for matching destinations; '' selects those without one.",
    ),
    click.option(
        "--after",
        type=Reads(TIME),
        help="Only dead letters enqueued at or after: 2026-10-01, 2026-10-01T08:30Z, or 2h (ago).",
    ),
    click.option("--before", type=Reads(TIME), help="Only dead letters enqueued before this time."),
    where_option,
    click.option(
        "--sequence-number",
        "sequence_numbers",
        type=int,
        metavar="N",
        multiple=True,
        help="Only the dead letter with this number in its queue (`list --each` shows it). Repeatable.",
    ),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N dead letters."),
)
NO_FILTER = {"reason": "*", "destination": "*", "after": None, "before": None, "where": None, "sequence_numbers": ()}
"""The filter options if none is given."""


def entity_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--entity`."""
    return click.option(
        "--entity",
        "entities",
        type=Reads(MOVE_END),
        metavar=MOVE_END.metavar,
        multiple=True,
        help="The dead letters of this queue or subscription instead of those of the backlog queues. Repeatable.",
    )(command)


def chosen_queues(
    config: Config, pairs: tuple[str, ...], queues: tuple[str, ...], entities: tuple[MoveEnd, ...]
) -> list[SelectedQueue]:
    """The backlog queues, or the entities, whose dead letters are meant."""
    if not entities:
        return selected_queues(config, pairs, queues)
    if pairs or queues:
        raise click.UsageError("--entity names a queue or subscription itself: leave --pair and --queue out.")
    # A pair is told from others by its name, and these names are shortened.
    numbers = {name: number for number, name in enumerate(dict.fromkeys(end.namespace.lower() for end in entities))}
    return [_selected(config, end, f"{end.short_name}-{numbers[end.namespace.lower()]}") for end in entities]


def _selected(config: Config, end: MoveEnd, name: str) -> SelectedQueue:
    """An entity in the place of a backlog queue. Nothing is sent to the primary of its pair."""
    from syphon.backlog import QueueName, SelectedQueue
    from syphon.config import PairSettings, named_namespace

    if dead_letter_owner(end.entity.name) is not None:
        raise click.UsageError(f"--entity {end}: name the queue or subscription itself.")
    try:
        side = named_namespace(config, end.namespace)
    except InvalidOption as error:
        raise click.UsageError(f"--entity {end}: {error}") from None
    return SelectedQueue(PairSettings(name=name, primary=side, secondary=side), QueueName(end.entity.name))


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-c`, `--pair`, `--queue` and the filters that select dead letters."""
    for option in reversed(FILTERS):
        command = option(command)
    return config_option(queue_options(command))


def wanted(
    reason: str,
    destination: str,
    after: datetime | None,
    before: datetime | None,
    where: Where | None,
    sequence_numbers: tuple[int, ...] = (),
) -> DeadLetterFilter:
    """The filters as one object."""
    from syphon.backlog import DeadLetterFilter

    if after is not None and before is not None and before <= after:
        raise click.UsageError(f"--before {before.isoformat()} is not later than --after {after.isoformat()}.")
    numbers = frozenset(sequence_numbers)
    return DeadLetterFilter(reason, destination, millis_of(after), millis_of(before), numbers, where)


_EDITS = (
    click.option(
        "--set-path",
        "path",
        metavar="PATH",
        help="Set the destination (x-ms-path) of each message.",
    ),
    click.option(
        "--edit",
        "edits",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a property of each message; NAME:TYPE=VALUE for other types than string. Repeatable.",
    ),
    click.option("--unset", multiple=True, metavar="NAME", help="Remove a property from each message. Repeatable."),
    click.option(
        "--ttl",
        type=click.Choice(["restore", "remaining"]),
        help="restore: restart the time to live; remaining: subtract the time spent in the backlog. "
        "[default: the pair's setting]",
    ),
)

_TARGET = (
    click.option(
        "--to",
        "target",
        required=True,
        type=click.Choice(["backlog", "destination"]),
        help="Send to the backlog queue, or directly to the queue or topic in the primary.",
    ),
    click.option(
        "--new-ids",
        is_flag=True,
        help="Use a new message id where the queue or topic might drop a message as a duplicate; otherwise skip those.",
    ),
    click.option(
        "--assume-no-duplicate-detection",
        "assumes_none",
        is_flag=True,
        help="Without the Manage claim: assume that the queue or topic has no duplicate detection. "
        "If it has, messages are lost.",
    ),
)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--to`, and what to do about duplicate detection there."""
    for option in reversed(_TARGET):
        command = option(command)
    return command


def edit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--set-path`, `--edit`, `--unset` and `--ttl`."""
    for option in reversed(_EDITS):
        command = option(command)
    return command


def the_edit(
    chosen: Sequence[SelectedQueue], edits: tuple[str, ...], unset: tuple[str, ...], path: str | None
) -> LetterEdit:
    """The edit that the options describe. Rejects a destination that is not allowed before anything changes (D13)."""
    from syphon.backlog import PATH_LIMIT, BadEdit, LetterEdit, not_allowed
    from syphon.model import EntityPath

    try:
        edit = LetterEdit.of(edits, unset, path)
    except BadEdit as error:
        raise click.UsageError(f"--edit, --unset: {error}") from None
    if edit.path is None:
        return edit
    if not edit.path.strip() or len(edit.path) > PATH_LIMIT:
        raise click.UsageError(
            f"--set-path: {edit.path!r} is not the name of a queue or topic (1 to {PATH_LIMIT} characters)."
        )
    for pair in {selected.pair.name: selected.pair for selected in chosen}.values():
        forbidden = not_allowed(EntityPath.of(edit.path), pair.destinations.allowed)
        if forbidden is not None:
            raise click.UsageError(
                f"--set-path: destination '{edit.path}' is not allowed for pair {pair.name}: {forbidden}."
            )
    return edit


class Routes:
    """The routes of messages to their target, guarded against silent drops by duplicate detection."""

    def __init__(self, target: str, edit: LetterEdit, ttl: str | None, *, new_ids: bool, assumes_none: bool) -> None:
        self._target, self._edit, self._ttl = target, edit, ttl
        self._new_ids, self._assumes_none = new_ids, assumes_none
        self._guards: dict[str, DuplicateGuard] = {}
        """By the name of the pair."""
        self._routes: dict[tuple[str, str], Route] = {}

    def of(self, selected: SelectedQueue) -> Route:
        """The route of the messages of a queue."""
        key = selected.pair.name, selected.queue
        if key not in self._routes:
            self._routes[key] = self._guard(selected.pair).on(self._plain(selected))
        return self._routes[key]

    def start_over(self) -> None:
        """Begin another pass over the same messages: so far they were only previewed."""
        self._routes.clear()

    def warn(self) -> None:
        """Print on stderr where duplicate detection could not be checked."""
        for guard in self._guards.values():
            if (trouble := guard.windows.trouble) is not None:
                click.echo(f"Could not check for duplicate detection: {printable(str(trouble))}", err=True)

    def close(self) -> None:
        for guard in self._guards.values():
            guard.windows.close()

    def _guard(self, pair: PairSettings) -> DuplicateGuard:
        from syphon.transfer import DuplicateGuard, DuplicateWindows

        if pair.name not in self._guards:
            is_backlog = self._target == "backlog"
            make = DuplicateWindows.of_backlog if is_backlog else DuplicateWindows.of_destinations
            self._guards[pair.name] = DuplicateGuard(make(pair), self._new_ids, self._assumes_none)
        return self._guards[pair.name]

    def _plain(self, selected: SelectedQueue) -> Route:
        from syphon.model import TimeToLive
        from syphon.transfer import route_to_backlog, route_to_destination

        if self._target == "backlog":
            return route_to_backlog(selected.queue, self._edit)
        return route_to_destination(
            selected.pair, TimeToLive(self._ttl or selected.pair.time_to_live.value), self._edit
        )
