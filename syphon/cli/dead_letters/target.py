"""The options that say where messages are put, and what is edited in them first: of `replay` and of `import`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from syphon.backlog import LetterEdit, SelectedQueue
    from syphon.transfer import Route

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

target_options = click.option(
    "--to",
    "target",
    required=True,
    type=click.Choice(["backlog", "destination"]),
    help="Put them into the backlog queue again, or straight into the primary's queue or topic.",
)


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


def route_of(target: str, selected: SelectedQueue, edit: LetterEdit, ttl: str | None) -> Route:
    """How a dead letter of a queue gets to its target."""
    from syphon.backlog import Ttl
    from syphon.transfer import route_to_backlog, route_to_destination

    if target == "backlog":
        return route_to_backlog(selected.queue, edit)
    return route_to_destination(selected.pair, Ttl(ttl or selected.pair.time_to_live.value), edit)
