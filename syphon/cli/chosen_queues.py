"""What commands about the backlog share: which queues are meant, and how trouble with them ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from syphon.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from syphon.backlog.choosing import Assignment
    from syphon.config import Config


def queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--pair` and `--queue`."""
    queue = click.option(
        "--queue", "queues", metavar="QUEUE", multiple=True,
        help="Only this backlog queue: its index (0), its name, or a pattern (*/1?). May be given again.",
    )  # fmt: skip
    pair = click.option("--pair", "pairs", metavar="NAME", multiple=True, help="Only this pair. May be given again.")
    return pair(queue(command))


def assignments(config: Config, pairs: tuple[str, ...], queues: tuple[str, ...]) -> list[Assignment]:
    """The queues that are meant; a name that means none is a matter of usage."""
    from syphon.backlog.choosing import NothingChosen, choose

    try:
        return choose(config.pairs, pairs, queues)
    except NothingChosen as error:
        raise click.UsageError(str(error)) from None


def exit_code_of(error: Exception) -> ExitCode:
    """How a command ends that met this error."""
    from syphon.bus.administration import Unanswered
    from syphon.errors import Faulted, Interrupted, NotAuthorized, Waits

    if isinstance(error, NotAuthorized):
        return ExitCode.NOT_AUTHORIZED
    if isinstance(error, Waits | Interrupted | Faulted | Unanswered):
        return ExitCode.UNAVAILABLE
    return ExitCode.LEFT
