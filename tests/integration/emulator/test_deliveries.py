"""What a delivery carries, byte by byte, as Azure writes it: annotations, tags, states, and what management adds."""

from __future__ import annotations

import uuid

import pytest

from syphon.amqp import (
    Int,
    Long,
    Map,
    Message,
    Properties,
    Section,
    Symbol,
    Timestamp,
    UInt,
    Value,
    data_section,
    properties_bytes,
    section_bytes,
)
from syphon.amqp.frames import Accepted, Modified
from syphon.amqp.sections import Header, header_bytes
from syphon.emulator.broker.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.amqp_peer import peer, sas
from tests.support.raw_client import RawClient, raw_client
from tests.support.sdk_queue import ORDERS

PAYLOAD = properties_bytes(Properties(message_id="m")) + data_section(b"body")
LATER = 60_000


def state_of(payload: bytes) -> object:
    return Message(payload).annotations().get("x-opt-message-state")


async def put(client: RawClient, *, due: int | None = None) -> None:
    annotations = Map(((Symbol("x-opt-scheduled-enqueue-time"), Timestamp(due)),)) if due is not None else None
    head = section_bytes(Section.MESSAGE_ANNOTATIONS, annotations) if annotations is not None else b""
    assert await client.send(await client.attach_sender("orders"), head + PAYLOAD) == Accepted()


async def peeked(client: RawClient, **more: bool) -> bytes:
    asked: dict[str, Value] = {"from-sequence-number": Long(0), "message-count": Int(1), **more}
    status, body = await client.ask("orders", "peek-message", asked)
    assert status.get("statusCode") == 200
    assert isinstance(body, Map)
    messages = body.get("messages")
    assert isinstance(messages, list)
    (entry,) = messages
    assert isinstance(entry, Map)
    found = entry.get("message")
    assert isinstance(found, bytes)
    return found


async def test_a_locked_message_names_its_lock_in_the_tag_and_in_the_delivery_annotations(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        await put(client)
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        arrival = await client.receive(receiver)
        message = Message(arrival.payload)
    assert [span.section for span in message.spans] == [0x70, 0x71, 0x72, 0x73, 0x75]
    token = uuid.UUID(bytes_le=arrival.tag)
    assert message.read(Section.DELIVERY_ANNOTATIONS) == Map(((Symbol("x-opt-lock-token"), token),))


async def test_a_message_that_is_deleted_on_receipt_has_an_empty_tag_and_no_lock(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        await put(client)
        receiver = await client.attach_receiver("orders", deletes=True)
        client.grant(receiver, 1)
        arrival = await client.receive(receiver)
    message = Message(arrival.payload)
    assert arrival.tag == b""
    assert message.raw(Section.DELIVERY_ANNOTATIONS) == b"\x00\x53\x71\xc1\x01\x00"
    assert "x-opt-locked-until" not in message.annotations()


async def test_an_active_message_says_its_state_only_to_those_who_peek(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        await put(client)
        assert state_of(await peeked(client)) == 0
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        arrival = await client.receive(receiver)
        assert state_of(arrival.payload) is None

        await client.settle(arrival, Modified(True, True))
        assert state_of(await peeked(client)) == 1
        asked: dict[str, Value] = {"sequence-numbers": [Long(1)], "receiver-settle-mode": Int(1)}
        _, body = await client.ask("orders", "receive-by-sequence-number", asked)
        assert isinstance(body, Map)
        messages = body.get("messages")
        assert isinstance(messages, list)
        (entry,) = messages
        assert isinstance(entry, Map)
        deferred = entry.get("message")
        assert isinstance(deferred, bytes)
        assert state_of(deferred) == 1


async def test_a_message_that_was_scheduled_says_so_when_it_is_received(clocked: EmulatedNamespace) -> None:
    clocked.namespace.create_queue(ORDERS)
    assert clocked.clock is not None
    async with raw_client(clocked) as client:
        await put(client, due=clocked.clock.now() + LATER)
        assert state_of(await peeked(client)) == 2
        clocked.clock.advance(LATER / 1000)
        assert state_of(await peeked(client)) == 0
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        assert state_of((await client.receive(receiver)).payload) == 2


SECTIONS = {
    0x70: b"\x00\x53\x70\xc0\x02\x01\x41",
    0x71: section_bytes(Section.DELIVERY_ANNOTATIONS, Map(((Symbol("hop"), Int(1)),))),
    0x72: section_bytes(Section.MESSAGE_ANNOTATIONS, Map(((Symbol("mine"), Int(2)),))),
    0x73: properties_bytes(Properties(message_id="m")),
    0x74: section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"colour": "red"})),
    0x75: data_section(b"body"),
    0x78: section_bytes(Section.FOOTER, Map(((Symbol("sum"), Int(3)),))),
}


