"""Steps on the wire that several tests of the suite share."""

from __future__ import annotations

from uuid import UUID

from syphon.amqp import (
    Array,
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
from syphon.amqp.frames import Accepted, Attach, Composite, Detach, Rejected, Source, Target, TransactionalState
from tests.support.raw_client import Arrival, LinkEnded, RawClient

PAYLOAD = properties_bytes(Properties(message_id="m")) + data_section(b"body")


def annotated(payload: bytes = PAYLOAD, **annotations: Value) -> bytes:
    """A message with message annotations: `x_opt_partition_key` is `x-opt-partition-key`."""
    named = Map(tuple((Symbol(name.replace("_", "-")), value) for name, value in annotations.items()))
    return section_bytes(Section.MESSAGE_ANNOTATIONS, named) + payload


def scheduled(seconds: float) -> bytes:
    return annotated(x_opt_scheduled_enqueue_time=Timestamp(round(seconds * 1000)))


def in_session(name: str, body: bytes = b"body") -> bytes:
    return properties_bytes(Properties(message_id=body.decode(), group_id=name)) + data_section(body)


def outcome_of(outcome: Composite | None) -> str:
    """An outcome as text: the condition of a refusal."""
    if isinstance(outcome, TransactionalState):
        outcome = outcome.outcome if isinstance(outcome.outcome, Composite) else None
    if isinstance(outcome, Rejected):
        return str(outcome.error.condition) if outcome.error is not None else "rejected"
    return type(outcome).__name__.lower()


async def put(client: RawClient, address: str, *payloads: bytes) -> None:
    """Sends messages, which have to be accepted."""
    sender = await client.attach_sender(address)
    for payload in payloads or (PAYLOAD,):
        outcome = await client.send(sender, payload)
        assert outcome == Accepted(), outcome


async def take(client: RawClient, address: str, *, deletes: bool = False) -> Arrival:
    """Receives one message over a link of its own, which stays open."""
    receiver = await client.attach_receiver(address, deletes)
    client.grant(receiver, 1)
    return await client.receive(receiver)


async def accept_session(client: RawClient, queue: str, name: str | None, *, deletes: bool = False) -> int:
    """Attaches a receiver of a session and returns its handle."""
    handle = next(client._handles)
    wanted = Map(((Symbol("com.microsoft:session-filter"), name),))
    modes = (1, 0) if deletes else (0, 1)
    source = Source(queue, filter=wanted)
    client.post(Attach(f"session-{handle}", handle, True, *modes, source=source, target=Target("raw")))
    await attached(client)
    return handle


async def attach_receiver(client: RawClient, source: Source) -> int:
    handle = next(client._handles)
    client.post(Attach(f"receiver-{handle}", handle, True, 0, 1, source=source, target=Target("raw")))
    await attached(client)
    return handle


async def attached(client: RawClient) -> Attach:
    """The answer to an attach. A link that is refused is answered without a source or target, and then detached."""
    answer, _ = await client.next(Attach)
    if answer.source is None or answer.target is None:
        await client.next(Detach)
    return answer


async def condition_of(attach: object) -> str:
    """The condition with which a link is refused, or that it is attached."""
    try:
        await attach  # type: ignore[misc]
    except LinkEnded as ended:
        return str(ended.condition)
    return "attached"


async def peeked(client: RawClient, entity: str, count: int = 100) -> list[Message]:
    asked: dict[str, Value] = {"from-sequence-number": Long(0), "message-count": Int(count)}
    properties, body = await client.ask(entity, "peek-message", asked)
    return messages_in(body) if properties.get("statusCode") == 200 else []


async def deferred(client: RawClient, entity: str, number: Value) -> list[Message]:
    """Receives a deferred message by its sequence number."""
    asked: dict[str, Value] = {"sequence-numbers": Array(0x81, (number,)), "receiver-settle-mode": UInt(1)}
    return messages_in((await client.ask(entity, "receive-by-sequence-number", asked))[1])


def messages_in(body: Value) -> list[Message]:
    assert isinstance(body, Map), body
    found = body.get("messages")
    assert isinstance(found, list), found
    payloads = [each.get("message") for each in found if isinstance(each, Map)]
    return [Message(payload) for payload in payloads if isinstance(payload, bytes)]


def annotation(message: Message, name: str) -> Value:
    return message.annotations().get(name)


def number_of(message: Message) -> Value:
    return annotation(message, "x-opt-sequence-number")


def body_of(message: Message) -> Value:
    return message.read(Section.DATA)


def lock_of(arrival: Arrival) -> UUID:
    return UUID(bytes_le=arrival.tag)
