"""The administration of a namespace: reads queues and topics, and makes queues. One port, two implementations (P6).

`data_plane_administration` asks the namespace itself, `arm_administration` asks Azure Resource Manager. Both return the
same values and raise the same errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from syphon.model import SyphonError


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQueue:
    """The settings of a queue that is to be made; the service chooses all others. Durations are in milliseconds."""

    max_size_in_megabytes: int
    max_delivery_count: int
    default_message_time_to_live: int
    auto_delete_on_idle: int
    lock_duration: int
    dead_lettering_on_message_expiration: bool
    enable_batched_operations: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo(NewQueue):
    """The settings of a queue that exists: also those that the service chooses."""

    requires_session: bool
    requires_duplicate_detection: bool
    enable_partitioning: bool
    enable_express: bool
    forward_to: str | None
    forward_dead_lettered_messages_to: str | None
    status: str


class QueueCounts(NamedTuple):
    """How many messages a queue holds, as the namespace counts them. The counts may be wrong."""

    active: int
    dead_letters: int
    size_in_bytes: int | None = None
    """How much of the queue's room they take, dead letters included."""


class AllowedUse(StrEnum):
    """What a queue or topic allows."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


class NamespaceTier(NamedTuple):
    """The tier of a namespace: Basic, Standard or Premium, and how many messaging units a Premium one has."""

    name: str
    units: int = 1


class Administration(Protocol):
    """The port: reads the entities of a namespace, and creates queues there.

    Every operation may raise `NotAuthorized`, `NamespaceGone` or a kind of `AdministrationFailed`. The text names the
    namespace and the entity, and never contains a secret. No operation is retried: the caller decides about that.
    """

    @property
    def namespace(self) -> str:
        """The name of the namespace for a report."""

    def get_queue(self, name: str) -> QueueInfo | None:
        """The queue, or None if there is no queue of that name."""

    def create_queue(self, name: str, options: NewQueue) -> None:
        """Makes a queue. Check first that it does not exist: Resource Manager changes one that does, silently."""

    def queue_names(self, prefix: str) -> list[str]:
        """The names of all queues that start with the prefix, in any case."""

    def entity_names(self) -> list[str]:
        """The names of all queues and topics."""

    def exists(self, entity: str) -> bool:
        """Whether there is a queue or topic of that name."""

    def duplicate_window(self, entity: str) -> int:
        """For how many milliseconds a queue or topic drops messages whose id it knows; 0 if it detects no duplicates.

        What it forwards to counts as well. An entity that does not exist has no window.
        """

    def tier(self) -> NamespaceTier:
        """What kind of namespace it is."""

    def queue_counts(self, queue: str) -> QueueCounts | None:
        """The queue's own message counts, which may be wrong. None if there is no such queue, or it has no counts."""

    def close(self) -> None:
        """Closes the connections."""


class DuplicateDetection(NamedTuple):
    """What an entity says about duplicates, and where its messages go on to."""

    window: int
    """Milliseconds; 0 if it detects no duplicates."""
    forwards_to: tuple[str, ...] = ()
    """The entities that it, or a subscription of the topic, forwards messages to."""


def longest_window(entity: str, look: Callable[[str], DuplicateDetection | None]) -> int:
    """The longest window of an entity and of all that it forwards to, in milliseconds: each may drop a duplicate."""
    longest = 0
    seen, ahead = set[str](), [entity]
    while ahead:
        name = ahead.pop()
        if name.lower() not in seen and (found := look(name)) is not None:
            longest = max(longest, found.window)
            ahead += found.forwards_to
        seen.add(name.lower())
    return longest


class AdministrationFailed(SyphonError):
    """The administration of the namespace did not do what was requested."""


class AdministrationUnavailable(AdministrationFailed):
    """There was no answer, or the answer was that the namespace is busy or broken. It may work later."""


class AdministrationUnreachable(AdministrationUnavailable):
    """There was no connection, or no answer on it: other requests will fail, too."""


class AdministrationRefused(AdministrationFailed):
    """The service refused the request, for a reason other than credentials."""


class EntityConflict(AdministrationRefused):
    """An entity of that name exists already, or is being changed at this moment."""
