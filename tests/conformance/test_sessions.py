"""Sessions: who holds them, in which order their messages come, and their state."""

from __future__ import annotations

from datetime import timedelta

from syphon.amqp import Map, Message
from syphon.amqp.frames import Accepted, Detach, Source
from tests.conformance.comparison import Comparison
from tests.conformance.target import Entities, Target
from tests.conformance.wire import (
    PAYLOAD,
    accept_session,
    attach_receiver,
    body_of,
    condition_of,
    in_session,
    outcome_of,
    put,
    take,
)


async def test_a_session_has_one_receiver(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("sessions")
    queue = entities.queue("chats", requires_session=True)
    async with target.primary.raw() as client, target.primary.raw() as other:
        await accept_session(client, queue, "a")
        refused = await condition_of(accept_session(other, queue, "a"))
        behaviour.same("a second receiver", refused, "com.microsoft:session-cannot-be-locked")
        refused = await condition_of(attach_receiver(other, Source(queue)))
        behaviour.same("a receiver without a session", refused, "amqp:not-allowed")
        sender = await client.attach_sender(queue)
        outcome = outcome_of(await client.send(sender, PAYLOAD))
        behaviour.same("a message without a session", outcome, "amqp:not-allowed")


async def test_messages_of_a_session_keep_their_order(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    target.need("sessions")
    queue = entities.queue("chats", requires_session=True)
    async with target.primary.raw() as client:
        await put(client, queue, in_session("a", b"1"), in_session("b", b"2"), in_session("a", b"3"))
        handle = await accept_session(client, queue, "a")
        client.grant(handle, 2)
        arrivals = [await client.receive(handle) for _ in range(2)]
        for arrival in arrivals:
            await client.settle(arrival, Accepted())
    found = [body_of(Message(arrival.payload)) for arrival in arrivals]
    behaviour.same("bodies", found, [b"1", b"3"])


async def test_the_state_of_a_session(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("sessions")
    queue = entities.queue("chats", requires_session=True)
    async with target.primary.raw() as client:
        await accept_session(client, queue, "a")
        found = []
        for state in (b"half", None):
            await client.ask(queue, "set-session-state", {"session-id": "a", "session-state": state})
            _, body = await client.ask(queue, "get-session-state", {"session-id": "a"})
            found.append(body.get("session-state") if isinstance(body, Map) else body)
    behaviour.same("state", found, [b"half", None])


async def test_a_session_whose_lock_expires(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("sessions")
    queue = entities.queue("chats", requires_session=True, lock_duration=timedelta(seconds=5))
    async with target.primary.raw() as client, target.primary.raw() as other:
        await put(client, queue, in_session("a"))
        handle = await accept_session(client, queue, "a")
        client.grant(handle, 1)
        await client.receive(handle)
        await target.pass_time(7)
        ended = await condition_of(client.next(Detach))
        behaviour.same("the link is detached with", ended, "com.microsoft:session-lock-lost")
        again = await accept_session(other, queue, "a")
        other.grant(again, 1)
        message = Message((await other.receive(again)).payload)
        behaviour.same("delivery count", message.header().delivery_count, 1)
        properties, _ = await client.ask(queue, "renew-session-lock", {"session-id": "a"})
        behaviour.same("renewal", properties.get("errorCondition"), "com.microsoft:session-lock-lost")


async def test_a_subscription_of_sessions(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("sessions", "topics")
    topic = entities.topic()
    path = entities.subscription(topic, requires_session=True)
    async with target.primary.raw() as client:
        await put(client, topic)
        letter = Message((await take(client, f"{path}/$DeadLetterQueue")).payload)
        reason = letter.application_properties().get("DeadLetterReason")
        behaviour.same("reason for a message without a session", reason, "Session ID is null")
