"""The backlog queues that a command works on: those that the options select, and which are unreachable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from syphon import model
from syphon.model import ExitCode

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
        help="Only this backlog queue: its index (0), name, or a pattern (*/1?). Repeatable.",
    )
    pair = click.option("--pair", "pairs", metavar="NAME", multiple=True, help="Only this pair. Repeatable.")
    return pair(queue(command))


def selected_queues(config: Config, pairs: tuple[str, ...], queues: tuple[str, ...]) -> list[SelectedQueue]:
    """The queues that the options select. A name that matches no queue is a usage error."""
    from syphon.backlog import NoQueueSelected, select_queues

    try:
        return select_queues(config.pairs, pairs, queues)
    except NoQueueSelected as error:
        raise click.UsageError(str(error)) from None


def report_unreachable(unreachable: Sequence[UnreachableQueue]) -> list[dict[str, str]]:
    """Print the unreachable queues on stderr, and return them as records for JSON."""
    for line in model.by_cause((selected.queue, str(error)) for selected, error in unreachable):
        click.echo(line, err=True)
    return [{"queue": selected.queue, "error": str(error)} for selected, error in unreachable]


def warn_of_stranded(config: Config, chosen: Sequence[SelectedQueue]) -> None:
    """Say on stderr which messages no pair listens to. It needs the Manage claim; without it nothing is said."""
    from syphon.backlog import by_pair, stranded_backlogs

    for pair, _ in by_pair(chosen):
        with suppress(model.SyphonError):
            for stranded in stranded_backlogs(pair, config.pairs):
                click.echo(f"warning: {pair.secondary.host}: {stranded}.", err=True)


def exit_code_for_queues(unreachable: Sequence[UnreachableQueue]) -> ExitCode:
    """The exit code of a command that could not reach these queues."""
    return model.exit_code_for(error for _, error in unreachable)
