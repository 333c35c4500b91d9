"""Partitioned entities: sixteen fragments, the key that chooses one, and a fragment that is down (S8)."""

from __future__ import annotations

import asyncio
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessageNotFoundError, OperationTimeoutError, ServiceBusError

from syphon.emulator.broker.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_client import advance, held, message_queue, put, rest, sdk_client, session_of, take, take_one
from tests.support.sdk_queue import both, texts

WIDE = QueueDescription("wide", enable_partitioning=True)
FRAGMENT_OF_A = zlib.crc32(b"a") % 16


def fragment(message: Any) -> int:
    number: int = message.sequence_number
    return number >> 48


def fragments(emulated: EmulatedNamespace, path: str = "wide") -> list[int]:
    return [message.fragment for message in message_queue(emulated, path).peek(0, 1000)]


def elsewhere(key_of: int = FRAGMENT_OF_A) -> str:
    """A key that belongs to another fragment."""
    return next(key for key in "bcdefgh" if zlib.crc32(key.encode()) % 16 != key_of)


@both
async def test_a_key_has_one_fragment_and_numbers_say_which(emulated: EmulatedNamespace, flavour: str) -> None:
    emulated.namespace.create_queue(WIDE)
    async with sdk_client(emulated, flavour) as it:
        receiver, _ = await asyncio.gather(it.receiver("wide"), it.sender("wide"))
        await it.send("wide", "1", "2", partition_key="a")
        await it.send("wide", "3", session_id="a")
        await it.send("wide", "4", partition_key=elsewhere())
        found = await take(receiver, 4)
        for message in found:
            await receiver.complete_message(message)
    assert texts(found) == ["1", "2", "3", "4"]
    assert [fragment(message) for message in found[:3]] == [FRAGMENT_OF_A] * 3
    assert fragment(found[3]) != FRAGMENT_OF_A
    assert found[0].partition_key == "a"
    assert len(message_queue(emulated, "wide")) == 0


