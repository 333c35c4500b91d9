"""Backlog queues: their names, their documented description, forbidden paths, and the selection for a command.

A backlog queue is `<primary>/x-servicebus-transfer/<n>` and lives in the secondary namespace (P1). Names of Service Bus
are not case-sensitive, so reading a name here is not, either.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple, NewType

from syphon.model import BACKLOG_MARK, EntityPath, PathPatterns, SyphonError, first_label, never_a_destination
from syphon.servicebus import NewQueue

from .dotnet_times import FOREVER, iso_duration

if TYPE_CHECKING:
    from syphon.config import PairSettings

QueueName = NewType("QueueName", str)

MARK = BACKLOG_MARK
_NAME = re.compile(rf"([^/]+)/{MARK}/(0|[1-9][0-9]{{0,8}})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class BacklogQueue:
    """One backlog queue: the label of its primary, and its index."""

    primary: str
    index: int

    @property
    def name(self) -> QueueName:
        return QueueName(f"{self.primary}/{MARK}/{self.index}")


def backlog_queues(primary: str, count: int) -> list[BacklogQueue]:
    """The queues of a primary, index in [0, count) (P1)."""
    return [BacklogQueue(primary, index) for index in range(count)]


def parse_queue_name(name: str) -> BacklogQueue | None:
    """The backlog queue of a name; None if the name is not that of a backlog queue. `07` is not an index."""
    found = _NAME.fullmatch(name)
    return BacklogQueue(found[1], int(found[2])) if found else None


def primary_label(host: str, pair: str, override: str | None = None) -> str:
    """The primary's label in the names of its queues: the first label of its host, `contoso` for contoso.servicebus…

    An IP address or localhost has no such label: then it is the name of the pair. `override` always wins.
    """
    return override or first_label(host) or pair


def not_allowed(path: EntityPath, allow: PathPatterns) -> str | None:
    """Why no message may be forwarded to a path (D13): by its nature, or by the settings; None if one may."""
    never = never_a_destination(path)
    if never is None and not allow.fit(path):
        return "the configuration does not allow it"
    return never


def not_allowed_text(path: EntityPath, why: str) -> str:
    """The description of a dead letter whose destination is not allowed."""
    return f"x-ms-path names {path.name!r} as the destination: {why}."


# --- the documented description --------------------------------------------------------------------------------------

_DURATIONS = frozenset({"default_message_time_to_live", "auto_delete_on_idle", "lock_duration"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One property in which a queue differs from the documented description; both values as people write them."""

    property: str
    found: str
    documented: str
    consequence: str | None = None
    """What follows from it, if that is not obvious."""

    def __str__(self) -> str:
        consequence = "" if self.consequence is None else f" ({self.consequence})"
        return f"{self.property} is {self.found}, documented is {self.documented}{consequence}"


DOCUMENTED = NewQueue(
    max_size_in_megabytes=5120,
    max_delivery_count=2**31 - 1,
    default_message_time_to_live=FOREVER,
    auto_delete_on_idle=FOREVER,
    lock_duration=60_000,
    dead_lettering_on_message_expiration=True,
    enable_batched_operations=True,
)
"""The description of a new backlog queue (P2)."""


def differences_from_documented(found: NewQueue) -> list[Difference]:
    """Each documented property in which `found` differs (P3): it is the owner's decision, but worth a warning."""
    documented, theirs = as_written(DOCUMENTED), as_written(found)
    return [Difference(name, theirs[name], value) for name, value in documented.items() if theirs[name] != value]


def as_written(queue: NewQueue) -> dict[str, str]:
    """Every documented property by its name, as the service writes it."""
    return {field.name: _written(field.name, getattr(queue, field.name)) for field in dataclasses.fields(NewQueue)}


def _written(name: str, value: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return iso_duration(value) if name in _DURATIONS else str(value)


# --- the queues that a command works on ------------------------------------------------------------------------------


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
