"""Every AMQP type a property can have, and every kind of body: what must pass byte for byte (M2, D1)."""

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
    section_bytes,
)

TYPES: dict[str, Value] = {
    "null": None,
    "true": True,
    "ubyte": UByte(255),
    "ushort": UShort(65535),
    "uint": UInt(2**32 - 1),
    "ulong": ULong(2**64 - 1),
    "byte": Byte(-128),
    "short": Short(-32768),
    "int": Int(-(2**31)),
    "long": Long(-(2**63)),
    "float": Float(1.5),
    "double": 1e300,
    "decimal32": Decimal32(b"1234"),
    "decimal64": Decimal64(b"12345678"),
    "decimal128": Decimal128(b"1234567890123456"),
    "char": Char(0xD800),
    "timestamp": Timestamp(-62135596800000),
    "uuid": uuid.UUID(int=7),
    "binary": b"\xff\xfe",
    "string": "ärger",
    "symbol": Symbol("sym"),
    "timespan": Described(Symbol("com.microsoft:timespan"), Long(36_000_000_000)),
    "datetime-offset": Described(Symbol("com.microsoft:datetime-offset"), Long(638_000_000_000_000_000)),
    "uri": Described(Symbol("com.microsoft:uri"), "http://example.org/"),
}

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
