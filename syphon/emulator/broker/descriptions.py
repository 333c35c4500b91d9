"""Descriptions of entities: the settings a client asks for and the service answers with.

A description is a value. Durations are milliseconds. `description_rules` checks a description against the rules of the
service.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..clock import FOREVER, Millis
from .actions import SqlAction
from .filters import Filter, TrueFilter

SECOND: Final[Millis] = 1_000
MINUTE: Final[Millis] = 60 * SECOND
DAY: Final[Millis] = 24 * 60 * MINUTE


class Tier(StrEnum):
    """The pricing tier of a namespace. It decides what the namespace can do."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


class Claim(StrEnum):
    """A right that a token carries."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


class EntityStatus(StrEnum):
    """Which operations an entity allows."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A named pair of keys with rights on one entity."""

    key_name: str
    rights: tuple[Claim, ...]
    primary_key: str
    secondary_key: str

    def __repr__(self) -> str:
        # Keys are secrets, and descriptions are logged.
        return f"AuthorizationRule(key_name={self.key_name!r}, rights={self.rights!r})"


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """The settings of a queue."""

    name: str
    lock_duration: Millis = MINUTE
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live: Millis = FOREVER
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window: Millis = 10 * MINUTE
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: Millis = FOREVER
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    @property
    def path(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The settings of a topic."""

    name: str
    default_message_time_to_live: Millis = FOREVER
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: Millis = 10 * MINUTE
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: Millis = FOREVER
    enable_partitioning: bool = False
    support_ordering: bool = True
    enable_express: bool = False
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    @property
    def path(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """The settings of a subscription."""

    topic: str
    name: str
    lock_duration: Millis = MINUTE
    requires_session: bool = False
    default_message_time_to_live: Millis = FOREVER
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle: Millis = FOREVER
    user_metadata: str | None = None

    @property
    def path(self) -> str:
        return f"{self.topic}/subscriptions/{self.name}"


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A rule: the filter that selects messages for a subscription, and the action that changes its copy of them."""

    name: str
    filter: Filter
    action: SqlAction | None = None


EntityDescription = QueueDescription | TopicDescription | SubscriptionDescription

DEFAULT_RULE = RuleDescription("$Default", TrueFilter())
"""The rule of a subscription that is created without one."""


@dataclass(frozen=True, slots=True)
class EntityRuntime:
    """The counts, size and times of an entity. An `accessed_at` of 0 means "never"."""

    created_at: Millis
    updated_at: Millis
    accessed_at: Millis = 0
    size_in_bytes: int = 0
    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    keeps_order: bool = True
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0

    @property
    def message_count(self) -> int:
        return self.active + self.dead_letter + self.scheduled + self.transfer + self.transfer_dead_letter


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """The part of a description that a message queue needs: how long locks and messages last, how often it delivers."""

    lock_duration: Millis = 60_000
    default_ttl: Millis = FOREVER
    max_delivery_count: int | None = None
    dead_letter_on_expiry: bool = False
    requires_session: bool = False
    ages: bool = True
    """Whether messages expire. Dead letters do not: they stay until they are received, however long that takes."""
    counts_deliveries: bool = True
    """Whether a failed delivery raises the delivery count. In a dead-letter queue the count stays as it was."""

    @classmethod
    def of(cls, description: QueueDescription | SubscriptionDescription) -> DeliverySettings:
        return cls(
            lock_duration=description.lock_duration,
            default_ttl=min(description.default_message_time_to_live, FOREVER),
            max_delivery_count=description.max_delivery_count,
            dead_letter_on_expiry=description.dead_lettering_on_message_expiration,
            requires_session=description.requires_session,
        )

    def for_dead_letters(self) -> DeliverySettings:
        """The settings for the dead-letter queues of the same entity."""
        return DeliverySettings(lock_duration=self.lock_duration, ages=False, counts_deliveries=False)
