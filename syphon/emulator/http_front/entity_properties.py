"""The properties of queues, topics and subscriptions, with the names and in the order of the service.

The Atom API writes `LockDuration`, Azure Resource Manager `lockDuration`, a description `lock_duration`. One table per
kind of entity serves all three, for reading and writing. The order matters: clients with a serializer like the
service's skip elements in another order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..broker import (
    BadArgument,
    EntityDescription,
    EntityRuntime,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from .iso_times import read_duration, write_duration, write_instant


class PropertyType(Enum):
    """The format of a setting."""

    DURATION = "an ISO 8601 duration"
    NUMBER = "a whole number"
    FLAG = "true or false"
    TEXT = "text"
    STATUS = "one of " + ", ".join(EntityStatus)
    ENTITY = "the path of an entity"

    def read(self, text: str) -> object:
        """Reads a value. Raises ValueError, KeyError or a Refusal if the text is invalid."""
        match self:
            case PropertyType.DURATION:
                return read_duration(text)
            case PropertyType.NUMBER:
                if not re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip()):
                    raise ValueError(text)
                return int(text)
            case PropertyType.FLAG:
                return {"true": True, "1": True, "false": False, "0": False}[text.strip()]
            case PropertyType.STATUS:
                return EntityStatus(text.strip())
            case PropertyType.TEXT | PropertyType.ENTITY:
                return text or None


@dataclass(frozen=True, slots=True)
class SettingProperty:
    """A property that a client may set. With `since` it is left out of the answers to clients with an older version."""

    name: str
    kind: PropertyType
    since: str = ""

    @property
    def field(self) -> str:
        """The name of the field in a description."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()

    def read(self, text: str) -> object:
        try:
            return self.kind.read(text)
        except BadArgument as refusal:
            raise BadArgument(f"SubCode=40000. {self.name}: {refusal.description}") from None
        except (KeyError, ValueError):
            raise BadArgument(f"SubCode=40000. {self.name}: '{text[:100]}' is not {self.kind.value}.") from None

    def plain(self, entity: EntityDescription) -> str | int | bool | None:
        """The value for JSON."""
        value = getattr(entity, self.field)
        return write_duration(value) if self.kind is PropertyType.DURATION and value is not None else value


@dataclass(frozen=True, slots=True)
class RuntimeProperty:
    """A property that only the service sets. With `later` it is left out of the answer to a creation, and with `since`
    of the answers to clients with an older API version."""

    name: str
    value: Callable[[EntityRuntime], str | int | bool]
    later: bool = False
    since: str = ""


class NestedProperty(Enum):
    """Properties with properties of their own."""

    AUTHORIZATION_RULES = "AuthorizationRules"
    COUNT_DETAILS = "CountDetails"


Property = SettingProperty | RuntimeProperty | NestedProperty

COUNTS: Mapping[str, Callable[[EntityRuntime], int]] = {
    "ActiveMessageCount": lambda runtime: runtime.active,
    "DeadLetterMessageCount": lambda runtime: runtime.dead_letter,
    "ScheduledMessageCount": lambda runtime: runtime.scheduled,
    "TransferMessageCount": lambda runtime: runtime.transfer,
    "TransferDeadLetterMessageCount": lambda runtime: runtime.transfer_dead_letter,
}

UPDATED, ACCESSED = "UpdatedAt", "AccessedAt"

LARGE_MESSAGES = "2021-05"
"""The first API version in which an entity has a largest message, and a subscription says that no client owns it."""
FILTER_COUNTS = "2024-05"
"""The first API version in which a topic counts the filters of its subscriptions."""

_SIZE = RuntimeProperty("SizeInBytes", lambda runtime: runtime.size_in_bytes)
_MESSAGES = RuntimeProperty("MessageCount", lambda runtime: runtime.message_count)
_ANONYMOUS = RuntimeProperty("IsAnonymousAccessible", lambda _: False)
_CREATED = RuntimeProperty("CreatedAt", lambda runtime: write_instant(runtime.created_at))
_UPDATED = RuntimeProperty(UPDATED, lambda runtime: write_instant(runtime.updated_at))
_ACCESSED = RuntimeProperty(ACCESSED, lambda runtime: write_instant(runtime.accessed_at), later=True)
_METADATA = SettingProperty("UserMetadata", PropertyType.TEXT)
_AVAILABLE = RuntimeProperty("EntityAvailabilityStatus", lambda _: "Available")

