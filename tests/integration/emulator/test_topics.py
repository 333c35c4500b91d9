"""Topics: every subscription gets its own copy of the messages that match its rules, and no others."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from syphon.emulator.broker.descriptions import (
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.broker.filters import FalseFilter
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_client import advance, held, message_queue, put, rest, sdk_client, take, take_one
from tests.support.sdk_queue import SOON, both, texts

NEWS = TopicDescription("news")
ONE, TWO = ("news", "one"), ("news", "two")


def subscribe(emulated: EmulatedNamespace, *names: str, topic: TopicDescription = NEWS) -> None:
    emulated.namespace.create_topic(topic)
    for name in names:
        emulated.namespace.create_subscription(SubscriptionDescription(topic.name, name))


@both
async def test_each_subscription_has_a_copy_of_its_own(emulated: EmulatedNamespace, flavour: str) -> None:
    subscribe(emulated, "one", "two", "none")
    emulated.namespace.delete_rule("news", "none", "$Default")
    async with sdk_client(emulated, flavour) as it:
        (one, two, none), _ = await asyncio.gather(it.receivers(ONE, TWO, ("news", "none")), it.sender("news"))
        await it.send("news", "a", "b", application_properties={"n": 1})
        of_one = await take(one, 2)
        for message in of_one:
            await one.complete_message(message)
        of_two = await take(two, 2)
        await two.abandon_message(of_two[0])
        assert (await take_one(two)).delivery_count == 1
        assert await rest(none) == [], "without a rule nothing comes"
    assert texts(of_one) == texts(of_two) == ["a", "b"]
    assert of_two[0].application_properties == {b"n": 1}
    assert len(message_queue(emulated, "news/subscriptions/one")) == 0


async def test_a_subscription_made_later_gets_only_what_comes_later(emulated: EmulatedNamespace) -> None:
    subscribe(emulated, "one")
    async with sdk_client(emulated) as it:
        await it.send("news", "before")
        emulated.namespace.create_subscription(SubscriptionDescription("news", "two"))
        await it.send("news", "after")
    assert held(emulated, "news/subscriptions/one", "news/subscriptions/two") == [["before", "after"], ["after"]]


async def test_paths_of_topics_and_subscriptions_are_the_same_in_any_case(emulated: EmulatedNamespace) -> None:
    subscribe(emulated, "One")
    async with sdk_client(emulated) as it:
        await it.send("NEWS", "a")
        found = await it.receivers(("nEwS", "oNE"), "news/SUBSCRIPTIONS/one")
        assert texts(await take(found[0])) == ["a"]
        await it.send("News", "b")
        assert texts(await take(found[1])) == ["b"]


async def test_one_sends_to_topics_and_receives_from_subscriptions(emulated: EmulatedNamespace) -> None:
    subscribe(emulated, "one")
    async with sdk_client(emulated) as it:
        wrong = (
            it.sender("news/Subscriptions/one"),
            it.receiver("news"),
            it.receiver(("news", "other")),
            it.sender("news/Subscriptions/one/$DeadLetterQueue"),
        )
        to_one, from_topic, missing, to_dead = await asyncio.gather(*wrong, return_exceptions=True)
    assert "amqp:not-allowed" in str(to_one)
    assert "amqp:not-allowed" in str(from_topic)
    assert "amqp:not-allowed" in str(to_dead)
    assert isinstance(missing, ServiceBusAuthenticationError)


@both
async def test_a_message_scheduled_on_a_topic_is_published_in_its_time_or_cancelled(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    subscribe(clocked, "one")
    assert clocked.clock is not None
    due = datetime.fromtimestamp(clocked.clock.now() / 1000, UTC) + timedelta(minutes=5)
    async with sdk_client(clocked, flavour) as it:
        receiver, sender = await asyncio.gather(it.receiver(ONE), it.sender("news"))
        numbers = await sender.schedule_messages([ServiceBusMessage("kept"), ServiceBusMessage("cancelled")], due)
        await sender.cancel_scheduled_messages(numbers[1])
        assert await rest(receiver) == []
        clocked.namespace.create_subscription(SubscriptionDescription("news", "two"))
        advance(clocked, 301)
        message = await take_one(receiver)
        assert (str(message), message.enqueued_time_utc) == ("kept", due)
    assert held(clocked, "news/subscriptions/two") == [["kept"]], (
        "a subscription that exists at publishing gets the message"
    )


async def test_a_disabled_topic_accepts_nothing_and_a_disabled_subscription_gets_nothing(
    emulated: EmulatedNamespace,
) -> None:
    subscribe(emulated, "one", "two")
    emulated.namespace.update_subscription(SubscriptionDescription("news", "two", status=EntityStatus.DISABLED))
    async with sdk_client(emulated) as it:
        _, refused = await asyncio.gather(it.send("news", "a"), it.receiver(TWO), return_exceptions=True)
        assert isinstance(refused, MessagingEntityDisabledError)
        emulated.namespace.update_subscription(SubscriptionDescription("news", "two"))
        await it.send("news", "b")
        assert held(emulated, "news/subscriptions/one", "news/subscriptions/two") == [["a", "b"], ["b"]]
        emulated.namespace.update_topic(TopicDescription("news", status=EntityStatus.SEND_DISABLED))
        with pytest.raises(MessagingEntityDisabledError):
            await it.sender("NEWS")


async def test_a_receive_disabled_subscription_collects_messages_but_gives_none(emulated: EmulatedNamespace) -> None:
    subscribe(emulated, "one")
    emulated.namespace.update_subscription(SubscriptionDescription("news", "one", status=EntityStatus.RECEIVE_DISABLED))
    put(emulated, "news", "a")
    async with sdk_client(emulated) as it:
        with pytest.raises(MessagingEntityDisabledError):
            await it.receiver(ONE)
    assert held(emulated, "news/subscriptions/one") == [["a"]]


async def test_a_topic_is_as_full_as_its_subscriptions_together(emulated: EmulatedNamespace) -> None:
    subscribe(emulated, "one", "two")
    emulated.namespace.entity("news").quota_bytes = 25_000
    async with sdk_client(emulated) as it:
        await it.send("news", "x" * 10_000)
        with pytest.raises(ServiceBusQuotaExceededError):
            await it.send("news", "y" * 10_000)
        await it.contents(ONE)
        put(emulated, "news", "z" * 10_000)
    assert [body[0] for body in held(emulated, "news/subscriptions/one")[0]] == ["z"]


async def test_a_topic_takes_each_message_id_once_within_its_window(clocked: EmulatedNamespace) -> None:
    unique = TopicDescription("news", requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000)
    subscribe(clocked, "one", topic=unique)
    async with sdk_client(clocked) as it:
        for body in ("first", "repeat"):
            await it.send("news", body, message_id="same")
        advance(clocked, 21)
        await it.send("news", "later", message_id="same")
    assert held(clocked, "news/subscriptions/one") == [["first", "later"]]


@both
async def test_a_subscription_has_dead_letters_of_its_own(clocked: EmulatedNamespace, flavour: str) -> None:
    subscribe(clocked, "one", "two")
    clocked.namespace.create_subscription(
        SubscriptionDescription(
            "news", "brief", default_message_time_to_live=5000, dead_lettering_on_message_expiration=True
        )
    )
    async with sdk_client(clocked, flavour) as it:
        one, (dead, expired, other), _ = await asyncio.gather(
            it.receiver(ONE),
            it.receivers(ONE, ("news", "brief"), TWO, sub_queue=ServiceBusSubQueue.DEAD_LETTER),
            it.sender("news"),
        )
        await it.send("news", "a")
        await one.dead_letter_message(await take_one(one), reason="bad", error_description="very")
        advance(clocked, 6)
        letter, late = await take_one(dead), await take_one(expired)
        assert await rest(other) == []
    assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("bad", "very")
    assert letter.dead_letter_source is not None
    assert letter.dead_letter_source.lower() == "news/subscriptions/one"
    assert late.dead_letter_reason == "TTLExpiredException"


async def test_the_shortest_time_to_live_of_message_topic_and_subscription_counts(clocked: EmulatedNamespace) -> None:
    clocked.namespace.create_topic(TopicDescription("news", default_message_time_to_live=20_000))
    clocked.namespace.create_subscription(SubscriptionDescription("news", "one", default_message_time_to_live=10_000))
    clocked.namespace.create_subscription(SubscriptionDescription("news", "two"))
    put(clocked, "news", "a")
    lives = []
    for seconds in (9, 2, 8, 2):  # after 9, 11, 19 and 21 seconds
        advance(clocked, seconds)
        lives.append(
            (
                len(message_queue(clocked, "news/subscriptions/one")),
                len(message_queue(clocked, "news/subscriptions/two")),
            )
        )
    assert lives == [(1, 1), (0, 1), (0, 1), (0, 0)]


async def test_a_deleted_topic_takes_its_subscriptions_and_their_receivers_with_it(emulated: EmulatedNamespace) -> None:
    subscribe(emulated, "one")
    async with sdk_client(emulated) as it:
        receiver, _ = await asyncio.gather(it.receiver(ONE), it.sender("news"))
        emulated.namespace.delete("news")
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.receive_messages(max_wait_time=SOON)
        with pytest.raises(ServiceBusError):
            await it.send("news", "a")
    with pytest.raises(Exception, match="could not be found"):
        emulated.namespace.describe("news/subscriptions/one")


async def test_a_queue_and_a_topic_cannot_share_a_name(emulated: EmulatedNamespace) -> None:
    subscribe(emulated, "one")
    with pytest.raises(Exception, match=r"'sb://127\.0\.0\.1/News' already exists"):
        emulated.namespace.create_queue(QueueDescription("News"))


async def test_a_subscription_can_start_with_a_rule_of_its_own_in_place_of_the_default(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_topic(NEWS)
    emulated.namespace.create_subscription(
        SubscriptionDescription("news", "one"), RuleDescription("nothing", FalseFilter())
    )
    put(emulated, "news", "a")
    assert len(message_queue(emulated, "news/subscriptions/one")) == 0
    assert [rule.name for rule in emulated.namespace.rules("news", "one")] == ["nothing"]
