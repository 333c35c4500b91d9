"""Finding dead letters: the options that say which are meant, and the look into one queue after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from ..chosen_queues import queue_options
from ..moments import Moment, millis_of
from ..settings_file import config_option

if TYPE_CHECKING:
    from syphon.backlog import DeadLetter, DeadLetterFilter, SelectedQueue
    from syphon.bus import Connection

    from ..chosen_queues import Unseen

FILTERS = (
    click.option("--reason", default="*", metavar="PATTERN", help="Only with such a reason, as in 'Destination*'."),
    click.option("--destination", default="*", metavar="PATTERN", help="Only for such a destination; '' is for none."),
    click.option(
        "--after",
        type=Moment(),
        help="Only what came into the backlog at or after: 2026-10-01, 2026-10-01T08:30Z, or 2h (ago).",
    ),
    click.option("--before", type=Moment(), help="Only what came into the backlog before that."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N of them."),
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c`, `--pair`, `--queue` and all that says which dead letters are meant."""
    for option in reversed(FILTERS):
        command = option(command)
    return config_option(queue_options(command))


def wanted(reason: str, destination: str, after: datetime | None, before: datetime | None) -> DeadLetterFilter:
    """What the filters say."""
    from syphon.backlog import DeadLetterFilter

    if after is not None and before is not None and before <= after:
        raise click.UsageError(f"--before {before.isoformat()} is not later than --after {after.isoformat()}.")
    return DeadLetterFilter(reason, destination, millis_of(after), millis_of(before))


class Search:
    """The dead letters that are meant, queue after queue. One that cannot be looked into does not hide the others."""

    def __init__(
        self, chosen: Sequence[SelectedQueue], wanted: DeadLetterFilter, limit: int | None = None, start: int = 1
    ) -> None:
        self.unseen: list[Unseen] = []
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
                    for assignment in ours:
                        yield from self._one(connection, assignment)
            except SyphonError as error:
                self.unseen += [(assignment, error) for assignment in ours]

    def _one(self, connection: Connection, assignment: SelectedQueue) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        from syphon.backlog import read_dead_letters
        from syphon.model import SyphonError

        try:
            for letter in read_dead_letters(connection, assignment.queue, self._start):
                if self._wanted.matches(letter):
                    yield assignment, letter
        except SyphonError as error:
            self.unseen.append((assignment, error))
