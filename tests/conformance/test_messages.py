"""What becomes of a message between its sender and its receiver."""

from __future__ import annotations

import pytest

from syphon.amqp import (
    Int,
    Map,
    Message,
    Properties,
    Section,
    Symbol,
    UByte,
    UInt,
    data_section,
    properties_bytes,
    section_bytes,
)
from syphon.amqp.frames import BATCH_FORMAT, Accepted, Error, Modified, Rejected, Released
from syphon.amqp.sections import Header, header_bytes
from syphon.emulator.broker.message import dotnet_decimal
from tests.conformance.comparison import Comparison
from tests.conformance.target import Entities, Target
from tests.conformance.wire import (
    PAYLOAD,
    annotated,
    annotation,
    body_of,
    condition_of,
    deferred,
    lock_of,
    number_of,
    outcome_of,
    peeked,
    put,
    scheduled,
    take,
)
from tests.support.property_kinds import BODIES, TYPES

LOCKED = [0x70, 0x71, 0x72, 0x73, 0x75]


async def test_a_locked_message_names_its_lock(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    async with target.primary.raw() as client:
        await put(client, queue)
        arrival = await take(client, queue)
    message = Message(arrival.payload)
    behaviour.same("sections", [int(span.section) for span in message.spans], LOCKED)
    lock = Map(((Symbol("x-opt-lock-token"), lock_of(arrival)),))
    behaviour.same("delivery annotations name the lock", message.read(Section.DELIVERY_ANNOTATIONS), lock)
    behaviour.same("the state of an active message", annotation(message, "x-opt-message-state"), None)
    names = sorted(str(name) for name, _ in message.annotations())
    broker = ["x-opt-enqueued-time", "x-opt-locked-until", "x-opt-sequence-number"]
    behaviour.same("annotations of the broker", names, broker)


async def test_a_message_that_is_deleted_on_receipt_has_no_lock(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    queue = entities.queue()
    async with target.primary.raw() as client:
        await put(client, queue)
        arrival = await take(client, queue, deletes=True)
        message = Message(arrival.payload)
        behaviour.same("delivery tag", arrival.tag, b"")
        behaviour.same("delivery annotations", message.raw(Section.DELIVERY_ANNOTATIONS), b"\x00\x53\x71\xc1\x01\x00")
        behaviour.same("left", len(await peeked(client, queue)), 0)


async def test_delivery_annotations_of_the_sender_arrive(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    queue = entities.queue()
    mine = Symbol("hop"), Int(1)
    async with target.primary.raw() as client:
        await put(client, queue, section_bytes(Section.DELIVERY_ANNOTATIONS, Map((mine,))) + PAYLOAD)
        found = Message((await take(client, queue)).payload).read(Section.DELIVERY_ANNOTATIONS)
    assert isinstance(found, Map)
    behaviour.same("an annotation of the sender", found.get("hop"), 1)


async def test_application_properties_of_every_type(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:  # M2
    queue = entities.queue()
    async with target.primary.raw() as client:
        sender = await client.attach_sender(queue)
        receiver = await client.attach_receiver(queue, deletes=True)
        for kind, value in TYPES.items():
            sent = section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"p": value}))
            outcome = outcome_of(await client.send(sender, sent + data_section(b"x")))
            behaviour.same(f"{kind} is", outcome, "accepted")
            if outcome == "accepted":
                client.grant(receiver, 1)
                found = Message((await client.receive(receiver)).payload).raw(Section.APPLICATION_PROPERTIES)
                expected = sent if kind != "decimal128" else sent[:-16] + dotnet_decimal(sent[-16:])
                behaviour.same(f"{kind} arrives as", found, expected)


async def test_bodies_of_every_kind(target: Target, entities: Entities, behaviour: Comparison) -> None:  # M2
    queue = entities.queue()
    head = properties_bytes(Properties(message_id="m"))
    async with target.primary.raw() as client:
        sender = await client.attach_sender(queue)
        receiver = await client.attach_receiver(queue, deletes=True)
        for kind, body in BODIES.items():
            outcome = outcome_of(await client.send(sender, head + body))
            behaviour.same(f"{kind} is", outcome, "accepted")
            if outcome == "accepted":
                client.grant(receiver, 1)
                payload = (await client.receive(receiver)).payload
                behaviour.same(f"{kind} arrives as", payload[-len(head + body) :], head + body)


@pytest.mark.parametrize("sent", [True, False, None])
async def test_the_header_of_the_sender(
    target: Target, entities: Entities, behaviour: Comparison, sent: bool | None
) -> None:
    queue = entities.queue()
    header = header_bytes(Header(durable=True, priority=UByte(7), ttl=UInt(60_000), first_acquirer=sent))
    async with target.primary.raw() as client:
        await put(client, queue, header + PAYLOAD)
        found = Message((await take(client, queue)).payload).header()
    behaviour.same("first-acquirer", found.first_acquirer, sent)
    behaviour.same("durable, priority, ttl", (found.durable, found.priority, found.ttl), (True, 7, 60_000))
    behaviour.same("delivery count", found.delivery_count, 0)


async def test_sections_in_another_order(target: Target, entities: Entities, behaviour: Comparison) -> None:  # M8
    queue = entities.queue()
    named = Properties(message_id="m")
    footer = section_bytes(Section.FOOTER, Map(((Symbol("sum"), Int(3)),)))
    async with target.primary.raw() as client:
        sender = await client.attach_sender(queue)
        outcome = outcome_of(await client.send(sender, footer + data_section(b"body") + properties_bytes(named)))
        behaviour.same("a footer before the body is", outcome, "accepted")
        if outcome == "accepted":
            spans = Message((await take(client, queue)).payload).spans
            behaviour.same("sections", [int(span.section) for span in spans], [*LOCKED, 0x78])


async def test_settling(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue(max_delivery_count=2)
    async with target.primary.raw() as client:
        await put(client, queue)
        receiver = await client.attach_receiver(queue)
        counts = []
        for outcome in (Released(), Modified(True), Modified(True)):
            client.grant(receiver, 1)
            arrival = await client.receive(receiver)
            counts.append(Message(arrival.payload).header().delivery_count)
            echo = outcome_of(await client.settle(arrival, outcome))
            behaviour.same(f"echo to {type(outcome).__name__}", echo, type(outcome).__name__.lower())
        behaviour.same("delivery counts", counts, [0, 0, 1])
        letter = await take(client, f"{queue}/$DeadLetterQueue")
        reasons = Message(letter.payload).application_properties()
        behaviour.same("reason", reasons.get("DeadLetterReason"), "MaxDeliveryCountExceeded")
        behaviour.same("delivery count of the letter", Message(letter.payload).header().delivery_count, 2)
        await client.settle(letter, Accepted())


async def test_a_message_is_dead_lettered_with_a_reason(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    queue = entities.queue()
    why = Map(((Symbol("DeadLetterReason"), "broken"), (Symbol("DeadLetterErrorDescription"), "really")))
    async with target.primary.raw() as client:
        await put(client, queue)
        await client.settle(await take(client, queue), Rejected(Error("com.microsoft:dead-letter", None, why)))
        message = Message((await take(client, f"{queue}/$DeadLetterQueue")).payload)
        reasons = {str(name): value for name, value in message.application_properties()}
        expected = {"DeadLetterReason": "broken", "DeadLetterErrorDescription": "really"}
        behaviour.same("application properties", reasons, expected)
        behaviour.same("delivery count", message.header().delivery_count, 0)


async def test_a_deferred_message(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    async with target.primary.raw() as client:
        await put(client, queue)
        arrival = await take(client, queue)
        number = number_of(Message(arrival.payload))
        await client.settle(arrival, Modified(True, True))
        (seen,) = await peeked(client, queue)
        behaviour.same("state when it is peeked", annotation(seen, "x-opt-message-state"), 1)
        (found,) = await deferred(client, queue, number)
        behaviour.same("state when it is received", annotation(found, "x-opt-message-state"), 1)
        lock = found.read(Section.DELIVERY_ANNOTATIONS)
        behaviour.same("its lock", isinstance(lock, Map) and "x-opt-lock-token" in lock, True)


async def test_a_scheduled_message(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    async with target.primary.raw() as client:
        await put(client, queue, scheduled(target.now() - 60))
        past = Message((await take(client, queue, deletes=True)).payload)
        behaviour.same("state if its time had come", annotation(past, "x-opt-message-state"), None)
        await put(client, queue, scheduled(target.now() + 5))
        (waiting,) = await peeked(client, queue)
        behaviour.same("state while it waits", annotation(waiting, "x-opt-message-state"), 2)
        await target.pass_time(6)
        behaviour.same("body", body_of(Message((await take(client, queue)).payload)), b"body")


async def test_duplicates(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("duplicate detection")
    queue = entities.queue(requires_duplicate_detection=True)
    async with target.primary.raw() as client:
        sender = await client.attach_sender(queue)
        outcomes = [outcome_of(await client.send(sender, PAYLOAD)) for _ in range(2)]
        behaviour.same("outcomes", outcomes, ["accepted", "accepted"])
        behaviour.same("kept", len(await peeked(client, queue)), 1)


async def test_a_batch(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    async with target.primary.raw() as client:
        sender = await client.attach_sender(queue)
        batch = b"".join(data_section(PAYLOAD) for _ in range(3))
        behaviour.same("outcome", outcome_of(await client.send(sender, batch, BATCH_FORMAT)), "accepted")
        behaviour.same("kept", len(await peeked(client, queue)), 3)


async def test_a_message_that_is_too_large(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    async with target.primary.raw() as client:
        sender = await client.attach_sender(queue)
        payload = data_section(b"x" * (2 * 1024 * 1024 if target.primary.tier == "Premium" else 300 * 1024))
        found = await condition_of(client.send(sender, payload))
    behaviour.same("the link is detached with", found, "amqp:link:message-size-exceeded")


async def test_partition_keys(target: Target, entities: Entities, behaviour: Comparison) -> None:  # S8
    target.need("partitions")
    queue = entities.queue(enable_partitioning=True)
    async with target.primary.raw() as client:
        sender = await client.attach_sender(queue)
        for key in ("k", b"k"):
            outcome = outcome_of(await client.send(sender, annotated(x_opt_partition_key=key)))
            behaviour.same(f"a key {key!r} is", outcome, "accepted")
        numbers = [number_of(message) for message in await peeked(client, queue)]
        partitions = {int(number) >> 48 for number in numbers if isinstance(number, int)}
        behaviour.same("partitions of text and binary with the same letters", len(partitions), 1)


async def test_a_lost_lock(target: Target, entities: Entities, behaviour: Comparison) -> None:
    from datetime import timedelta

    queue = entities.queue(lock_duration=timedelta(seconds=5))
    async with target.primary.raw() as client:
        await put(client, queue)
        arrival = await take(client, queue)
        await target.pass_time(7)
        echo = outcome_of(await client.settle(arrival, Accepted()))
        behaviour.same("echo to a late complete", echo, "com.microsoft:message-lock-lost")
        again = Message((await take(client, queue)).payload)
        behaviour.same("delivery count", again.header().delivery_count, 1)
