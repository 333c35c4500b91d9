"""The options that say where messages are put, and what is edited in them first: of `replay` and of `import`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from syphon.model import printable

if TYPE_CHECKING:
    from syphon.backlog import LetterEdit, SelectedQueue
    from syphon.config import PairSettings
    from syphon.transfer import DuplicateGuard, Route

_EDITS = (
    click.option(
        "--set-path",
        "path",
        metavar="PATH",
        help="Set this destination (x-ms-path) in each, whether it names another one or none.",
    ),
    click.option(
        "--edit",
        "edits",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set this property in each; NAME:TYPE=VALUE if it is no string. May be repeated.",
    ),
    click.option("--unset", multiple=True, metavar="NAME", help="Remove this property from each. May be repeated."),
    click.option(
        "--ttl",
        type=click.Choice(["restore", "remaining"]),
        help="The time to live starts again, or is reduced by the time in the backlog. [default: the pair's setting]",
    ),
)

_TARGET = (
    click.option(
        "--to",
        "target",
        required=True,
        type=click.Choice(["backlog", "destination"]),
        help="Put them into the backlog queue again, or straight into the primary's queue or topic.",
    ),
    click.option(
        "--new-ids",
        is_flag=True,
        help="Give a new message id to each that the queue or topic might drop as a duplicate; without it, those stay.",
    ),
    click.option(
        "--assume-no-duplicate-detection",
        "assumes_none",
        is_flag=True,
        help="If the credentials lack the Manage claim: assume that the queue or topic detects no duplicates. "
        "If it does, messages are lost.",
    ),
)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--to`, and what to do about duplicate detection there."""
    for option in reversed(_TARGET):
        command = option(command)
    return command


def edit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--set-path`, `--edit`, `--unset` and `--ttl`."""
    for option in reversed(_EDITS):
        command = option(command)
    return command


def the_edit(
    chosen: Sequence[SelectedQueue], edits: tuple[str, ...], unset: tuple[str, ...], path: str | None
) -> LetterEdit:
    """The edit that the options ask for. Refuses a destination that is not allowed, before anything changes (D13)."""
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
            f"--set-path: {edit.path!r} is not the path of an entity: a path has 1 to {PATH_LIMIT} characters."
        )
    for pair in {selected.pair.name: selected.pair for selected in chosen}.values():
        forbidden = not_allowed(EntityPath.of(edit.path), pair.destinations.allowed)
        if forbidden is not None:
            raise click.UsageError(
                f"--set-path: the pair {pair.name} does not allow the destination '{edit.path}': {forbidden}."
            )
    return edit


class Routes:
    """How messages get to their target, and none where it might be dropped as a duplicate.

    `is_replay`: the messages lie in the queues that they belong to, and not in a file.
    """

    def __init__(
        self, target: str, edit: LetterEdit, ttl: str | None, *, is_replay: bool, new_ids: bool, assumes_none: bool
    ) -> None:
        self._target, self._edit, self._ttl = target, edit, ttl
        self._by_age = is_replay and target == "backlog"
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
        """Begins the next pass over the same messages: they were only looked at so far."""
        self._routes.clear()

    def warn(self) -> None:
        """Says on stderr where it could not be found out whether duplicates are detected."""
        for guard in self._guards.values():
            if (trouble := guard.windows.trouble) is not None:
                click.echo(f"Could not check for duplicate detection: {printable(str(trouble))}", err=True)

    def close(self) -> None:
        for guard in self._guards.values():
            guard.windows.close()

    def _guard(self, pair: PairSettings) -> DuplicateGuard:
        from syphon.backlog import DuplicateWindows
        from syphon.transfer import DuplicateGuard

        if pair.name not in self._guards:
            is_backlog = self._target == "backlog"
            make = DuplicateWindows.of_backlog if is_backlog else DuplicateWindows.of_destinations
            self._guards[pair.name] = DuplicateGuard(make(pair), self._by_age, self._new_ids, self._assumes_none)
        return self._guards[pair.name]

    def _plain(self, selected: SelectedQueue) -> Route:
        from syphon.backlog import Ttl
        from syphon.transfer import route_to_backlog, route_to_destination

        if self._target == "backlog":
            return route_to_backlog(selected.queue, self._edit)
        return route_to_destination(selected.pair, Ttl(self._ttl or selected.pair.time_to_live.value), self._edit)
