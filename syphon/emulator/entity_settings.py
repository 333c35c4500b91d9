"""Queues, topics, subscriptions and rules in a settings file.

A missing setting has the default of the service, so nothing here repeats the defaults: each class turns the given
settings into a description of the broker, and the rules of the broker check it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from syphon.yaml_settings import Between, Duration, InvalidSetting, Loc, Mistake, Settings, unique

from .broker import (
    CorrelationFilter,
    EntityStatus,
    EntityTemplates,
    FalseFilter,
    Filter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    Tier,
    TopicDescription,
    TrueFilter,
)
from .entity_validation import action_faults, refusals, sql_faults

LockDuration = Annotated[Duration, Between("5s", "5m")]
TimeToLive = Annotated[Duration, Between("1s", "never")]
DuplicateWindow = Annotated[Duration, Between("20s", "7d")]
IdleTime = Annotated[Duration, Between("5m", "never")]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
# Microsoft's files write "" for "not forwarded".
ForwardTarget = Annotated[str | None, BeforeValidator(lambda value: None if value == "" else value)]


def _host_label(name: str) -> str:
    # The name becomes a label of a host name: contoso.servicebus.windows.net.
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?", name):
        raise InvalidSetting(
            Mistake("is not a name for a namespace", "write up to 50 letters, digits and hyphens between them")
        )
    return name


NamespaceName = Annotated[str, AfterValidator(_host_label)]


def _scalar(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise InvalidSetting(
            Mistake("is neither text, a number, true nor false", "a filter compares with one plain value")
        )
    return value


PropertyValue = Annotated[str | int | float | bool, PlainValidator(_scalar)]


class QueueOptions(Settings):
    """All settings of a queue except its name."""

    lock_duration: LockDuration | None = None
    max_size_in_megabytes: Count | None = None
    requires_duplicate_detection: bool | None = None
    requires_session: bool | None = None
    default_message_time_to_live: TimeToLive | None = None
    dead_lettering_on_message_expiration: bool | None = None
    duplicate_detection_history_time_window: DuplicateWindow | None = None
    max_delivery_count: Count | None = None
    enable_batched_operations: bool | None = None
    status: EntityStatus | None = None
    auto_delete_on_idle: IdleTime | None = None
    enable_partitioning: bool | None = None
    enable_express: bool | None = None
    forward_to: ForwardTarget = None
    forward_dead_lettered_messages_to: ForwardTarget = None
    user_metadata: str | None = None
    max_message_size_in_kilobytes: Count | None = None


class TopicOptions(Settings):
    """All settings of a topic except its name and its subscriptions."""

    default_message_time_to_live: TimeToLive | None = None
    max_size_in_megabytes: Count | None = None
    requires_duplicate_detection: bool | None = None
    duplicate_detection_history_time_window: DuplicateWindow | None = None
    enable_batched_operations: bool | None = None
    status: EntityStatus | None = None
    auto_delete_on_idle: IdleTime | None = None
    enable_partitioning: bool | None = None
    support_ordering: bool | None = None
    enable_express: bool | None = None
    user_metadata: str | None = None
    max_message_size_in_kilobytes: Count | None = None


class SubscriptionOptions(Settings):
    """All settings of a subscription except its name and its rules."""

    lock_duration: LockDuration | None = None
    requires_session: bool | None = None
    default_message_time_to_live: TimeToLive | None = None
    dead_lettering_on_message_expiration: bool | None = None
    dead_lettering_on_filter_evaluation_exceptions: bool | None = None
    max_delivery_count: Count | None = None
    enable_batched_operations: bool | None = None
    status: EntityStatus | None = None
    forward_to: ForwardTarget = None
    forward_dead_lettered_messages_to: ForwardTarget = None
    auto_delete_on_idle: IdleTime | None = None
    user_metadata: str | None = None


class CorrelationOptions(Settings):
    """The values that a message must have. Missing settings are not compared."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: dict[str, PropertyValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.model_dump(exclude_none=True, exclude_defaults=True):
            raise InvalidSetting(Mistake("asks for nothing", "name at least one value that a message must have"))
        return self

    def filter(self) -> CorrelationFilter:
        return CorrelationFilter(**self.model_dump(exclude_none=True))


class Matches(StrEnum):
    """The two filters that do not depend on the message."""

    ALL = "all"
    NONE = "none"


