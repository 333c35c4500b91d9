"""The search for dead letters: the options that select them, and a peek into one queue after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ..backlog_queues import queue_options
from ..options import Moment, config_option, millis_of

if TYPE_CHECKING:
    from syphon.backlog import DeadLetter, DeadLetterFilter, SelectedQueue
    from syphon.bus import Connection

    from ..backlog_queues import UnreachableQueue

FILTERS = (
    click.option(
        "--reason", default="*", metavar="PATTERN", help="Only with a reason that matches, such as 'Destination*'."
    ),
    click.option(
        "--destination",
        default="*",
        metavar="PATTERN",
        help="Only for a destination that matches; '' selects those that name none.",
    ),
    click.option(
        "--after",
        type=Moment(),
        help="Only messages that came into the backlog since: 2026-10-01, 2026-10-01T08:30Z, or 2h (ago).",
    ),
    click.option("--before", type=Moment(), help="Only messages that came into the backlog before."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N."),
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c`, `--pair`, `--queue` and the filters that select dead letters."""
    for option in reversed(FILTERS):
        command = option(command)
    return config_option(queue_options(command))


def wanted(reason: str, destination: str, after: datetime | None, before: datetime | None) -> DeadLetterFilter:
    """The filters as one object."""
    from syphon.backlog import DeadLetterFilter

    if after is not None and before is not None and before <= after:
        raise click.UsageError(f"--before {before.isoformat()} is not later than --after {after.isoformat()}.")
    return DeadLetterFilter(reason, destination, millis_of(after), millis_of(before))


class Search:
    """Finds the selected dead letters, queue after queue. A queue out of reach does not hide the others."""

    def __init__(
        self, chosen: Sequence[SelectedQueue], wanted: DeadLetterFilter, limit: int | None = None, start: int = 1
    ) -> None:
        self.unreachable: list[UnreachableQueue] = []
        self._chosen = chosen
        self._wanted = wanted
        self._limit = limit
        self._start = start

    def __iter__(self) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        return islice(self._all(), self._limit)

    def _all(self) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        from syphon.backlog import by_pair
        from syphon.bus import connected
        from syphon.model import SyphonError

        for pair, ours in by_pair(self._chosen):
            try:
                with connected(pair.secondary, ours[0].queue) as connection:
                    for selected in ours:
                        yield from self._one(connection, selected)
            except SyphonError as error:
                self.unreachable += [(selected, error) for selected in ours]

    def _one(self, connection: Connection, selected: SelectedQueue) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        from syphon.backlog import read_dead_letters
        from syphon.model import SyphonError

        try:
            for letter in read_dead_letters(connection, selected.queue, self._start):
                if self._wanted.matches(letter):
                    yield selected, letter
        except SyphonError as error:
            self.unreachable.append((selected, error))