async def test_messages_without_a_key_are_spread_over_all_fragments(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(WIDE)
    for number in range(300):
        put(emulated, "wide", str(number))
    assert set(fragments(emulated)) == set(range(16))
    async with sdk_client(emulated) as it:
        assert await it.contents("wide") == [[str(number) for number in range(300)]]


@both
@pytest.mark.parametrize("keys", [("a", "b"), ("a", None)])
async def test_a_batch_for_a_partitioned_entity_has_one_key(
    emulated: EmulatedNamespace, flavour: str, keys: tuple[str, str | None]
) -> None:
    emulated.namespace.create_queue(WIDE)
    async with sdk_client(emulated, flavour) as it:
        await it.send("wide", "1", "2", "3")
        with pytest.raises(ServiceBusError, match="one partition key"):
            await it.send("wide", *(ServiceBusMessage("x", partition_key=key) for key in keys))
    assert held(emulated, "wide") == [["1", "2", "3"]], "all or nothing"
    assert len(set(fragments(emulated))) == 1


async def test_a_session_id_and_another_partition_key_are_refused_everywhere(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(WIDE)
    emulated.namespace.create_queue(QueueDescription("plain"))
    odd: Any = AmqpAnnotatedMessage(
        data_body=[b"x"], properties=AmqpMessageProperties(group_id="s"), annotations={"x-opt-partition-key": "k"}
    )
    async with sdk_client(emulated) as it:
        senders = await asyncio.gather(it.sender("wide"), it.sender("plain"))
        await it.send("wide", ServiceBusMessage("same", session_id="s", partition_key="s"))
        outcomes = await asyncio.gather(*(sender.send_messages(odd) for sender in senders), return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, ServiceBusError)
        assert "amqp:not-allowed" in str(outcome)
    assert held(emulated, "wide", "plain") == [["same"], []]


@both
async def test_a_fragment_that_is_down_takes_its_key_and_its_messages_along(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    emulated.namespace.create_queue(WIDE)
    async with sdk_client(emulated, flavour) as it:
        receiver, _ = await asyncio.gather(it.receiver("wide"), it.sender("wide"))
        await it.send("wide", "down", partition_key="a")
        emulated.namespace.set_fragments_down("wide", {FRAGMENT_OF_A})
        with pytest.raises(OperationTimeoutError):
            await it.send("wide", "refused", partition_key="a")
        await it.send("wide", "up", partition_key=elsewhere())
        for _ in range(40):
            put(emulated, "wide", "anywhere")
        assert await receiver.peek_messages() != []
        got = await rest(receiver)
        assert texts(got) == ["up"] + ["anywhere"] * 40
        assert FRAGMENT_OF_A not in {fragment(message) for message in got}
        emulated.namespace.set_fragments_down("wide", set())
        await it.send("wide", "again", partition_key="a")
        assert texts(await take(receiver, 2)) == ["down", "again"]


async def test_with_all_fragments_down_nothing_is_taken(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(WIDE)
    emulated.namespace.set_fragments_down("wide", set(range(16)))
    async with sdk_client(emulated) as it:
        with pytest.raises(OperationTimeoutError):
            await it.send("wide", "x")
        emulated.namespace.set_fragments_down("wide", set())
        await it.send("wide", "y")
    assert held(emulated, "wide") == [["y"]]


@both
async def test_peeking_deferring_and_cancelling_work_with_numbers_of_fragments(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    clocked.namespace.create_queue(WIDE)
    due = datetime.now(UTC) + timedelta(hours=1)
    async with sdk_client(clocked, flavour) as it:
        receiver, sender = await asyncio.gather(it.receiver("wide"), it.sender("wide"))
        for key in "abcdef":
            await it.send("wide", key, partition_key=key)
        peeked = []
        while page := await receiver.peek_messages(max_message_count=4):
            peeked += page
        assert sorted(texts(peeked)) == list("abcdef")
        fifth = peeked[4]
        assert fifth.sequence_number is not None
        found = await receiver.peek_messages(max_message_count=1, sequence_number=fifth.sequence_number)
        assert texts(found) == texts([fifth])

        first = await take_one(receiver)
        number = first.sequence_number
        assert number is not None
        await receiver.defer_message(first)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(number & 0xFFFFFFFFFFFF | ((fragment(first) ^ 1) << 48))
        clocked.namespace.set_fragments_down("wide", {FRAGMENT_OF_A})
        with pytest.raises(OperationTimeoutError):
            await receiver.receive_deferred_messages(number)
        clocked.namespace.set_fragments_down("wide", set())
        assert texts(await receiver.receive_deferred_messages(number)) == ["a"]

        scheduled = await sender.schedule_messages(ServiceBusMessage("later", partition_key="a"), due)
        assert scheduled[0] >> 48 == FRAGMENT_OF_A
        await sender.cancel_scheduled_messages(scheduled)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(scheduled)


async def test_the_message_id_is_the_key_where_repeats_are_dropped_and_no_other_is_given(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_queue(
        QueueDescription("wide", enable_partitioning=True, requires_duplicate_detection=True)
    )
    async with sdk_client(emulated) as it:
        for body in ("first", "repeat"):
            await it.send("wide", body, message_id="a")
        for key in ("k1", "k2", "k1"):  # each key's fragment knows only its own
            await it.send("wide", key, message_id="same", partition_key=key)
        with pytest.raises(ServiceBusError, match="one partition key"):
            await it.send("wide", *(ServiceBusMessage("x", message_id=name) for name in ("x", "y")))
    assert [sorted(texts) for texts in held(emulated, "wide")] == [["first", "k1", "k2"]]
    assert fragments(emulated)[0] == FRAGMENT_OF_A


async def test_without_partitions_repeats_are_told_by_their_id_alone(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("plain", requires_duplicate_detection=True, requires_session=True))
    async with sdk_client(emulated) as it:
        for session in ("s1", "s2"):
            await it.send("plain", session, message_id="same", session_id=session)
    assert held(emulated, "plain") == [["s1"]]


async def test_a_partitioned_topic_has_its_fragments_in_all_subscriptions(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_topic(TopicDescription("news", enable_partitioning=True))
    for name in ("one", "two"):
        emulated.namespace.create_subscription(SubscriptionDescription("news", name))
    async with sdk_client(emulated) as it:
        one, _ = await asyncio.gather(it.receiver(("news", "one")), it.sender("news"))
        await it.send("news", "a", partition_key="a")
        emulated.namespace.set_fragments_down("news", {FRAGMENT_OF_A})
        with pytest.raises(OperationTimeoutError):
            await it.send("news", "b", partition_key="a")
        assert await rest(one) == []
        emulated.namespace.set_fragments_down("news", set())
        assert fragment(await take_one(one)) == FRAGMENT_OF_A


async def test_sessions_of_a_partitioned_queue_stay_in_their_fragment(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("wide", enable_partitioning=True, requires_session=True))
    put(emulated, "wide", "1", session_id="a")
    put(emulated, "wide", "2", session_id=elsewhere())
    emulated.namespace.set_fragments_down("wide", {FRAGMENT_OF_A})
    async with sdk_client(emulated) as it:
        available = await it.receiver("wide", session_id=NEXT_AVAILABLE_SESSION)
        assert session_of(available).session_id == elsewhere()
        assert texts(await take(available)) == ["2"]
        emulated.namespace.set_fragments_down("wide", set())
        assert await it.contents("wide", session_id="a") == [["1"]]


async def test_a_peek_enumerates_one_fragment_after_the_other_and_its_pages_may_be_short(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_queue(WIDE)
    for number in range(40):
        put(emulated, "wide", str(number))
    async with sdk_client(emulated) as it:
        receiver = await it.receiver("wide")
        pages = []
        while page := await receiver.peek_messages(250):
            pages.append([message.sequence_number or 0 for message in page])
    numbers = [number for page in pages for number in page]
    assert len(numbers) == 40
    assert numbers == sorted(numbers)
    assert [len({number >> 48 for number in page}) for page in pages] == [1] * len(pages)


async def test_a_message_forwarded_out_of_a_partitioned_queue_leaves_its_fragment_behind(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_queue(QueueDescription("plain"))
    emulated.namespace.create_queue(QueueDescription("wide", enable_partitioning=True, forward_to="plain"))
    put(emulated, "wide", "x", session_id="a")
    assert [message.sequence for message in message_queue(emulated, "plain").peek(0, 10)] == [1]


async def test_a_message_whose_time_comes_while_its_fragment_is_down_waits_for_it(clocked: EmulatedNamespace) -> None:
    clocked.namespace.create_queue(WIDE)
    assert clocked.clock is not None
    due = datetime.fromtimestamp(clocked.clock.now() / 1000, UTC) + timedelta(minutes=1)
    async with sdk_client(clocked) as it:
        receiver, sender = await asyncio.gather(it.receiver("wide"), it.sender("wide"))
        await sender.schedule_messages(ServiceBusMessage("later", partition_key="a"), due)
        clocked.namespace.set_fragments_down("wide", {FRAGMENT_OF_A})
        advance(clocked, 61)
        assert await rest(receiver) == []
        clocked.namespace.set_fragments_down("wide", set())
        assert texts(await take(receiver)) == ["later"]
