"""Selects the backlog queues that a command works on: those of all pairs, of some pairs, or single queues."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from syphon.config import PairSettings
from syphon.model import SyphonError

from .queues import QueueName, backlog_queues, primary_label


class NoQueueSelected(SyphonError):
    """No backlog queue has been selected."""


class SelectedQueue(NamedTuple):
    """One backlog queue to work on, and the pair it belongs to."""

    pair: PairSettings
    queue: QueueName


def queue_names(pair: PairSettings) -> list[QueueName]:
    """The backlog queues of a pair, according to its settings."""
    label = primary_label(pair.primary.host, pair.name, pair.primary.name)
    return [queue.name for queue in backlog_queues(label, pair.backlog_queue_count)]


def select_queues(
    pairs: Sequence[PairSettings], names: Sequence[str] = (), queues: Sequence[str] = ()
) -> list[SelectedQueue]:
    """The queues of the pairs with these names that match one of `queues`: an index, a name or a pattern.

    Without names it selects all pairs, without queues all queues. Raises NoQueueSelected for an unknown pair or queue.
    """
    known = {pair.name.lower(): pair for pair in pairs}
    for name in names:
        if name.lower() not in known:
            raise NoQueueSelected(f"The settings have no pair '{name}'; they have {', '.join(known)}.")
    selected = [known[name.lower()] for name in dict.fromkeys(names)] if names else list(pairs)
    candidates = [SelectedQueue(pair, queue) for pair in selected for queue in queue_names(pair)]
    for text in queues:
        if not any(_matches(selected.queue, text) for selected in candidates):
            raise NoQueueSelected(
                f"No backlog queue matches '{text}': the queues are {candidates[0].queue} to {candidates[-1].queue}."
            )
    return [one for one in candidates if not queues or any(_matches(one.queue, text) for text in queues)]


def by_pair(queues: Sequence[SelectedQueue]) -> list[tuple[PairSettings, list[SelectedQueue]]]:
    """Groups the queues by pair: the queues of a pair share a connection."""
    groups: dict[str, list[SelectedQueue]] = {}
    for selected in queues:
        groups.setdefault(selected.pair.name, []).append(selected)
    return [(ours[0].pair, ours) for ours in groups.values()]


def _matches(queue: str, text: str) -> bool:
    return queue.rpartition("/")[2] == text if text.isdecimal() else fnmatchcase(queue.lower(), text.lower())
