"""The rules of the service for entity descriptions.

`validate` checks a description against the rules of a tier. `check_update` checks it against the description it
replaces. Both name the property as Service Bus spells it, the value, and what to do about it. The limits are
Microsoft's, from its quotas and its list of Resource Manager exceptions. They are written out here and not left to a
schema library, because half of them depend on the tier or on another property.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, replace
from typing import Any, NoReturn, TypeVar

from ..clock import FOREVER, Millis
from .descriptions import (
    DAY,
    MINUTE,
    SECOND,
    AuthorizationRule,
    Claim,
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
)
from .refusals import BadArgument

D = TypeVar("D", bound=EntityDescription)


def validate(description: EntityDescription | RuleDescription, tier: Tier) -> None:
    """Refuses a description that the service does not accept in a namespace of this tier."""
    match description:
        case QueueDescription():
            _path("queue", description.name)
            _settings(description, tier)
        case TopicDescription():
            _path("topic", description.name)
            if tier is Tier.BASIC:
                raise BadArgument(
                    f"SubCode=40000. The topic '{description.name}' cannot be in a namespace of the Basic tier: "
                    "use a Standard or Premium namespace."
                )
            _settings(description, tier)
        case SubscriptionDescription():
            _path("topic", description.topic)
            _short_name("subscription", description.name, _SUBSCRIPTION_NAME)
            _settings(description, tier)
        case RuleDescription():
            _short_name("rule", description.name, _RULE_NAME)


def as_stored(description: D) -> D:
    """The description as the service keeps and reports it.

    A partitioned entity has the size of all its partitions together, and a partitioned topic keeps no order. A
    subscription that forwards is never idle.
    """
    changes: dict[str, Any] = {}
    if isinstance(description, SubscriptionDescription):
        if description.forward_to is not None:
            changes["auto_delete_on_idle"] = FOREVER
    elif description.enable_partitioning:
        if description.max_size_in_megabytes in _SIZES:
            changes["max_size_in_megabytes"] = description.max_size_in_megabytes * _PARTITIONS
        if isinstance(description, TopicDescription):
            changes["support_ordering"] = False
    return replace(description, **changes) if changes else description


def check_update(old: EntityDescription, new: EntityDescription) -> None:
    """Refuses to change a property that is fixed when an entity is created. Call `validate` for the new one too."""
    if type(old) is not type(new):
        raise BadArgument(
            f"SubCode=40000. '{old.path}' is a {_kind(old)} and cannot become a {_kind(new)}: delete it first."
        )
    for setting in ("requires_session", "requires_duplicate_detection", "enable_partitioning"):
        was, wanted = getattr(old, setting, None), getattr(new, setting, None)
        if was != wanted:
            raise BadArgument(
                f"SubCode=40000. The value for the {spelled(setting)} property of an existing {_kind(old)} cannot be "
                f"changed. '{old.path}' has {_shown(was)}, and {_shown(wanted)} was requested: keep it, or delete the "
                "entity and create it again."
            )


def spelled(setting: str) -> str:
    """The name that Service Bus uses for a field of a description: `lock_duration` is `LockDuration`."""
    return "".join(word.capitalize() for word in setting.split("_"))


_PATH = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*")
_SUBSCRIPTION_NAME = re.compile(r"[A-Za-z0-9._-]+")
_RULE_NAME = re.compile(r"[A-Za-z0-9._$-]+")
_LONGEST_PATH = 260
_LONGEST_NAME = 50
_LONGEST_METADATA = 1024
_MOST_AUTHORIZATION_RULES = 12
_SIZES = tuple(1024 * step for step in range(1, 6))
_PARTITIONS = 16
"""A client may write back the size of all partitions together, as the service reports it."""


def _path(kind: str, path: str) -> None:
    if len(path) > _LONGEST_PATH:
        _refuse(f"The path of a {kind}", f"{len(path)} characters", f"{_LONGEST_PATH} at most")
    if not _PATH.fullmatch(path):
        raise BadArgument(
            f"SubCode=40000. '{path}' is not a path for a {kind}. Its segments can contain only letters, digits, "
            "periods (.), hyphens (-), underscores (_) and tildes (~), with one slash (/) between them and none "
            "around them."
        )


def _short_name(kind: str, name: str, pattern: re.Pattern[str]) -> None:
    if len(name) > _LONGEST_NAME:
        _refuse(f"The name of a {kind}", f"{len(name)} characters", f"{_LONGEST_NAME} at most")
    if not pattern.fullmatch(name):
        raise BadArgument(
            f"SubCode=40000. '{name}' is not a name for a {kind}. It can contain only letters, digits, periods (.), "
            "hyphens (-) and underscores (_)."
        )


def _settings(entity: EntityDescription, tier: Tier) -> None:
    for setting, (lowest, highest, wanted) in _DURATIONS.items():
        value = getattr(entity, setting, lowest)
        if not lowest <= value <= highest:
            _refuse(spelled(setting), f"{value / SECOND:g} seconds", wanted)
    for check in (_counts, _size, _message_size, _combinations, _authorization):
        check(entity, tier)
    if tier is Tier.BASIC:
        _basic(entity)


_DURATIONS: dict[str, tuple[Millis, Millis, str]] = {
    "lock_duration": (5 * SECOND, 5 * MINUTE, "5 seconds to 5 minutes"),
    "default_message_time_to_live": (SECOND, FOREVER, "one second or more"),
    "duplicate_detection_history_time_window": (20 * SECOND, 7 * DAY, "20 seconds to 7 days"),
    "auto_delete_on_idle": (5 * MINUTE, FOREVER, "5 minutes or more"),
}


def _counts(entity: EntityDescription, _tier: Tier) -> None:
    deliveries = getattr(entity, "max_delivery_count", 1)
    if not 1 <= deliveries <= 2**31 - 1:
        _refuse("MaxDeliveryCount", deliveries, "1 to 2147483647")
    if entity.user_metadata is not None and len(entity.user_metadata) > _LONGEST_METADATA:
        _refuse("UserMetadata", f"{len(entity.user_metadata)} characters", f"{_LONGEST_METADATA} at most")


def _size(entity: EntityDescription, tier: Tier) -> None:
    if isinstance(entity, SubscriptionDescription):
        return
    size = entity.max_size_in_megabytes
    if tier is Tier.PREMIUM:
        if size not in range(1024, 81_920 + 1, 1024):
            _refuse("MaxSizeInMegabytes", size, "a multiple of 1024, up to 81920")
    elif size not in _SIZES and not (entity.enable_partitioning and size in {n * _PARTITIONS for n in _SIZES}):
        _refuse("MaxSizeInMegabytes", size, "one of 1024, 2048, 3072, 4096, 5120")


def _message_size(entity: EntityDescription, tier: Tier) -> None:
    size = getattr(entity, "max_message_size_in_kilobytes", None)
    if size is None:
        return
    if tier is Tier.PREMIUM:
        if not 1024 <= size <= 102_400:
            raise BadArgument(
                "SubCode=40000. The value for 'MaxMessageSizeInKilobytes' must be between 1024 and 102400. "
                f"It was given as {size}."
            )
    elif size != default_message_size(tier):
        # The default is accepted: clients write back what they have read.
        _refuse("MaxMessageSizeInKilobytes", size, f"nothing in the {tier} tier, or use a Premium namespace")


def default_message_size(tier: Tier) -> int:
    """The largest message in kilobytes, unless the entity sets its own limit."""
    return 1024 if tier is Tier.PREMIUM else 256


def _combinations(entity: EntityDescription, tier: Tier) -> None:
    if isinstance(entity, SubscriptionDescription):
        return
    if entity.enable_express and entity.requires_duplicate_detection:
        _refuse("EnableExpress", True, "false, because RequiresDuplicateDetection is true")
    if tier is Tier.PREMIUM:
        for setting in ("enable_express", "enable_partitioning"):
            if getattr(entity, setting):
                _refuse(spelled(setting), True, "false in the Premium tier, or use a Standard namespace")


def _authorization(entity: EntityDescription, _tier: Tier) -> None:
    rules: tuple[AuthorizationRule, ...] = getattr(entity, "authorization_rules", ())
    if len(rules) > _MOST_AUTHORIZATION_RULES:
        _refuse("AuthorizationRules", f"{len(rules)} rules", f"{_MOST_AUTHORIZATION_RULES} at most")
    if len({rule.key_name for rule in rules}) < len(rules):
        _refuse("AuthorizationRules", "two rules of one KeyName", "each rule a KeyName of its own")
    for rule in rules:
        if Claim.MANAGE in rule.rights and not {Claim.SEND, Claim.LISTEN} <= set(rule.rights):
            _refuse(f"Rights of '{rule.key_name}'", ", ".join(rule.rights), "Send and Listen to a rule with Manage")


_BEYOND_BASIC = (
    "requires_duplicate_detection",
    "requires_session",
    "default_message_time_to_live",
    "auto_delete_on_idle",
    "duplicate_detection_history_time_window",
    "enable_express",
    "forward_to",
)


def _basic(entity: EntityDescription) -> None:
    for field in fields(entity):
        value = getattr(entity, field.name)
        if field.name in _BEYOND_BASIC and field.default is not MISSING and value != field.default:
            _refuse(spelled(field.name), _shown(value), "nothing in the Basic tier, or use a Standard namespace")


def _kind(entity: EntityDescription) -> str:
    return type(entity).__name__.removesuffix("Description")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse(what: str, value: object, remedy: str) -> NoReturn:
    raise BadArgument(f"SubCode=40000. {what} was given as {_shown(value)}, which the service refuses: give {remedy}.")
