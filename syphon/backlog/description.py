"""The documented description of a backlog queue (P2), and how a queue that is there differs from it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .times import FOREVER, iso_duration

_DURATIONS = frozenset({"default_message_time_to_live", "auto_delete_on_idle", "lock_duration"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One property in which a queue differs from the documented description, both values as people write them."""

    property: str
    found: str
    documented: str

    def __str__(self) -> str:
        return f"{self.property} is {self.found}, documented is {self.documented}"


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """What is set explicitly on a backlog queue; all else stays at the service's default. Durations in milliseconds."""

    max_size_in_megabytes: int = 5120
    max_delivery_count: int = 2**31 - 1
    default_message_time_to_live: int = FOREVER
    auto_delete_on_idle: int = FOREVER
    lock_duration: int = 60_000
    dead_lettering_on_message_expiration: bool = True
    enable_batched_operations: bool = True

    def differences(self, found: QueueDescription) -> list[Difference]:
        """Each property in which `found` is something else (P3): the owner's business, but worth a warning."""
        mine, theirs = self.written(), found.written()
        return [Difference(name, theirs[name], mine[name]) for name in mine if mine[name] != theirs[name]]

    def written(self) -> dict[str, str]:
        """Every property by its name, as the service writes it."""
        return {field.name: _written(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)}


def _written(name: str, value: int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return iso_duration(value) if name in _DURATIONS else str(value)


DOCUMENTED = QueueDescription()
"""P2."""
