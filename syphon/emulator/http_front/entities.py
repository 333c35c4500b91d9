"""The properties of queues, topics and subscriptions, in the order and with the names the service gives them.

The Atom API spells a property `LockDuration`, Azure Resource Manager spells it `lockDuration`, a description
`lock_duration`: one table per kind of entity serves all three, in both directions. Written in the service's order,
because clients with serializers like its own pass over elements that come out of turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..broker.descriptions import (
    EntityDescription,
    EntityRuntime,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from ..broker.refusals import BadArgument
from .values import read_duration, write_duration, write_instant


class Kind(Enum):
    """How a setting is written."""

    DURATION = "an ISO 8601 duration"
    NUMBER = "a whole number"
    FLAG = "true or false"
    TEXT = "text"
    STATUS = "one of " + ", ".join(EntityStatus)
    ENTITY = "the path of an entity"

    def read(self, text: str) -> object:
        """The value, or a `ValueError` or `Refusal` that says why not."""
        match self:
            case Kind.DURATION:
                return read_duration(text)
            case Kind.NUMBER:
                if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
                    raise ValueError(text)
                return int(text)
            case Kind.FLAG:
                return {"true": True, "1": True, "false": False, "0": False}[text.strip()]
            case Kind.STATUS:
                return EntityStatus(text.strip())
            case Kind.TEXT | Kind.ENTITY:
                return text or None


@dataclass(frozen=True, slots=True)
class Setting:
    """A property a client may give."""

    name: str
    kind: Kind

    @property
    def field(self) -> str:
        """Its name in a description."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    def read(self, text: str) -> object:
        try:
            return self.kind.read(text)
        except BadArgument as refusal:
            raise BadArgument(f"SubCode=40000. {self.name}: {refusal.description}") from None
        except (KeyError, ValueError):
            raise BadArgument(f"SubCode=40000. {self.name}: '{text[:100]}' is not {self.kind.value}.") from None

    def plain(self, entity: EntityDescription) -> str | int | bool | None:
        """Its value as JSON has it."""
        value = getattr(entity, self.field)
        return write_duration(value) if self.kind is Kind.DURATION and value is not None else value


@dataclass(frozen=True, slots=True)
class Fact:
    """A property only the service knows. One with `later` is not among the answers to a creation."""

    name: str
    value: Callable[[EntityRuntime], str | int | bool]
    later: bool = False


class Nested(Enum):
    """Properties with properties of their own."""

    AUTHORIZATION_RULES = "AuthorizationRules"
    COUNT_DETAILS = "CountDetails"


Property = Setting | Fact | Nested

COUNTS: Mapping[str, Callable[[EntityRuntime], int]] = {
    "ActiveMessageCount": lambda runtime: runtime.active,
    "DeadLetterMessageCount": lambda runtime: runtime.dead_letter,
    "ScheduledMessageCount": lambda runtime: runtime.scheduled,
    "TransferMessageCount": lambda runtime: runtime.transfer,
    "TransferDeadLetterMessageCount": lambda runtime: runtime.transfer_dead_letter,
}

_SIZE = Fact("SizeInBytes", lambda runtime: runtime.size_in_bytes)
_MESSAGES = Fact("MessageCount", lambda runtime: runtime.message_count)
_ANONYMOUS = Fact("IsAnonymousAccessible", lambda _: False)
_CREATED = Fact("CreatedAt", lambda runtime: write_instant(runtime.created_at))
_UPDATED = Fact("UpdatedAt", lambda runtime: write_instant(runtime.updated_at))
_ACCESSED = Fact("AccessedAt", lambda runtime: write_instant(runtime.accessed_at), later=True)
_AVAILABLE = Fact("EntityAvailabilityStatus", lambda _: "Available")

