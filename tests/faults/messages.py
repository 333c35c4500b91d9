"""Messages of many kinds, generated from a seed: as their senders made them, and as they are in the backlog."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from syphon.amqp import (
    Header,
    Int,
    Map,
    Properties,
    Section,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    Value,
    data_section,
    encode,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.backlog import to_backlog
from tests.support.property_kinds import BODIES, TYPES

ORDERS, ONCE, SESSIONS, EVENTS = "orders", "billing/once", "sessions", "events"
"""A plain queue, one that detects duplicates, one that requires sessions, and a topic."""
DESTINATIONS = (ORDERS, ONCE, SESSIONS, EVENTS)
HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Input:
    """A message that goes into the backlog."""

    identity: bytes
    """Its message id, type included."""
    destination: str
    original: bytes
    """The message as its sender made it, and as it must arrive."""
    backlogged: bytes
    """The message as it was put into the backlog, and as it must be found there or among the dead letters."""


def made(destination: str, original: bytes, message_id: Value) -> Input:
    """The input that a sender's failover makes of a message."""
    return Input(encode(message_id), destination, original, to_backlog(original, destination))


def plain(number: int, destination: str, body: bytes = b"", session: str | None = None) -> Input:
    """An ordinary message."""
    message_id = f"plain-{number}"
    properties = properties_bytes(Properties(message_id=message_id, group_id=session))
    return made(destination, properties + data_section(body or f"body of {number}".encode()), message_id)


def mixed(rng: random.Random, count: int, destinations: Sequence[str] = DESTINATIONS, first: int = 0) -> list[Input]:
    """Messages of all kinds that a sender can make, for any of the destinations."""
    now = time.time_ns() // 1_000_000
    return [_any(rng, number, rng.choice(destinations), now) for number in range(first, first + count)]


def _any(rng: random.Random, number: int, destination: str, now: int) -> Input:
    message_id = _identity(rng, number)
    session = f"session {rng.randrange(4)}" if destination == SESSIONS or rng.random() < 0.2 else None
    properties = Properties(
        message_id=message_id,
        group_id=session,
        subject=rng.choice([None, "subject"]),
        correlation_id=rng.choice([None, "text", ULong(number), uuid.UUID(int=number)]),
        content_type=Symbol("application/json") if rng.random() < 0.3 else None,
        reply_to=rng.choice([None, "replies"]),
        group_sequence=UInt(number) if session is not None else None,
    )
    annotations: dict[str, Value] = {}
    if destination != EVENTS and rng.random() < 0.1:  # scheduled messages of a topic cannot be peeked at
        annotations["x-opt-scheduled-enqueue-time"] = Timestamp(now + HOUR + number)
    if session is None and rng.random() < 0.1:
        annotations["x-opt-partition-key"] = "key"
    if rng.random() < 0.2:
        annotations["ours"] = rng.choice(list(TYPES.values()))
    names = rng.sample(sorted(TYPES), rng.randrange(5))
    application = Map.of({name: TYPES[name] for name in names})
    time_to_live = UInt(HOUR + number) if rng.random() < 0.2 else None
    original = b"".join(
        (
            header_bytes(Header(True, None, time_to_live)) if time_to_live is not None else b"",
            section_bytes(Section.MESSAGE_ANNOTATIONS, Map.symbols(annotations)) if annotations else b"",
            properties_bytes(properties),
            section_bytes(Section.APPLICATION_PROPERTIES, application) if names else b"",
            rng.choice(list(BODIES.values()))
            if rng.random() < 0.5
            else data_section(rng.randbytes(rng.randrange(2000))),
        )
    )
    return made(destination, original, message_id)


def _identity(rng: random.Random, number: int) -> Value:
    kinds: list[Value] = [f"text-{number}", ULong(number), uuid.UUID(int=number), b"bytes-%d" % number]
    return kinds[0] if rng.random() < 0.7 else rng.choice(kinds)


def every_kind() -> list[Input]:
    """Each type of property with each kind of body, for each destination in turn, and each type of message id."""
    identities: list[Value] = [ULong(2**64 - 1), uuid.UUID(int=2**128 - 1), b"\x00\xff", "ärger"]
    found = [_with(identity, Int(1), data_section(b""), ORDERS) for identity in identities]
    kinds = [(name, value, body) for name, value in TYPES.items() for body in BODIES.values()]
    for number, (name, value, body) in enumerate(kinds):
        found.append(_with(f"{name}-{number}", value, body, DESTINATIONS[number % len(DESTINATIONS)]))
    return found


def _with(message_id: Value, value: Value, body: bytes, destination: str) -> Input:
    properties = Properties(message_id=message_id, group_id="s" if destination == SESSIONS else None)
    application = section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"p": value}))
    return made(destination, properties_bytes(properties) + application + body, message_id)


def with_bad_aliases() -> list[Input]:
    """Messages that cannot be restored, because their aliases are invalid (M4)."""
    path: dict[str, Value] = {"x-ms-path": ORDERS}
    aliases: list[dict[str, Value]] = [
        {},
        {"x-ms-path": None},
        {"x-ms-path": ""},
        {"x-ms-path": "  "},
        {"x-ms-path": Int(7)},
        {"x-ms-path": Symbol(ORDERS)},
        {"x-ms-path": b"orders"},
        {"x-ms-path": "x" * 261},
        {"x-ms-path": ["orders"]},
        {"x-ms-path": "orders/$management"},
        {"x-ms-path": "contoso/x-servicebus-transfer/1"},
        {**path, "x-ms-sessionid": Int(7)},
        {**path, "x-ms-sessionid": None},
        {**path, "x-ms-timetolive": "soon"},
        {**path, "x-ms-timetolive": True},
        {**path, "x-ms-timetolive": None},
        {**path, "x-ms-scheduledenqueuetimeutc": "tomorrow"},
        {**path, "x-ms-scheduledenqueuetimeutc": 1.5},
    ]
    found = []
    for number, alias in enumerate(aliases):
        message_id = f"bad-{number}"
        application = section_bytes(Section.APPLICATION_PROPERTIES, Map.of(alias)) if alias else b""
        payload = properties_bytes(Properties(message_id=message_id)) + application + data_section(b"x")
        found.append(Input(encode(message_id), "", b"", payload))
    return found
