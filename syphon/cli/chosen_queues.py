"""What commands about the backlog share: which queues are meant, and how trouble with them ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from .exit_codes import ExitCode

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue
    from syphon.config import Config
    from syphon.model import SyphonError

    Unseen = tuple[SelectedQueue, SyphonError]
    """A queue that was out of reach, and why."""


def queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--pair` and `--queue`."""
    queue = click.option(
        "--queue",
        "queues",
        metavar="QUEUE",
        multiple=True,
        help="Only this backlog queue: its index (0), its name, or a pattern (*/1?). May be given again.",
    )
    pair = click.option("--pair", "pairs", metavar="NAME", multiple=True, help="Only this pair. May be given again.")
    return pair(queue(command))


def assignments(config: Config, pairs: tuple[str, ...], queues: tuple[str, ...]) -> list[SelectedQueue]:
    """The queues that are meant; a name that means none is a matter of usage."""
    from syphon.backlog import NoQueueSelected, select_queues

    try:
        return select_queues(config.pairs, pairs, queues)
    except NoQueueSelected as error:
        raise click.UsageError(str(error)) from None


def unseen_records(unseen: Sequence[Unseen]) -> list[dict[str, str]]:
    """Queues that were out of reach: told on stderr, and given back for the JSON."""
    for assignment, error in unseen:
        click.echo(f"{assignment.queue}: {error}", err=True)
    return [{"queue": assignment.queue, "error": str(error)} for assignment, error in unseen]


def exit_code_for(unseen: Sequence[Unseen]) -> ExitCode:
    """How a command ends that could not reach these."""
    from syphon.model import Faulted, Interrupted, NotAuthorized, Waits

    code = ExitCode.OK
    for _, error in unseen:
        if isinstance(error, NotAuthorized):
            code = max(code, ExitCode.NOT_AUTHORIZED)
        elif isinstance(error, Waits | Interrupted | Faulted):
            code = max(code, ExitCode.UNAVAILABLE)
        else:
            code = max(code, ExitCode.LEFT)
    return code
