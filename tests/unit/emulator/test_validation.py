"""The rules for descriptions: the limits of the service in each tier, and the properties that cannot change."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from syphon.emulator.broker.description_rules import check_update, spelled, validate
from syphon.emulator.broker.descriptions import (
    DEFAULT_RULE,
    AuthorizationRule,
    Claim,
    EntityDescription,
    EntityRuntime,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
)
from syphon.emulator.broker.filters import TrueFilter
from syphon.emulator.broker.refusals import BadArgument
from syphon.emulator.clock import FOREVER

QUEUE = QueueDescription("orders")
TOPIC = TopicDescription("news")
SUBSCRIPTION = SubscriptionDescription("news", "audit")

SECOND, MINUTE, DAY = 1_000, 60_000, 86_400_000


def having(description: QueueDescription, setting: str, value: Any) -> QueueDescription:
    asked: dict[str, Any] = {setting: value}
    return replace(description, **asked)


@pytest.mark.parametrize("tier", Tier)
def test_a_queue_with_the_defaults_of_the_service_is_fine_in_every_tier(tier: Tier) -> None:
    validate(QUEUE, tier)


@pytest.mark.parametrize("tier", [Tier.STANDARD, Tier.PREMIUM])
@pytest.mark.parametrize("description", [TOPIC, SUBSCRIPTION, DEFAULT_RULE], ids=lambda it: type(it).__name__)
def test_topics_subscriptions_and_rules_with_the_defaults_are_fine_above_basic(
    description: EntityDescription | RuleDescription, tier: Tier
) -> None:
    validate(description, tier)


def test_a_backlog_queue_as_provisioning_asks_for_it_is_fine() -> None:  # P2
    validate(
        QueueDescription(
            "contoso/x-servicebus-transfer/0",
            max_size_in_megabytes=5120,
            max_delivery_count=2**31 - 1,
            default_message_time_to_live=FOREVER,
            auto_delete_on_idle=FOREVER,
            lock_duration=MINUTE,
            dead_lettering_on_message_expiration=True,
            enable_batched_operations=True,
        ),
        Tier.STANDARD,
    )


@pytest.mark.parametrize("path", ["a", "A.b-c_d", "txt/.-_123", "Contracts~Order", "a/b/c", "a" * 260])
def test_paths_the_service_takes(path: str) -> None:
    validate(QueueDescription(path), Tier.STANDARD)
    validate(TopicDescription(path), Tier.STANDARD)


@pytest.mark.parametrize(
    "path", ["", "/a", "a/", "a//b", "a b", "a?b", "a#b", "$cbs", "a\\b", "a\n", "grüße", "a%2Fb", "a" * 261]
)
def test_paths_the_service_refuses(path: str) -> None:
    with pytest.raises(BadArgument):
        validate(QueueDescription(path), Tier.STANDARD)
    with pytest.raises(BadArgument):
        validate(TopicDescription(path), Tier.STANDARD)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a~b", "$a", "a" * 51])
def test_subscription_names_the_service_refuses(name: str) -> None:
    with pytest.raises(BadArgument, match="subscription"):
        validate(SubscriptionDescription("news", name), Tier.STANDARD)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "a" * 51])
def test_rule_names_the_service_refuses(name: str) -> None:
    with pytest.raises(BadArgument, match="rule"):
        validate(RuleDescription(name, TrueFilter()), Tier.STANDARD)


@pytest.mark.parametrize(
    ("setting", "lowest", "highest"),
    [
        ("lock_duration", 5 * SECOND, 5 * MINUTE),
        ("default_message_time_to_live", SECOND, FOREVER),
        ("duplicate_detection_history_time_window", 20 * SECOND, 7 * DAY),
        ("auto_delete_on_idle", 5 * MINUTE, FOREVER),
        ("max_delivery_count", 1, 2**31 - 1),
    ],
)
def test_a_number_may_be_at_its_limits_and_not_beyond(setting: str, lowest: int, highest: int) -> None:
    for fine in (lowest, highest):
        validate(having(QUEUE, setting, fine), Tier.STANDARD)
    for wrong in (lowest - 1, highest + 1, 0, -lowest):
        with pytest.raises(BadArgument, match=spelled(setting)):
            validate(having(QUEUE, setting, wrong), Tier.STANDARD)


def test_the_limits_hold_for_subscriptions_and_topics_too() -> None:
    with pytest.raises(BadArgument, match="LockDuration"):
        validate(replace(SUBSCRIPTION, lock_duration=6 * MINUTE), Tier.STANDARD)
    with pytest.raises(BadArgument, match="AutoDeleteOnIdle"):
        validate(replace(TOPIC, auto_delete_on_idle=MINUTE), Tier.STANDARD)


@pytest.mark.parametrize("size", [1024, 2048, 3072, 4096, 5120])
def test_sizes_a_standard_entity_may_have(size: int) -> None:
    validate(replace(QUEUE, max_size_in_megabytes=size), Tier.STANDARD)


@pytest.mark.parametrize("size", [0, -1024, 1, 1000, 6144, 16_384])
def test_sizes_a_standard_entity_may_not_have(size: int) -> None:
    with pytest.raises(BadArgument, match="MaxSizeInMegabytes"):
        validate(replace(QUEUE, max_size_in_megabytes=size), Tier.STANDARD)


def test_a_premium_entity_may_be_larger_in_steps_of_a_gigabyte() -> None:
    validate(replace(TOPIC, max_size_in_megabytes=81_920), Tier.PREMIUM)
    for size in (1500, 82_944):
        with pytest.raises(BadArgument, match="multiple of 1024"):
            validate(replace(TOPIC, max_size_in_megabytes=size), Tier.PREMIUM)


def test_a_partitioned_entity_may_be_written_back_with_the_size_of_all_its_partitions() -> None:
    validate(replace(QUEUE, enable_partitioning=True, max_size_in_megabytes=16_384), Tier.STANDARD)


def test_the_size_of_messages_can_be_set_in_the_premium_tier_only() -> None:
    validate(replace(QUEUE, max_message_size_in_kilobytes=102_400), Tier.PREMIUM)
    for size in (1023, 102_401):
        with pytest.raises(BadArgument, match="MaxMessageSizeInKilobytes"):
            validate(replace(QUEUE, max_message_size_in_kilobytes=size), Tier.PREMIUM)
    with pytest.raises(BadArgument, match="Premium"):
        validate(replace(QUEUE, max_message_size_in_kilobytes=1024), Tier.STANDARD)


def test_the_size_of_messages_a_standard_entity_reports_can_be_written_back() -> None:
    validate(replace(QUEUE, max_message_size_in_kilobytes=256), Tier.STANDARD)


@pytest.mark.parametrize("setting", ["forward_to", "forward_dead_lettered_messages_to"])
def test_a_queue_may_forward_to_itself(setting: str) -> None:
    validate(having(QUEUE, setting, "Orders"), Tier.STANDARD)


def test_a_subscription_may_forward_to_its_own_topic() -> None:
    validate(replace(SUBSCRIPTION, forward_to="news"), Tier.STANDARD)


def test_an_entity_with_sessions_may_forward() -> None:
    validate(replace(QUEUE, forward_to="other", requires_session=True), Tier.STANDARD)


def test_express_and_duplicate_detection_exclude_each_other() -> None:
    with pytest.raises(BadArgument, match="RequiresDuplicateDetection"):
        validate(replace(QUEUE, enable_express=True, requires_duplicate_detection=True), Tier.STANDARD)


@pytest.mark.parametrize("setting", ["enable_express", "enable_partitioning"])
def test_premium_has_neither_express_nor_partitioned_entities(setting: str) -> None:
    with pytest.raises(BadArgument, match=spelled(setting)):
        validate(having(QUEUE, setting, True), Tier.PREMIUM)


@pytest.mark.parametrize(
    "asked",
    [
        {"requires_session": True},
        {"requires_duplicate_detection": True},
        {"forward_to": "other"},
        {"auto_delete_on_idle": 10 * MINUTE},
        {"enable_express": True},
    ],
    ids=lambda it: next(iter(it)),
)
def test_what_a_basic_queue_cannot_have(asked: dict[str, Any]) -> None:
    with pytest.raises(BadArgument, match="Basic"):
        validate(replace(QUEUE, **asked), Tier.BASIC)


def test_there_are_no_topics_in_the_basic_tier() -> None:
    with pytest.raises(BadArgument, match="Basic"):
        validate(TOPIC, Tier.BASIC)


def test_metadata_has_a_limit() -> None:
    validate(replace(QUEUE, user_metadata="x" * 1024), Tier.STANDARD)
    with pytest.raises(BadArgument, match="UserMetadata"):
        validate(replace(QUEUE, user_metadata="x" * 1025), Tier.STANDARD)


def test_who_may_manage_must_be_let_send_and_listen() -> None:
    rule = AuthorizationRule("admin", (Claim.MANAGE,), "a", "b")
    with pytest.raises(BadArgument, match="Send and Listen"):
        validate(replace(QUEUE, authorization_rules=(rule,)), Tier.STANDARD)
    validate(replace(QUEUE, authorization_rules=(replace(rule, rights=tuple(Claim)),)), Tier.STANDARD)


def test_authorization_rules_are_few_and_have_different_names() -> None:
    rules = tuple(AuthorizationRule(f"key{n}", (Claim.SEND,), "a", "b") for n in range(13))
    with pytest.raises(BadArgument, match="12"):
        validate(replace(QUEUE, authorization_rules=rules), Tier.STANDARD)
    with pytest.raises(BadArgument, match="KeyName"):
        validate(replace(QUEUE, authorization_rules=(rules[0], rules[0])), Tier.STANDARD)


def test_keys_do_not_show_in_a_description() -> None:
    rule = AuthorizationRule("reader", (Claim.LISTEN,), "primary-secret", "secondary-secret")
    assert "secret" not in repr(replace(QUEUE, authorization_rules=(rule,)))


def test_a_refusal_names_the_property_the_value_and_the_remedy() -> None:
    with pytest.raises(BadArgument) as refused:
        validate(replace(QUEUE, lock_duration=301_000), Tier.STANDARD)
    assert refused.value.description == (
        "SubCode=40000. LockDuration was given as 301 seconds, which the service refuses: give 5 seconds to 5 minutes."
    )


@pytest.mark.parametrize(
    ("old", "asked"),
    [
        (QUEUE, {"requires_session": True}),
        (QUEUE, {"requires_duplicate_detection": True}),
        (QUEUE, {"enable_partitioning": True}),
        (TOPIC, {"requires_duplicate_detection": True}),
        (TOPIC, {"enable_partitioning": True}),
        (SUBSCRIPTION, {"requires_session": True}),
    ],
    ids=str,
)
def test_what_is_settled_at_creation_cannot_change(old: EntityDescription, asked: dict[str, Any]) -> None:
    with pytest.raises(BadArgument, match=f"{spelled(next(iter(asked)))}.*cannot be changed"):
        check_update(old, replace(old, **asked))


def test_everything_else_can_change() -> None:
    check_update(QUEUE, replace(QUEUE, lock_duration=5 * SECOND, max_size_in_megabytes=5120, user_metadata="x"))
    check_update(TOPIC, replace(TOPIC, support_ordering=False))
    check_update(SUBSCRIPTION, replace(SUBSCRIPTION, forward_to="orders", max_delivery_count=3))


def test_a_queue_does_not_become_a_topic() -> None:
    with pytest.raises(BadArgument, match="delete it first"):
        check_update(QUEUE, TopicDescription("orders"))


def test_all_messages_of_an_entity_are_counted_together() -> None:
    runtime = EntityRuntime(1, 1, active=1, dead_letter=2, scheduled=3, transfer=4, transfer_dead_letter=5)
    assert runtime.message_count == 15


def test_a_description_is_a_value() -> None:
    assert QueueDescription("orders") == QUEUE
    assert SUBSCRIPTION.path == "news/subscriptions/audit"
    with pytest.raises(FrozenInstanceError):
        QUEUE.name = "other"  # type: ignore[misc]