@pytest.mark.parametrize(
    "order",
    [
        [0x70, 0x72, 0x73, 0x74, 0x75, 0x71],  # as the Python client writes them
        [0x70, 0x71, 0x72, 0x73, 0x74, 0x78, 0x75],  # as rhea does
        [0x78, 0x75, 0x74, 0x73, 0x72, 0x71, 0x70],
    ],
)
async def test_sections_in_any_order_are_taken_and_delivered_in_order(
    emulated: EmulatedNamespace, order: list[int]
) -> None:  # M8
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        assert await client.send(sender, b"".join(SECTIONS[each] for each in order)) == Accepted()
        twice = b"".join(SECTIONS[each] for each in [*order, 0x73])
        assert (await client.refusal_of(sender, twice)).condition == "amqp:decode-error"
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        message = Message((await client.receive(receiver)).payload)
    assert [span.section for span in message.spans] == sorted({*order, 0x71})
    for unchanged in {0x73, 0x74, 0x75, 0x78}.intersection(order):
        assert message.raw(Section(unchanged)) == SECTIONS[unchanged]
    assert message.annotations().get("mine") == 2


async def test_a_partition_key_may_be_binary(emulated: EmulatedNamespace) -> None:  # S8
    emulated.namespace.create_queue(QueueDescription("orders", enable_partitioning=True))
    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        for key in ("k", b"k"):
            annotations = section_bytes(Section.MESSAGE_ANNOTATIONS, Map(((Symbol("x-opt-partition-key"), key),)))
            assert await client.send(sender, annotations + PAYLOAD) == Accepted()
    first, second = emulated.namespace.message_queue("orders").peek(0, 9)
    assert (first.partition_key, second.partition_key) == ("k", "k")
    assert first.fragment == second.fragment


@pytest.mark.parametrize("by", ["abandon", "lock expiry"])
async def test_a_dead_letter_keeps_its_delivery_count(clocked: EmulatedNamespace, by: str) -> None:
    clocked.namespace.create_queue(ORDERS)
    assert clocked.clock is not None
    async with raw_client(clocked) as client:
        await put(client)
        queue = clocked.namespace.message_queue("orders")
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        queue.reject((await client.receive(receiver)).tag, {})
        letters = await client.attach_receiver("orders/$DeadLetterQueue")
        for _ in range(3):
            client.grant(letters, 1)
            arrival = await client.receive(letters)
            assert Message(arrival.payload).header().delivery_count == 0
            if by == "abandon":
                await client.settle(arrival, Modified(True))
            else:
                clocked.clock.advance(60)


async def test_a_peek_can_leave_the_body_out(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        await put(client)
        short, whole = Message(await peeked(client, **{"omit-message-body": True})), Message(await peeked(client))
    assert [span.section for span in short.spans] == [0x70, 0x72, 0x73]
    assert short.raw(Section.PROPERTIES) == whole.raw(Section.PROPERTIES)
    assert whole.read(Section.DATA) == b"body"


# Deleting in batches


async def deleted(client: RawClient, count: int, before: int, entity: str = "orders", **more: str) -> object:
    """How many messages were deleted, or the refusal."""
    asked: dict[str, Value] = {"message-count": Int(count), "enqueued-time-utc": Timestamp(before), **more}
    status, body = await client.ask(entity, "batch-delete-messages", asked)
    if status.get("statusCode") == 204:
        assert status.get("errorCondition") == "com.microsoft:message-not-found"
        return 0
    return body.get("message-count") if isinstance(body, Map) else status.get("statusDescription")


async def test_messages_are_deleted_in_batches_but_not_locked_deferred_or_scheduled_ones(
    clocked: EmulatedNamespace,
) -> None:
    clocked.namespace.create_queue(ORDERS)
    clock = clocked.clock
    assert clock is not None
    async with raw_client(clocked) as client:
        for _ in range(5):
            await put(client)
        await put(client, due=clock.now() + 10 * LATER)
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 2)
        await client.receive(receiver)
        await client.settle(await client.receive(receiver), Modified(True, True))
        clock.advance(1)
        await put(client)
        assert await deleted(client, 2, clock.now()) == 2
        assert await deleted(client, 100, clock.now()) == 1
        assert await deleted(client, 100, clock.now()) == 0
        assert len(clocked.namespace.message_queue("orders")) == 4  # locked, deferred, scheduled, too new
        for count in (0, 4001):
            assert "message-count must be 1 to 4000" in str(await deleted(client, count, clock.now()))


