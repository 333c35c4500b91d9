"""The search for dead letters: a peek into one backlog queue after another. Nothing is locked or changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from syphon.bus import Connection, connected
from syphon.model import SyphonError

from .dead_letters import DeadLetter, DeadLetterFilter, read_dead_letters
from .queue_selection import SelectedQueue, by_pair


class DeadLetterSearch:
    """Finds the selected dead letters, queue after queue. A queue out of reach does not hide the others."""

    def __init__(
        self, chosen: Sequence[SelectedQueue], wanted: DeadLetterFilter, limit: int | None = None, start: int = 1
    ) -> None:
        self.unreachable: list[tuple[SelectedQueue, SyphonError]] = []
        """The queues that could not be searched, and why. Complete when the search is over."""
        self._chosen = chosen
        self._wanted = wanted
        self._limit = limit
        self._start = start

    def __iter__(self) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        return islice(self._all(), self._limit)

    def _all(self) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        for pair, ours in by_pair(self._chosen):
            try:
                with connected(pair.secondary, ours[0].queue) as connection:
                    for selected in ours:
                        yield from self._one(connection, selected)
            except SyphonError as error:
                self.unreachable += [(selected, error) for selected in ours]

    def _one(self, connection: Connection, selected: SelectedQueue) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        try:
            for letter in read_dead_letters(connection, selected.queue, self._start):
                if self._wanted.matches(letter):
                    yield selected, letter
        except SyphonError as error:
            self.unreachable.append((selected, error))