class RuleSettings(Settings):
    """A rule of a subscription, with one of `sql`, `correlation` and `matches`, and with an action if it has one."""

    name: str
    sql: str | None = None
    correlation: CorrelationOptions | None = None
    matches: Matches | None = None
    action: str | None = None

    @model_validator(mode="after")
    def _one_filter(self) -> Self:
        if sum(way is not None for way in (self.sql, self.correlation, self.matches)) != 1:
            raise InvalidSetting(
                Mistake("does not have just one filter", "give it one of sql, correlation and matches")
            )
        faults = list(refusals(self._named())) + list(sql_faults(self.sql, ("sql",)))
        faults += action_faults(self.action, ("action",))
        if faults:
            raise InvalidSetting(*faults)
        return self

    def description(self) -> RuleDescription:
        action = SqlAction(self.action) if self.action is not None else None
        return dataclasses.replace(self._named(), filter=self._filter(), action=action)

    def _named(self) -> RuleDescription:
        return RuleDescription(self.name, TrueFilter())

    def _filter(self) -> Filter:
        if self.sql is not None:
            return SqlFilter(self.sql)
        if self.correlation is not None:
            return self.correlation.filter()
        return TrueFilter() if self.matches is Matches.ALL else FalseFilter()


class SubscriptionSettings(SubscriptionOptions):
    """A subscription. Without rules it gets the default rule of the service, and so every message."""

    name: str
    rules: Annotated[list[RuleSettings], unique("name", "rule")] = Field(default_factory=list)

    @model_validator(mode="after")
    def _accepted_by_the_service(self) -> Self:
        if faults := list(refusals(self.description("any-topic"))):
            raise InvalidSetting(*faults)
        return self

    def description(self, topic: str) -> SubscriptionDescription:
        return SubscriptionDescription(topic=topic, **self.model_dump(exclude={"rules"}, exclude_none=True))


class TopicSettings(TopicOptions):
    """A topic with its subscriptions."""

    name: str
    subscriptions: Annotated[list[SubscriptionSettings], unique("name", "subscription")] = Field(default_factory=list)

    @model_validator(mode="after")
    def _accepted_by_the_service(self) -> Self:
        if faults := list(refusals(self.description())):
            raise InvalidSetting(*faults)
        return self

    def description(self) -> TopicDescription:
        return TopicDescription(**self.model_dump(exclude={"subscriptions"}, exclude_none=True))


class QueueSettings(QueueOptions):
    """A queue with its name."""

    name: str

    @model_validator(mode="after")
    def _accepted_by_the_service(self) -> Self:
        if faults := list(refusals(self.description())):
            raise InvalidSetting(*faults)
        return self

    def description(self) -> QueueDescription:
        return QueueDescription(**self.model_dump(exclude_none=True))


class AutoCreateSettings(Settings):
    """Entities that are created when a client first uses them, and with what settings."""

    queue: QueueOptions = Field(default_factory=QueueOptions)
    topic: TopicOptions = Field(default_factory=TopicOptions)
    subscription: SubscriptionOptions = Field(default_factory=SubscriptionOptions)
    topics: list[str] = Field(default_factory=list)
    """Patterns (`news*`) of the names that are topics. A sender does not say whether it means a queue or a topic."""

    @model_validator(mode="after")
    def _accepted_by_the_service(self) -> Self:
        templates = self.templates()
        faults = [
            *_below(("queue",), refusals(templates.queue)),
            *_below(("topic",), refusals(templates.topic)),
            *_below(("subscription",), refusals(templates.subscription)),
        ]
        if faults:
            raise InvalidSetting(*faults)
        return self

    def templates(self) -> EntityTemplates:
        """The templates, with names that their users replace."""
        return EntityTemplates(
            QueueDescription(name="template", **self.queue.model_dump(exclude_none=True)),
            TopicDescription(name="template", **self.topic.model_dump(exclude_none=True)),
            SubscriptionDescription(
                topic="template", name="template", **self.subscription.model_dump(exclude_none=True)
            ),
            tuple(self.topics),
        )


def namespace_faults(queues: list[QueueSettings], topics: list[TopicSettings], tier: Tier) -> Iterator[Mistake]:
    """Yields the faults of entities in their namespace: its tier, and the other entities."""
    queue_names = {queue.name.lower() for queue in queues}
    names = queue_names | {topic.name.lower() for topic in topics}

    def forwarding(path: Loc, entity: QueueOptions | SubscriptionOptions) -> Iterator[Mistake]:
        for key in ("forward_to", "forward_dead_lettered_messages_to"):
            target: str | None = getattr(entity, key)
            if target is not None and target.lower() not in names:
                yield Mistake("is no queue or topic of this namespace", "name one that is listed here", (*path, key))

    for index, queue in enumerate(queues):
        yield from forwarding(("queues", index), queue)
        yield from _below(("queues", index), refusals(queue.description(), tier))
    for index, topic in enumerate(topics):
        if topic.name.lower() in queue_names:
            yield Mistake("is the name of a queue too", "give each entity its own", ("topics", index, "name"))
        yield from _below(("topics", index), refusals(topic.description(), tier))
        for nested, subscription in enumerate(topic.subscriptions):
            path = ("topics", index, "subscriptions", nested)
            yield from forwarding(path, subscription)
            yield from _below(path, refusals(subscription.description(topic.name), tier))


def _below(path: Loc, faults: Iterable[Mistake]) -> Iterator[Mistake]:
    return (Mistake(fault.text, fault.remedy, (*path, *fault.at)) for fault in faults)
