"""Locks: how long they last, how they are renewed, and what happens when one is lost."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus.exceptions import MessageLockLostError

from syphon.amqp import Array, Message, Symbol, Value
from syphon.emulator.broker.descriptions import QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import raw_client, request
from tests.support.sdk_client import take
from tests.support.sdk_queue import MOMENT, asynchronous, both, sdk_queue, synchronous, text, texts

TEN_SECONDS = QueueDescription("orders", lock_duration=10_000)


@both
async def test_an_expired_lock_is_lost_and_the_message_is_redelivered(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, TEN_SECONDS) as it:
        await it.send("x")
        late = await it.take_one()
        it.advance(9.999)
        assert await it.receiver.receive_messages(max_message_count=1, max_wait_time=MOMENT) == []
        it.advance(0.001)
        again = await it.take_one()
        assert (text(again), again.delivery_count, again.sequence_number) == ("x", 1, late.sequence_number)
        for settle in (it.receiver.complete_message, it.receiver.abandon_message, it.receiver.renew_message_lock):
            with pytest.raises(MessageLockLostError):
                await settle(late)
        await it.receiver.complete_message(again)
        assert it.stored() == 0


@both
async def test_a_renewed_lock_lasts_its_full_time_again(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, TEN_SECONDS) as it:
        assert clocked.clock is not None
        await it.send("renewed", "not renewed")
        renewed, other = await it.take(2)
        it.advance(9)
        until = await it.receiver.renew_message_lock(renewed)
        assert until == datetime.fromtimestamp(clocked.clock.now() / 1000, UTC) + timedelta(seconds=10)
        assert renewed.locked_until_utc == until
        it.advance(9)
        assert texts(await it.take(1)) == ["not renewed"]
        await it.receiver.complete_message(renewed)
        with pytest.raises(MessageLockLostError):
            await it.receiver.complete_message(other)


@synchronous
async def test_every_way_to_settle_is_refused_when_the_lock_is_lost(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, TEN_SECONDS) as it:
        await it.send("complete", "abandon", "defer", "dead letter")
        complete, abandon, defer, letter = await it.take(4)
        it.advance(10)
        with pytest.raises(MessageLockLostError):
            await it.receiver.complete_message(complete)
        with pytest.raises(MessageLockLostError):
            await it.receiver.abandon_message(abandon)
        with pytest.raises(MessageLockLostError):
            await it.receiver.defer_message(defer)
        with pytest.raises(MessageLockLostError):
            await it.receiver.dead_letter_message(letter)
        assert [message.delivery_count for message in await it.take(4)] == [1, 1, 1, 1]
        assert len(it.queue.dead) == 0


@asynchronous
async def test_a_lock_outlives_its_link_and_settles_through_the_management_link(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(clocked, flavour, TEN_SECONDS) as it:
        await it.send("complete", "abandon", "defer", "dead letter", "late")
        complete, abandon, defer, letter, late = await it.take(5)
        _, other = await asyncio.gather(it.receiver.close(), it.open_receiver())
        # The SDK settles there once the link is gone: a deferred message never had one.
        for message in (complete, abandon, defer, letter, late):
            message._is_deferred_message = True
            message._receiver = other
        await other.complete_message(complete)
        await other.abandon_message(abandon)
        await other.defer_message(defer)
        await other.dead_letter_message(letter, reason="why", error_description="because")
        it.advance(10)
        with pytest.raises(MessageLockLostError):
            await other.complete_message(late)

        assert texts(await other.peek_messages(10, sequence_number=1)) == ["abandon", "defer", "late"]
        again = await take(other, 2)
        assert [(text(message), message.delivery_count) for message in again] == [("abandon", 1), ("late", 1)]
        (dead,) = it.queue.dead.peek(0, 10)
        properties = dead.application_properties()
        assert (properties.get("DeadLetterReason"), properties.get("DeadLetterErrorDescription")) == ("why", "because")


@asynchronous
async def test_a_receiver_that_closes_leaves_its_locks_to_run_out(clocked: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(clocked, flavour, TEN_SECONDS) as it:
        await it.send("x")
        await it.take_one()
        _, other = await asyncio.gather(it.receiver.close(), it.open_receiver())
        assert await other.receive_messages(max_message_count=1, max_wait_time=MOMENT) == []
        it.advance(10)
        (again,) = await take(other)
        assert again.delivery_count == 1


async def test_a_shorter_lock_duration_holds_for_new_locks_at_once_and_not_for_old_ones(
    clocked: EmulatedNamespace,
) -> None:
    clocked.namespace.create_queue(QueueDescription("orders", lock_duration=60_000))
    clock = clocked.clock
    assert clock is not None
    async with raw_client(clocked) as client:
        sender = await client.attach_sender("orders")
        for body in (b"\x00\x53\x75\xa0\x01a", b"\x00\x53\x75\xa0\x01b"):
            await client.send(sender, body)
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        await client.receive(receiver)
        clocked.namespace.update_queue(replace(clocked.namespace.queues()[0], lock_duration=5_000))
        client.grant(receiver, 1)
        await client.receive(receiver)
        clock.advance(5)
        client.grant(receiver, 1)
        again = Message((await client.receive(receiver)).payload)
        assert (again.bare()[-1:], again.header().delivery_count) == (b"b", 1)
        # a dead letter's lock is the queue's, too
        letters = clocked.namespace.message_queue("orders/$DeadLetterQueue")
        assert letters.terms.lock_duration == 5_000


async def test_the_same_lock_settles_only_once_through_the_management_link(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(TEN_SECONDS)
    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        await client.send(sender, b"\x00\x53\x75\xa0\x01x")
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        await client.receive(receiver)
        token = next(iter(emulated.namespace.message_queue("orders")._locks))
        complete: dict[str, Value] = {
            "disposition-status": "completed",
            "lock-tokens": Array(0x98, (uuid.UUID(bytes_le=token),)),
        }
        requests = await client.attach_sender("orders/$management")
        replies = await client.attach_receiver("orders/$management")
        client.grant(replies, 2)
        answers = []
        for number in ("1", "2"):
            await client.send(requests, request("update-disposition", complete, number))
            answers.append(Message((await client.receive(replies)).payload).application_properties())
    assert [answer.get("statusCode") for answer in answers] == [200, 410]
    assert answers[1].get("errorCondition") == Symbol("com.microsoft:message-lock-lost")