async def test_messages_of_one_session_are_deleted(clocked: EmulatedNamespace) -> None:
    clocked.namespace.create_queue(QueueDescription("orders", requires_session=True))
    clock = clocked.clock
    assert clock is not None
    async with raw_client(clocked) as client:
        sender = await client.attach_sender("orders")
        for session in ("a", "b", "a"):
            await client.send(sender, properties_bytes(Properties(group_id=session)) + data_section(b"x"))
        clock.advance(1)
        assert await deleted(client, 100, clock.now(), **{"session-id": "a"}) == 2
    assert [message.session_id for message in clocked.namespace.message_queue("orders").peek(0, 9)] == ["b"]


# Tokens


@pytest.mark.parametrize(
    "path", ["missing", "Missing/$management", "missing/$DeadLetterQueue", "news/Subscriptions/missing", "news/other"]
)
async def test_a_token_for_an_entity_that_does_not_exist_is_refused(emulated: EmulatedNamespace, path: str) -> None:
    emulated.namespace.create_topic(TopicDescription("news"))
    address = f"sb://contoso.servicebus.windows.net/{path}"
    async with peer(emulated.running.amqp_port) as one:
        await one.connect()
        status, words = await one.put_token(sas(address), address)
        assert status == 404
        assert words.startswith(f"The messaging entity '{address}' could not be found. ")
        bad = await one.put_token(sas(address, key="wrong"), address)
        assert bad[0] == 401  # a stranger does not learn what exists


@pytest.mark.parametrize(
    "path",
    [
        "",
        "news",
        "news/$management",
        "News/Subscriptions/One",
        "news/subscriptions/one/$DeadLetterQueue",
        "news/subscriptions/one/$DeadLetterQueue/$management",
        "news/subscriptions/one/$Transfer/$DeadLetterQueue",
    ],
)
async def test_a_token_for_what_exists_is_accepted(emulated: EmulatedNamespace, path: str) -> None:
    emulated.namespace.create_topic(TopicDescription("news"))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "one"))
    address = f"sb://contoso.servicebus.windows.net/{path}"
    async with peer(emulated.running.amqp_port) as one:
        await one.connect()
        assert (await one.put_token(sas(address), address))[0] == 202


async def test_a_message_says_scheduled_only_if_it_waited_and_deferred_whatever_it_was(
    clocked: EmulatedNamespace,
) -> None:
    assert clocked.clock is not None
    clocked.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(clocked) as client:
        await put(client, due=clocked.clock.now() - LATER)
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        past = await client.receive(receiver)
        assert state_of(past.payload) is None
        await client.settle(past, Accepted())
        await put(client, due=clocked.clock.now() + LATER)
        clocked.clock.advance(LATER / 1000)
        client.grant(receiver, 1)
        waited = await client.receive(receiver)
        assert state_of(waited.payload) == 2
        await client.settle(waited, Modified(True, True))
        number = Message(waited.payload).annotations().get("x-opt-sequence-number")
        asked: dict[str, Value] = {"sequence-numbers": [number], "receiver-settle-mode": UInt(1)}
        _, body = await client.ask("orders", "receive-by-sequence-number", asked)
    assert isinstance(body, Map)
    messages = body.get("messages")
    assert isinstance(messages, list)
    (entry,) = messages
    assert isinstance(entry, Map)
    deferred = entry.get("message")
    assert isinstance(deferred, bytes)
    assert state_of(deferred) == 1


@pytest.mark.parametrize("sent", [True, False, None])
async def test_first_acquirer_is_delivered_as_sent(emulated: EmulatedNamespace, sent: bool | None) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(emulated) as client:
        header = header_bytes(Header(durable=True, first_acquirer=sent))
        assert await client.send(await client.attach_sender("orders"), header + PAYLOAD) == Accepted()
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        assert Message((await client.receive(receiver)).payload).header().first_acquirer is sent