QUEUE: tuple[Property, ...] = (
    Setting("LockDuration", Kind.DURATION),
    Setting("MaxSizeInMegabytes", Kind.NUMBER),
    Setting("RequiresDuplicateDetection", Kind.FLAG),
    Setting("RequiresSession", Kind.FLAG),
    Setting("DefaultMessageTimeToLive", Kind.DURATION),
    Setting("DeadLetteringOnMessageExpiration", Kind.FLAG),
    Setting("DuplicateDetectionHistoryTimeWindow", Kind.DURATION),
    Setting("MaxDeliveryCount", Kind.NUMBER),
    Setting("EnableBatchedOperations", Kind.FLAG),
    _SIZE,
    _MESSAGES,
    _ANONYMOUS,
    Nested.AUTHORIZATION_RULES,
    Setting("Status", Kind.STATUS),
    _CREATED,
    _UPDATED,
    _ACCESSED,
    Fact("SupportOrdering", lambda _: True),
    Nested.COUNT_DETAILS,
    Setting("AutoDeleteOnIdle", Kind.DURATION),
    Setting("EnablePartitioning", Kind.FLAG),
    _AVAILABLE,
    Setting("EnableExpress", Kind.FLAG),
    Setting("ForwardTo", Kind.ENTITY),
    Setting("UserMetadata", Kind.TEXT),
    Setting("ForwardDeadLetteredMessagesTo", Kind.ENTITY),
    Setting("MaxMessageSizeInKilobytes", Kind.NUMBER),
)

TOPIC: tuple[Property, ...] = (
    Setting("DefaultMessageTimeToLive", Kind.DURATION),
    Setting("MaxSizeInMegabytes", Kind.NUMBER),
    Setting("RequiresDuplicateDetection", Kind.FLAG),
    Setting("DuplicateDetectionHistoryTimeWindow", Kind.DURATION),
    Setting("EnableBatchedOperations", Kind.FLAG),
    _SIZE,
    Fact("FilteringMessagesBeforePublishing", lambda _: False),
    _ANONYMOUS,
    Nested.AUTHORIZATION_RULES,
    Setting("Status", Kind.STATUS),
    _CREATED,
    _UPDATED,
    _ACCESSED,
    Setting("SupportOrdering", Kind.FLAG),
    Nested.COUNT_DETAILS,
    Fact("SubscriptionCount", lambda runtime: runtime.subscription_count, later=True),
    Setting("AutoDeleteOnIdle", Kind.DURATION),
    Setting("EnablePartitioning", Kind.FLAG),
    _AVAILABLE,
    Fact("EnableSubscriptionPartitioning", lambda _: False),
    Setting("EnableExpress", Kind.FLAG),
    Setting("UserMetadata", Kind.TEXT),
    Setting("MaxMessageSizeInKilobytes", Kind.NUMBER),
)

SUBSCRIPTION: tuple[Property, ...] = (
    Setting("LockDuration", Kind.DURATION),
    Setting("RequiresSession", Kind.FLAG),
    Setting("DefaultMessageTimeToLive", Kind.DURATION),
    Setting("DeadLetteringOnMessageExpiration", Kind.FLAG),
    Setting("DeadLetteringOnFilterEvaluationExceptions", Kind.FLAG),
    _MESSAGES,
    Setting("MaxDeliveryCount", Kind.NUMBER),
    Setting("EnableBatchedOperations", Kind.FLAG),
    Setting("Status", Kind.STATUS),
    Setting("ForwardTo", Kind.ENTITY),
    _CREATED,
    _UPDATED,
    _ACCESSED,
    Nested.COUNT_DETAILS,
    Setting("ForwardDeadLetteredMessagesTo", Kind.ENTITY),
    Setting("AutoDeleteOnIdle", Kind.DURATION),
    _AVAILABLE,
    Setting("UserMetadata", Kind.TEXT),
)


def properties_of(entity: EntityDescription) -> tuple[Property, ...]:
    match entity:
        case QueueDescription():
            return QUEUE
        case TopicDescription():
            return TOPIC
        case SubscriptionDescription():
            return SUBSCRIPTION


def settings_of(properties: tuple[Property, ...]) -> list[Setting]:
    return [item for item in properties if isinstance(item, Setting)]


def read_settings(properties: tuple[Property, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """What was given, as keyword arguments for a description; what was not keeps the service's default."""
    return {item.field: item.read(given[item.name]) for item in settings_of(properties) if item.name in given}