QUEUE: tuple[Property, ...] = (
    SettingProperty("LockDuration", PropertyType.DURATION),
    SettingProperty("MaxSizeInMegabytes", PropertyType.NUMBER),
    SettingProperty("RequiresDuplicateDetection", PropertyType.FLAG),
    SettingProperty("RequiresSession", PropertyType.FLAG),
    SettingProperty("DefaultMessageTimeToLive", PropertyType.DURATION),
    SettingProperty("DeadLetteringOnMessageExpiration", PropertyType.FLAG),
    SettingProperty("DuplicateDetectionHistoryTimeWindow", PropertyType.DURATION),
    SettingProperty("MaxDeliveryCount", PropertyType.NUMBER),
    SettingProperty("EnableBatchedOperations", PropertyType.FLAG),
    _SIZE,
    _MESSAGES,
    _ANONYMOUS,
    NestedProperty.AUTHORIZATION_RULES,
    SettingProperty("Status", PropertyType.STATUS),
    _CREATED,
    _UPDATED,
    _ACCESSED,
    _METADATA,
    RuntimeProperty("SupportOrdering", lambda runtime: runtime.keeps_order),
    NestedProperty.COUNT_DETAILS,
    SettingProperty("AutoDeleteOnIdle", PropertyType.DURATION),
    SettingProperty("EnablePartitioning", PropertyType.FLAG),
    _AVAILABLE,
    SettingProperty("EnableExpress", PropertyType.FLAG),
    SettingProperty("ForwardTo", PropertyType.ENTITY),
    SettingProperty("ForwardDeadLetteredMessagesTo", PropertyType.ENTITY),
    SettingProperty("MaxMessageSizeInKilobytes", PropertyType.NUMBER, since=LARGE_MESSAGES),
)

TOPIC: tuple[Property, ...] = (
    SettingProperty("DefaultMessageTimeToLive", PropertyType.DURATION),
    SettingProperty("MaxSizeInMegabytes", PropertyType.NUMBER),
    SettingProperty("RequiresDuplicateDetection", PropertyType.FLAG),
    SettingProperty("DuplicateDetectionHistoryTimeWindow", PropertyType.DURATION),
    SettingProperty("EnableBatchedOperations", PropertyType.FLAG),
    _SIZE,
    RuntimeProperty("FilteringMessagesBeforePublishing", lambda _: False),
    _ANONYMOUS,
    NestedProperty.AUTHORIZATION_RULES,
    SettingProperty("Status", PropertyType.STATUS),
    _CREATED,
    _UPDATED,
    _ACCESSED,
    _METADATA,
    SettingProperty("SupportOrdering", PropertyType.FLAG),
    NestedProperty.COUNT_DETAILS,
    RuntimeProperty("SubscriptionCount", lambda runtime: runtime.subscription_count, later=True),
    RuntimeProperty("SqlFilterCount", lambda runtime: runtime.sql_filter_count, later=True, since=FILTER_COUNTS),
    RuntimeProperty(
        "CorrelationFilterCount", lambda runtime: runtime.correlation_filter_count, later=True, since=FILTER_COUNTS
    ),
    SettingProperty("AutoDeleteOnIdle", PropertyType.DURATION),
    SettingProperty("EnablePartitioning", PropertyType.FLAG),
    _AVAILABLE,
    RuntimeProperty("EnableSubscriptionPartitioning", lambda _: False),
    SettingProperty("EnableExpress", PropertyType.FLAG),
    SettingProperty("MaxMessageSizeInKilobytes", PropertyType.NUMBER, since=LARGE_MESSAGES),
)

SUBSCRIPTION: tuple[Property, ...] = (
    SettingProperty("LockDuration", PropertyType.DURATION),
    SettingProperty("RequiresSession", PropertyType.FLAG),
    SettingProperty("DefaultMessageTimeToLive", PropertyType.DURATION),
    SettingProperty("DeadLetteringOnMessageExpiration", PropertyType.FLAG),
    SettingProperty("DeadLetteringOnFilterEvaluationExceptions", PropertyType.FLAG),
    _MESSAGES,
    SettingProperty("MaxDeliveryCount", PropertyType.NUMBER),
    SettingProperty("EnableBatchedOperations", PropertyType.FLAG),
    SettingProperty("Status", PropertyType.STATUS),
    SettingProperty("ForwardTo", PropertyType.ENTITY),
    _CREATED,
    _UPDATED,
    RuntimeProperty(ACCESSED, lambda runtime: write_instant(runtime.accessed_at or runtime.created_at)),
    _METADATA,
    NestedProperty.COUNT_DETAILS,
    SettingProperty("ForwardDeadLetteredMessagesTo", PropertyType.ENTITY),
    SettingProperty("AutoDeleteOnIdle", PropertyType.DURATION),
    _AVAILABLE,
    RuntimeProperty("IsClientAffine", lambda _: False, since=LARGE_MESSAGES),
)


def properties_of(entity: EntityDescription, api_version: str = "") -> list[Property]:
    """The properties that a client of this API version gets."""
    properties = {QueueDescription: QUEUE, TopicDescription: TOPIC, SubscriptionDescription: SUBSCRIPTION}[type(entity)]
    return [item for item in properties if isinstance(item, NestedProperty) or item.since <= api_version]


def settings_of(properties: tuple[Property, ...]) -> list[SettingProperty]:
    return [item for item in properties if isinstance(item, SettingProperty)]


def read_settings(properties: tuple[Property, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """The given settings as keyword arguments for a description. A missing setting has the service's default."""
    return {item.field: item.read(given[item.name]) for item in settings_of(properties) if item.name in given}
