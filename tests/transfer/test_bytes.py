"""Every AMQP type and body kind passes byte for byte, those the SDK's own receiver cannot survive included."""

from __future__ import annotations

import uuid

from syphon.amqp import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
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
    Value,
    data_section,
    properties_bytes,
    section_bytes,
)
from syphon.backlog import to_backlog
from syphon.emulator.broker.message import BrokeredMessage
from syphon.transfer.outcomes import Result

from .conftest import BACKLOG, Bench

TYPES: dict[str, Value] = {
    "null": None, "true": True, "ubyte": UByte(255), "ushort": UShort(65535), "uint": UInt(2**32 - 1),
    "ulong": ULong(2**64 - 1), "byte": Byte(-128), "short": Short(-32768), "int": Int(-(2**31)), "long": Long(-(2**63)),
    "float": Float(1.5), "double": 1e300, "decimal32": Decimal32(b"1234"), "decimal64": Decimal64(b"12345678"),
    "decimal128": Decimal128(b"1234567890123456"), "char": Char(0xD800), "timestamp": Timestamp(-62135596800000),
    "uuid": uuid.UUID(int=7), "binary": b"\xff\xfe", "string": "ärger", "symbol": Symbol("sym"),
    "timespan": Described(Symbol("com.microsoft:timespan"), Long(36_000_000_000)),
    "datetime-offset": Described(Symbol("com.microsoft:datetime-offset"), Long(638_000_000_000_000_000)),
    "uri": Described(Symbol("com.microsoft:uri"), "http://example.org/"),
}  # fmt: skip

BODIES: dict[str, bytes] = {
    "data": data_section(b"hello"),
    "empty data": data_section(b""),
    "several data sections": data_section(b"a") + data_section(b"b"),
    "value null": section_bytes(Section.VALUE, None),
    "value false": section_bytes(Section.VALUE, False),
    "value map": section_bytes(Section.VALUE, Map(((Int(1), Decimal128(bytes(16))), (True, None)))),
    "value array": section_bytes(Section.VALUE, Array(0x81, (Long(1), Long(2)))),
    "sequences": section_bytes(Section.SEQUENCE, [Int(1), "x"]) + section_bytes(Section.SEQUENCE, []),
    "with a footer": data_section(b"f") + section_bytes(Section.FOOTER, Map.symbols({"hash": b"\x00"})),
}


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


def test_every_type_and_body_arrives_byte_for_byte(bench: Bench) -> None:  # M2, D1
    bench.queue("orders")
    sent = messages()

    def put() -> None:
        line = bench.secondary.line(BACKLOG)
        line.enqueue([BrokeredMessage.parse(to_backlog(payload, "orders")) for payload in sent.values()])

    bench.emulator.call(put)
    pump, outcomes = bench.run()
    arrived = bench.emulator.call(lambda: [found.bare for found in bench.primary.line("orders").peek(0, 250)])
    assert pump.tally.forwarded == len(sent) == len(arrived)
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    expected = {Message(payload).bare(): name for name, payload in sent.items()}
    assert {expected.get(bare, bare.hex()) for bare in arrived} == set(sent)
