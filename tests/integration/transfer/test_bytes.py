"""Every AMQP type and body kind passes byte for byte, also those that crash the SDK's own receiver."""

from __future__ import annotations

import uuid

from syphon.amqp import (
    Map,
    Message,
    Properties,
    Section,
    UInt,
    ULong,
    Value,
    data_section,
    properties_bytes,
    section_bytes,
)
from syphon.backlog import to_backlog
from syphon.emulator.broker.message import BrokeredMessage
from syphon.model.outcomes import Result
from tests.integration.transfer.conftest import BACKLOG, TwoNamespaces
from tests.support.property_kinds import BODIES, TYPES


def messages() -> dict[str, bytes]:
    made = {}
    for name, value in TYPES.items():
        application = section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"p": value}))
        made[f"property {name}"] = properties_bytes(Properties(message_id=name)) + application + data_section(b"x")
    for name, body in BODIES.items():
        made[f"body {name}"] = properties_bytes(Properties(message_id=f"b {name}", group_id="s")) + body
    identities: dict[str, Value] = {"ulong": ULong(7), "uuid": uuid.UUID(int=9), "binary": b"\x00\x01"}
    for name, identity in identities.items():
        properties = Properties(message_id=identity, correlation_id=identity, user_id=b"\x00", group_sequence=UInt(5))
        made[f"message id {name}"] = properties_bytes(properties) + data_section(b"i")
    return made


def test_every_type_and_body_arrives_byte_for_byte(namespaces: TwoNamespaces) -> None:  # M2, D1
    namespaces.queue("orders")
    sent = messages()

    def put() -> None:
        line = namespaces.secondary.message_queue(BACKLOG)
        line.enqueue([BrokeredMessage.parse(to_backlog(payload, "orders")) for payload in sent.values()])

    namespaces.emulator.call(put)
    pump, outcomes = namespaces.run()
    arrived = namespaces.emulator.call(
        lambda: [found.bare for found in namespaces.primary.message_queue("orders").peek(0, 250)]
    )
    assert pump.counters.forwarded == len(sent) == len(arrived)
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    expected = {Message(payload).bare(): name for name, payload in sent.items()}
    assert {expected.get(bare, bare.hex()) for bare in arrived} == set(sent)
