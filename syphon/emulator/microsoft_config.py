"""Microsoft's `Config.json`: the settings file of its own emulator.

It follows the schema in Azure/azure-service-bus-emulator-installer: `UserConfig.Namespaces[]` with `Queues`, `Topics`,
`Subscriptions` and `Rules`, and a `Properties` object below each. A missing property has the default of that schema,
which is not always Azure's. Its limits (one namespace, ten deliveries, an hour to live) do not apply here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_pascal

from syphon.yaml_settings import Document, InvalidSetting, Loc, Mistake, Settings, unique, validate

from .broker import Tier
from .entity_settings import (
    CorrelationOptions,
    Count,
    DuplicateWindow,
    LockDuration,
    NamespaceName,
    QueueOptions,
    QueueSettings,
    RuleSettings,
    SubscriptionOptions,
    SubscriptionSettings,
    TimeToLive,
    TopicOptions,
    TopicSettings,
    namespace_faults,
)
from .entity_validation import action_faults, sql_faults

MINUTE = 60_000
HOUR = 60 * MINUTE
TWENTY_SECONDS = 20_000

NamespaceParts = tuple[str, list[QueueSettings], list[TopicSettings]]


def is_microsoft_config(document: Document) -> bool:
    return isinstance(document.data, dict) and "UserConfig" in document.data


def read_microsoft_config(document: Document) -> list[NamespaceParts]:
    """Reads the namespaces of a `Config.json`. Raises SettingsError with all faults, in the words of the file."""
    namespaces = validate(document, _Config).user_config.namespaces
    return [(namespace.name, namespace.queue_settings(), namespace.topic_settings()) for namespace in namespaces]


class _MicrosoftSettings(Settings):
    """Settings with keys as Microsoft spells them."""

    model_config = ConfigDict(alias_generator=to_pascal)


class _QueueProperties(QueueOptions, _MicrosoftSettings):
    default_message_time_to_live: TimeToLive | None = HOUR
    duplicate_detection_history_time_window: DuplicateWindow | None = TWENTY_SECONDS
    lock_duration: LockDuration | None = MINUTE
    max_delivery_count: Count | None = 3


class _TopicProperties(TopicOptions, _MicrosoftSettings):
    default_message_time_to_live: TimeToLive | None = HOUR
    duplicate_detection_history_time_window: DuplicateWindow | None = TWENTY_SECONDS


class _SubscriptionProperties(SubscriptionOptions, _MicrosoftSettings):
    default_message_time_to_live: TimeToLive | None = HOUR
    lock_duration: LockDuration | None = MINUTE
    max_delivery_count: Count | None = 3


class _CorrelationFilter(CorrelationOptions, _MicrosoftSettings):
    pass


class _Sql(_MicrosoftSettings):
    sql_expression: str


class _FilterType(StrEnum):
    CORRELATION = "Correlation"
    SQL = "Sql"


class _RuleProperties(_MicrosoftSettings):
    filter_type: _FilterType
    correlation_filter: _CorrelationFilter | None = None
    sql_filter: _Sql | None = None
    action: _Sql | None = None

    @model_validator(mode="after")
    def _filter_of_its_type(self) -> Self:
        match self.filter_type:
            case _FilterType.SQL if self.sql_filter is None:
                raise InvalidSetting(Mistake("is missing, and FilterType is Sql", "add it", ("SqlFilter",)))
            case _FilterType.CORRELATION if self.correlation_filter is None:
                raise InvalidSetting(
                    Mistake("is missing, and FilterType is Correlation", "add it", ("CorrelationFilter",))
                )
        expression = self.sql_filter.sql_expression if self.sql_filter else None
        faults = list(sql_faults(expression, ("SqlFilter", "SqlExpression")))
        faults += action_faults(self.action.sql_expression if self.action else None, ("Action", "SqlExpression"))
        if faults:
            raise InvalidSetting(*faults)
        return self


class _NamedSettings(_MicrosoftSettings):
    """An entity or a rule. It is converted to our settings, and those are checked."""

    name: str

    @model_validator(mode="after")
    def _convertible(self) -> Self:
        try:
            self.settings()
        except ValidationError as error:
            raise InvalidSetting(*_in_microsoft_terms(error)) from None
        return self

    def settings(self) -> Settings:
        raise NotImplementedError


class _Rule(_NamedSettings):
    properties: _RuleProperties

    def settings(self) -> RuleSettings:
        action = self.properties.action.sql_expression if self.properties.action else None
        if self.properties.filter_type is _FilterType.SQL and self.properties.sql_filter:
            return RuleSettings(name=self.name, sql=self.properties.sql_filter.sql_expression, action=action)
        wanted = self.properties.correlation_filter or _CorrelationFilter()
        return RuleSettings(name=self.name, correlation=CorrelationOptions(**wanted.model_dump()), action=action)


class _Subscription(_NamedSettings):
    properties: _SubscriptionProperties = _SubscriptionProperties()
    rules: Annotated[list[_Rule], unique("Name", "rule")] = Field(default_factory=list)

    def settings(self) -> SubscriptionSettings:
        rules = [rule.settings() for rule in self.rules]
        return SubscriptionSettings(name=self.name, rules=rules, **self.properties.model_dump())


class _Topic(_NamedSettings):
    properties: _TopicProperties = _TopicProperties()
    subscriptions: Annotated[list[_Subscription], unique("Name", "subscription")] = Field(default_factory=list)

    def settings(self) -> TopicSettings:
        subscriptions = [subscription.settings() for subscription in self.subscriptions]
        return TopicSettings(name=self.name, subscriptions=subscriptions, **self.properties.model_dump())


class _Queue(_NamedSettings):
    properties: _QueueProperties = _QueueProperties()

    def settings(self) -> QueueSettings:
        return QueueSettings(name=self.name, **self.properties.model_dump())


class _Namespace(_MicrosoftSettings):
    name: NamespaceName
    queues: Annotated[list[_Queue], unique("Name", "queue")] = Field(default_factory=list)
    topics: Annotated[list[_Topic], unique("Name", "topic")] = Field(default_factory=list)

    @model_validator(mode="after")
    def _entities_fit(self) -> Self:
        faults = list(namespace_faults(self.queue_settings(), self.topic_settings(), Tier.STANDARD))
        if faults:
            raise InvalidSetting(*(Mistake(fault.text, fault.remedy, _microsoft_path(fault.at)) for fault in faults))
        return self

    def queue_settings(self) -> list[QueueSettings]:
        return [queue.settings() for queue in self.queues]

    def topic_settings(self) -> list[TopicSettings]:
        return [topic.settings() for topic in self.topics]


class _UserConfig(_MicrosoftSettings):
    namespaces: Annotated[list[_Namespace], unique("Name", "namespace"), Field(min_length=1)]
    logging: Any = None  # not used here: where Microsoft's emulator writes its log


class _Config(_MicrosoftSettings):
    user_config: _UserConfig
    schema_reference: Any = Field(default=None, alias="$schema")  # for editors


def _in_microsoft_terms(error: ValidationError) -> Iterator[Mistake]:
    for details in error.errors(include_url=False):
        wrong = details.get("ctx", {}).get("error")
        if isinstance(wrong, InvalidSetting):
            for fault in wrong.mistakes:
                yield Mistake(fault.text, fault.remedy, _microsoft_path((*details["loc"], *fault.at)))
        else:
            yield Mistake("is not taken", details["msg"], _microsoft_path(details["loc"]))


def _microsoft_path(path: Loc) -> Loc:
    """Converts a path: queues[0].lock_duration is Queues[0].Properties.LockDuration in Microsoft's file."""
    theirs: Loc = tuple(to_pascal(step) if isinstance(step, str) else step for step in path)
    if theirs and isinstance(theirs[-1], str) and theirs[-1] != "Name":
        return (*theirs[:-1], "Properties", theirs[-1])
    return theirs
