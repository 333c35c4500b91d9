"""The backlog queues that a command works on: which ones the options select, and queues that are out of reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from .exit_codes import ExitCode

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue
    from syphon.config import Config
    from syphon.model import SyphonError

    UnreachableQueue = tuple[SelectedQueue, SyphonError]
    """A queue that the command could not reach, and why."""


def queue_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--pair` and `--queue`."""
    queue = click.option(
        "--queue",
        "queues",
        metavar="QUEUE",
        multiple=True,
        help="Only this backlog queue: its index (0), its name, or a pattern (*/1?). May be repeated.",
    )
    pair = click.option("--pair", "pairs", metavar="NAME", multiple=True, help="Only this pair. May be repeated.")
    return pair(queue(command))


def selected_queues(config: Config, pairs: tuple[str, ...], queues: tuple[str, ...]) -> list[SelectedQueue]:
    """The queues that the options select. A name that selects no queue is an error of usage."""
    from syphon.backlog import NoQueueSelected, select_queues

    try:
        return select_queues(config.pairs, pairs, queues)
    except NoQueueSelected as error:
        raise click.UsageError(str(error)) from None


def has_messages(selected: Sequence[SelectedQueue]) -> bool:
    """Whether a peek finds a message in one of these queues. A queue that cannot be peeked may have one.

    A command that looks at the backlog asks this first: where there is nothing to look at, it need not start Spark.
    """
    from syphon.backlog import by_pair
    from syphon.bus import connected, peek
    from syphon.model import SyphonError

    try:
        for pair, ours in by_pair(selected):
            with connected(pair.secondary, ours[0].queue) as connection:
                for queue in ours:
                    if any(True for _ in peek(connection, queue.queue)):
                        return True
    except SyphonError:
        return True
    return False


def report_unreachable(unreachable: Sequence[UnreachableQueue]) -> list[dict[str, str]]:
    """Prints on stderr which queues are out of reach, and returns them as records for JSON."""
    for selected, error in unreachable:
        click.echo(f"{selected.queue}: {error}", err=True)
    return [{"queue": selected.queue, "error": str(error)} for selected, error in unreachable]


def exit_code_for(unreachable: Sequence[UnreachableQueue]) -> ExitCode:
    """The exit code of a command that could not reach these queues."""
    from syphon.model import Faulted, Interrupted, NotAuthorized, Waits

    code = ExitCode.OK
    for _, error in unreachable:
        if isinstance(error, NotAuthorized):
            code = max(code, ExitCode.NOT_AUTHORIZED)
        elif isinstance(error, Waits | Interrupted | Faulted):
            code = max(code, ExitCode.UNAVAILABLE)
        else:
            code = max(code, ExitCode.LEFT)
    return code
