"""Which backlog queues a command is about: those of all pairs, or of some, or single ones."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import NamedTuple

from syphon.config import PairSettings
from syphon.model import SyphonError

from .names import QueueName
from .preflight import queue_names


class NothingChosen(SyphonError):
    """No backlog queue is meant by that."""


class SelectedQueue(NamedTuple):
    """One backlog queue to work on, and the pair it belongs to."""

    pair: PairSettings
    queue: QueueName


def choose(pairs: Sequence[PairSettings], names: Sequence[str] = (), queues: Sequence[str] = ()) -> list[SelectedQueue]:
    """The queues of the pairs of these names; only those that fit one of `queues`: an index, a name or a pattern.

    Nothing named is everything meant. Raises NothingChosen for a pair or queue that is not there.
    """
    known = {pair.name.lower(): pair for pair in pairs}
    for name in names:
        if name.lower() not in known:
            raise NothingChosen(f"There is no pair '{name}' in the settings: they have {', '.join(known)}.")
    wanted = [known[name.lower()] for name in dict.fromkeys(names)] if names else list(pairs)
    every = [SelectedQueue(pair, queue) for pair in wanted for queue in queue_names(pair)]
    for text in queues:
        if not any(_fits(assignment.queue, text) for assignment in every):
            raise NothingChosen(f"No backlog queue fits '{text}': they are {every[0].queue} to {every[-1].queue}.")
    return [one for one in every if not queues or any(_fits(one.queue, text) for text in queues)]


def by_pair(assignments: Sequence[SelectedQueue]) -> list[tuple[PairSettings, list[SelectedQueue]]]:
    """The same, the queues of each pair together: they share a connection."""
    groups = groupby(assignments, key=lambda assignment: assignment.pair.name)
    return [(ours[0].pair, ours) for ours in (list(group) for _, group in groups)]


def _fits(queue: str, text: str) -> bool:
    return queue.rpartition("/")[2] == text if text.isdecimal() else fnmatchcase(queue.lower(), text.lower())
