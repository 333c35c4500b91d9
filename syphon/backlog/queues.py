"""Backlog queues: their names, their documented description, and the paths that no message may be forwarded to.

A backlog queue is `<primary>/x-servicebus-transfer/<n>` and lives in the secondary namespace (P1). Names of Service Bus
are not case-sensitive, so reading a name here is not, either.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import NewType

from syphon.model import BACKLOG_MARK, EntityPath, PathPatterns, first_label, never_a_destination

from .times import FOREVER, iso_duration

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


@dataclass(frozen=True, slots=True)
class BacklogQueueDescription:
    """The properties that are set on a backlog queue; the others have their defaults. Durations in milliseconds."""

    max_size_in_megabytes: int = 5120
    max_delivery_count: int = 2**31 - 1
    default_message_time_to_live: int = FOREVER
    auto_delete_on_idle: int = FOREVER
    lock_duration: int = 60_000
    dead_lettering_on_message_expiration: bool = True
    enable_batched_operations: bool = True

    def differences(self, found: BacklogQueueDescription) -> list[Difference]:
        """Each property in which `found` differs (P3): it is the owner's decision, but worth a warning."""
        mine, theirs = self.written(), found.written()
        return [Difference(name, theirs[name], mine[name]) for name in mine if mine[name] != theirs[name]]

    def written(self) -> dict[str, str]:
        """Every property by its name, as the service writes it."""
        return {field.name: _written(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)}


def _written(name: str, value: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return iso_duration(value) if name in _DURATIONS else str(value)


DOCUMENTED = BacklogQueueDescription()
"""The description that P2 asks for."""
