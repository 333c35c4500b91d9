"""Sending to a queue in every way of the client: the receiver gets what was sent."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from syphon.amqp import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Header,
    Int,
    Long,
    Map,
    Message,
    Properties,
    Section,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    data_section,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.amqp.frames import BATCH_FORMAT, Accepted, Modified, Rejected
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import raw_client
from tests.support.sdk_queue import MOMENT, ORDERS, asynchronous, both, sdk_queue, synchronous, text, texts

PING = "application/vnd.ms-servicebus-ping"


@both
async def test_single_messages_lists_and_batches_arrive_in_the_order_they_were_sent(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.sender.send_messages(ServiceBusMessage("single"))
        await it.sender.send_messages([ServiceBusMessage("list 1"), ServiceBusMessage("list 2")])
        batch = await it.sender.create_message_batch()
        batch.add_message(ServiceBusMessage("batch 1"))
        batch.add_message(ServiceBusMessage("batch 2"))
        await it.sender.send_messages(batch)

        received = await it.take(5)

    assert texts(received) == ["single", "list 1", "list 2", "batch 1", "batch 2"]
    assert [message.sequence_number for message in received] == [1, 2, 3, 4, 5]


@both
async def test_every_property_arrives_as_it_was_sent(emulated: EmulatedNamespace, flavour: str) -> None:
    when = datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC)
    token = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    application: dict[Any, Any] = {"text": "grün", "count": 7, "yes": True, "ratio": 0.25, "when": when, "token": token}
    sent = ServiceBusMessage(
        b"\x00\xffbody",
        application_properties=application,
        session_id="s-1",
        message_id="m-1",
        correlation_id="c-1",
        content_type="text/plain",
        subject="a subject",
        to="some/where",
        reply_to="back/there",
        reply_to_session_id="s-2",
        partition_key="s-1",
        time_to_live=timedelta(minutes=5),
    )
    async with sdk_queue(emulated, flavour) as it:
        await it.sender.send_messages(sent)
        message = await it.take_one()

    assert b"".join(message.body) == b"\x00\xffbody"
    assert (message.message_id, message.session_id, message.correlation_id) == ("m-1", "s-1", "c-1")
    assert (message.content_type, message.subject) == ("text/plain", "a subject")
    assert (message.to, message.reply_to, message.reply_to_session_id) == ("some/where", "back/there", "s-2")
    assert (message.partition_key, message.time_to_live) == ("s-1", timedelta(minutes=5))
    assert message.application_properties == {
        b"text": "grün".encode(),
        b"count": 7,
        b"yes": True,
        b"ratio": 0.25,
        b"when": round(when.timestamp() * 1000),
        b"token": token,
    }


@asynchronous
async def test_the_broker_says_where_a_message_stands(clocked: EmulatedNamespace, flavour: str) -> None:
    assert clocked.clock is not None
    at = datetime.fromtimestamp(clocked.clock.now() / 1000, UTC)
    async with sdk_queue(clocked, flavour) as it:
        await it.sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(hours=1)))
        it.advance(20)
        message = await it.take_one()

    assert message.enqueued_time_utc == at
    assert message.expires_at_utc == at + timedelta(hours=1)
    assert message.locked_until_utc == at + timedelta(seconds=20 + 60)
    assert message.sequence_number == 1
    assert message.delivery_count == 0
    assert message.state is ServiceBusMessageState.ACTIVE
    assert message.dead_letter_source is None
    assert message.dead_letter_reason is None
    assert isinstance(message.lock_token, uuid.UUID)


@both
async def test_annotated_messages_keep_their_kind_of_body_and_all_their_sections(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    properties = AmqpMessageProperties(
        message_id="m-1",
        user_id=b"me",
        to="to",
        subject="subject",
        reply_to="reply",
        correlation_id="c-1",
        content_type="text/plain",
        content_encoding="gzip",
        group_id="g",
        group_sequence=3,
        reply_to_group_id="r",
    )
    everything = AmqpAnnotatedMessage(
        data_body=[b"one", b"two"],
        header=AmqpMessageHeader(durable=True, priority=7, time_to_live=60_000),
        properties=properties,
        application_properties={"key": "value"},
        annotations={"x-own": "mine"},
        footer={"checksum": 12},
    )
    async with sdk_queue(emulated, flavour) as it:
        await it.sender.send_messages(
            [
                everything,
                AmqpAnnotatedMessage(value_body={"a": [1, 2]}),
                AmqpAnnotatedMessage(sequence_body=[[1, "two"], [True]]),
            ]
        )
        data, value, sequence = (message.raw_amqp_message for message in await it.take(3))

    assert (data.body_type, value.body_type, sequence.body_type) == (
        AmqpMessageBodyType.DATA,
        AmqpMessageBodyType.VALUE,
        AmqpMessageBodyType.SEQUENCE,
    )
    assert list(data.body) == [b"one", b"two"]
    assert value.body == {b"a": [1, 2]}
    assert list(sequence.body) == [[1, b"two"], [True]]
    assert data.header is not None
    assert (data.header.durable, data.header.priority, data.header.time_to_live) == (True, 7, 60_000)
    assert data.properties is not None
    # All but the two times, which the SDK writes for a message with a time to live. Received text is bytes to it.
    times = ("creation_time", "absolute_expiry_time")
    arrived = {name: value for name, value in data.properties.items() if name not in times}
    assert arrived == {
        "message_id": b"m-1",
        "user_id": b"me",
        "to": b"to",
        "subject": b"subject",
        "reply_to": b"reply",
        "correlation_id": b"c-1",
        "content_type": b"text/plain",
        "content_encoding": b"gzip",
        "group_id": b"g",
        "group_sequence": 3,
        "reply_to_group_id": b"r",
    }
    assert data.application_properties == {b"key": b"value"}
    assert data.annotations is not None
    assert data.annotations[b"x-own"] == b"mine"
    assert data.footer == {b"checksum": 12}


ODD_VALUES = Map(
    (
        ("null", None),
        ("ubyte", UByte(200)),
        ("ushort", UShort(60_000)),
        ("uint", UInt(1 << 31)),
        ("ulong", ULong(1 << 63)),
        ("byte", Byte(-3)),
        ("short", Short(-300)),
        ("int", Int(-5)),
        ("long", Long(-(1 << 40))),
        ("float", Float(0.5)),
        ("double", 1e300),
        ("decimal32", Decimal32(b"\x01\x02\x03\x04")),
        ("decimal64", Decimal64(bytes(range(8)))),
        ("decimal128", Decimal128(bytes(range(16)))),
        ("char", Char(0x1F600)),
        ("timestamp", Timestamp(-1)),
        ("uuid", uuid.UUID(int=7)),
        ("binary", b"\xff\xfe"),
        ("symbol", Symbol("sym")),
        ("timespan", Described(Symbol("com.microsoft:timespan"), Long(77))),
        ("array", Array(0x71, (Int(1), Int(2)))),
    )
)
ODD = b"".join(
    (
        properties_bytes(Properties(message_id=ULong(9), user_id=b"\xff", correlation_id=uuid.UUID(int=3))),
        section_bytes(Section.APPLICATION_PROPERTIES, ODD_VALUES),
        section_bytes(Section.VALUE, Described(ULong(1 << 60), [ODD_VALUES, Array(0x83, (Timestamp(5),))])),
        section_bytes(Section.FOOTER, Map(((Symbol("f"), Decimal128(bytes(16))),))),
    )
)


async def test_values_of_every_type_arrive_byte_for_byte_however_often_the_message_is_handed_out(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        assert await client.send(sender, ODD) == Accepted()
        batch = data_section(ODD) + data_section(b"\x00\x53\x75\xa0\x01x")
        assert await client.send(sender, batch, BATCH_FORMAT) == Accepted()

        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 3)
        first, second, plain = [await client.receive(receiver) for _ in range(3)]
        assert Message(first.payload).bare() == ODD
        assert Message(second.payload).bare() == ODD
        # A message without an id is given one; all else stays.
        assert len(str(Message(plain.payload).properties().message_id)) == 32
        assert Message(plain.payload).replace(Section.PROPERTIES, b"").endswith(b"\x00\x53\x75\xa0\x01x")

        await client.settle(first, Modified(delivery_failed=True))
        client.grant(receiver, 1)
        again = await client.receive(receiver)
        assert Message(again.payload).bare() == ODD
        await client.settle(again, Rejected())
        letters = await client.attach_receiver("orders/$DeadLetterQueue")
        client.grant(letters, 1)
        assert Message((await client.receive(letters)).payload).bare() == ODD


async def test_header_and_annotations_of_the_sender_stay_beside_the_brokers_own(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(ORDERS)
    odd = Map(((Symbol("x-own"), Decimal64(bytes(8))), (Symbol("x-opt-sequence-number"), Long(99))))
    payload = b"".join(
        (
            header_bytes(Header(durable=True, priority=UByte(9), ttl=UInt(5000), delivery_count=UInt(44))),
            section_bytes(
                Section.DELIVERY_ANNOTATIONS, Map(((Symbol("x-opt-lock-token"), uuid.uuid4()), (Symbol("hop"), 1.0)))
            ),
            section_bytes(Section.MESSAGE_ANNOTATIONS, odd),
            data_section(b"body"),
        )
    )
    async with raw_client(emulated) as client:
        assert await client.send(await client.attach_sender("orders"), payload) == Accepted()
        receiver = await client.attach_receiver("orders")
        client.grant(receiver, 1)
        message = Message((await client.receive(receiver)).payload)

    header = message.header()
    assert (header.durable, header.priority, header.ttl, header.delivery_count) == (True, 9, 5000, 0)
    assert message.annotations().get("x-own") == Decimal64(bytes(8))
    assert message.annotations().get("x-opt-sequence-number") == Long(1)  # a forged one counts for nothing
    delivery_annotations = message.read(Section.DELIVERY_ANNOTATIONS)
    assert isinstance(delivery_annotations, Map)
    assert delivery_annotations.get("hop") == 1.0
    assert [str(key) for key, _ in delivery_annotations] == ["hop", "x-opt-lock-token"]


async def test_bytes_that_are_no_message_are_refused_and_the_link_lives_on(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(ORDERS)
    async with raw_client(emulated) as client:
        sender = await client.attach_sender("orders")
        assert (await client.refusal_of(sender, b"\x00\x53\x75\xa0\xff")).condition == "amqp:decode-error"
        batch = data_section(data_section(b"good")) + data_section(b"bad")
        assert (await client.refusal_of(sender, batch, BATCH_FORMAT)).condition == "amqp:decode-error"
        assert await client.send(sender, data_section(b"good")) == Accepted()
    assert len(emulated.namespace.message_queue("orders")) == 1  # nothing of the batch


@synchronous
async def test_a_ping_is_accepted_and_never_delivered(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_queue(emulated, flavour) as it:
        await it.sender.send_messages(ServiceBusMessage(b"", content_type=PING, session_id="any"))
        await it.sender.send_messages([ServiceBusMessage("real"), ServiceBusMessage(b"", content_type=PING)])
        assert texts(await it.receiver.peek_messages(10)) == ["real"]
        assert text(await it.take_one()) == "real"
        assert await it.receiver.receive_messages(max_wait_time=MOMENT) == []
        assert it.stored() == 1


@both
async def test_a_queue_that_does_not_exist_is_not_found_by_senders_and_receivers(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        emulated.namespace.delete("orders")
        refusals = await asyncio.gather(it.open_sender(), it.open_receiver(), return_exceptions=True)
    # The service refuses the token for it, and the client calls that a failed authentication.
    assert [type(refusal) for refusal in refusals] == [ServiceBusAuthenticationError] * 2
    assert all("404" in str(refusal.inner_exception) for refusal in refusals if isinstance(refusal, AzureError))


@pytest.mark.parametrize("price", ["12.50", "-0.000001", "4294967295", "0"])
@both
async def test_a_client_can_read_the_decimal_that_it_sent(
    emulated: EmulatedNamespace, flavour: str, price: str
) -> None:
    async with sdk_queue(emulated, flavour) as it:
        properties: Any = {"price": Decimal(price), "colour": "red"}  # a Decimal works, and its type does not say so
        await it.sender.send_messages(ServiceBusMessage("x", application_properties=properties))
        message = await it.take_one()
    assert message.application_properties == {b"price": Decimal(price), b"colour": b"red"}
