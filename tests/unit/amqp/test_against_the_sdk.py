"""Our codec and that of azure-servicebus read each other's bytes."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pytest
from azure.servicebus._pyamqp import endpoints, error, message, outcomes, performatives
from azure.servicebus._pyamqp._decode import _DECODE_BY_CONSTRUCTOR, decode_frame, decode_payload
from azure.servicebus._pyamqp._encode import encode_frame, encode_payload, encode_value
from azure.servicebus._pyamqp.types import AMQPTypes
from hypothesis import assume, given
from hypothesis import strategies as st

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
    Value,
    batch_parts,
    data_section,
    decode,
    encode,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.amqp.frames import (
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    frame,
    read_performative,
)
from tests.support.amqp_equality import assert_same
from tests.support.amqp_strategies import arrays_of, examples, scalars
from tests.support.amqp_vectors import VECTORS

# --- values ----------------------------------------------------------------------------------------------------------

UNKNOWN_TO_IT = (Char, Decimal32, Decimal64, Decimal128)
"""Types that the SDK cannot decode, or decodes as a number and not as bytes."""


def sdk_decode(data: bytes) -> tuple[Any, int]:
    """The value that the SDK reads at the start of some bytes, and where it stopped."""
    rest, value = _DECODE_BY_CONSTRUCTOR[data[0]](memoryview(data)[1:])
    return value, len(data) - len(rest)


def plain(value: Value) -> Any:
    """A value with as little type information as the SDK keeps."""
    match value:
        case None | bool() | uuid.UUID() | bytes():
            return value
        case str():
            return value.encode()
        case int():
            return int(value)
        case float():
            return "nan" if math.isnan(value) else float(value)
        case list():
            return [plain(item) for item in value]
        case Map():
            return {plain(key): plain(item) for key, item in value}
        case Array():
            return [plain(item) for item in value.items]
        case Described():
            return plain(value.value)


def comparable(value: Any) -> Any:
    """The value that the SDK read, with NaN made equal to itself."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {comparable(key): comparable(item) for key, item in value.items()}
    return value


def knows(value: Value) -> bool:
    match value:
        case list():
            return all(map(knows, value))
        case Map():
            return all(knows(key) and knows(item) and not isinstance(key, (list, Map, Array)) for key, item in value)
        case Array():
            # The SDK does not read the constructor of an empty array, and takes it for the next value.
            return value.items != () and not value.described and all(map(knows, value.items))
        case Described():
            # The SDK uses the descriptor as a name, so it must be hashable and not null.
            return isinstance(value.descriptor, (ULong, Symbol)) and isinstance(value.value, (list, bytes))
        case _:
            return not isinstance(value, UNKNOWN_TO_IT)


COMMON = [pytest.param(bytes.fromhex(raw), value, id=name) for name, raw, value in VECTORS if knows(value)]


@pytest.mark.parametrize(("raw", "value"), COMMON)
def test_the_sdk_reads_the_vectors_as_we_do(raw: bytes, value: Value) -> None:
    read, end = sdk_decode(raw)
    assert end == len(raw)
    assert comparable(read) == plain(value)
    assert type(read) is type(plain(value)) or isinstance(value, (Described, float))


_simple = scalars.filter(knows)
_keys = st.text(max_size=5)
_arrays = [arrays_of(code).filter(knows) for code in (0x50, 0x70, 0x81, 0x82, 0x83, 0x98, 0xA0, 0xB1, 0xA3, 0x56, 0xE0)]
_nested = st.recursive(
    _simple,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(_keys, inner, max_size=3).map(Map.of),
        st.sampled_from(_arrays).flatmap(lambda known: known),
    ),
    max_leaves=6,
)


@given(_nested)
@examples(120)
def test_the_sdk_reads_what_we_write(value: Value) -> None:
    data = encode(value)
    read, end = sdk_decode(data)
    assert end == len(data)
    assert comparable(read) == plain(value)


def sdk_encode(kind: str | None, value: object) -> bytes:
    output = bytearray()
    encode_value(output, {"TYPE": kind, "VALUE": value})
    return bytes(output)


SDK_TYPES: dict[type, str] = {
    UByte: AMQPTypes.ubyte,
    UShort: AMQPTypes.ushort,
    UInt: AMQPTypes.uint,
    ULong: AMQPTypes.ulong,
    Byte: AMQPTypes.byte,
    Short: AMQPTypes.short,
    Int: AMQPTypes.int,
    Long: AMQPTypes.long,
    Float: AMQPTypes.float,
    float: AMQPTypes.double,
    bool: AMQPTypes.boolean,
    Timestamp: AMQPTypes.timestamp,
    uuid.UUID: AMQPTypes.uuid,
    bytes: AMQPTypes.binary,
    str: AMQPTypes.string,
    Symbol: AMQPTypes.symbol,
    type(None): AMQPTypes.null,
}


@given(_simple)
@examples(200)
def test_we_read_what_the_sdk_writes_with_the_type_it_was_given(value: Value) -> None:
    data = sdk_encode(SDK_TYPES[type(value)], value)
    read, end = decode(data)
    assert_same(read, value)
    assert end == len(data)


@given(st.lists(_simple, max_size=5), st.dictionaries(_keys, _simple, max_size=4))
@examples(60)
def test_we_read_the_lists_and_maps_that_the_sdk_writes(items: list[Value], pairs: dict[str, Value]) -> None:
    typed = [{"TYPE": SDK_TYPES[type(item)], "VALUE": item} for item in items]
    assert_same(decode(sdk_encode(AMQPTypes.list, typed))[0], items)
    entries = {key: {"TYPE": SDK_TYPES[type(item)], "VALUE": item} for key, item in pairs.items()}
    assert_same(decode(sdk_encode(AMQPTypes.map, entries))[0], Map.of(pairs))


_arrays_of_the_sdk = st.sampled_from(
    [0x50, 0x60, 0x70, 0x80, 0x51, 0x61, 0x71, 0x81, 0x82, 0x83, 0x98, 0xB0, 0xB1, 0xB3]
).flatmap(arrays_of)


@given(_arrays_of_the_sdk)
@examples(100)
def test_we_read_the_arrays_that_the_sdk_writes(array: Array) -> None:
    # The SDK cannot write empty arrays, and writes a zero in an array of unsigned numbers as a constructor.
    assume(array.items and (all(array.items) or array.code not in (0x70, 0x80)))
    data = sdk_encode(AMQPTypes.array, [{"TYPE": SDK_TYPES[type(item)], "VALUE": item} for item in array.items])
    assert_same(decode(data), (Array(array.code, array.items), len(data)))


def test_we_read_the_empty_array_that_the_sdk_writes_without_a_constructor() -> None:
    data = sdk_encode(AMQPTypes.array, [])
    assert_same(decode(data), (Array(0x40), len(data)))


# --- messages --------------------------------------------------------------------------------------------------------


def test_we_read_a_message_that_the_sdk_wrote() -> None:
    data = bytes(
        encode_payload(
            bytearray(),
            message.Message(
                header=message.Header(True, 4, 60_000, False, 2),
                message_annotations={b"x-opt-partition-key": {"TYPE": AMQPTypes.string, "VALUE": "key"}},
                properties=message.Properties(message_id="id", to="there", group_id="session", creation_time=5),
                application_properties={"n": {"TYPE": AMQPTypes.long, "VALUE": 1}, "s": "text"},
                data=[b"body", b"more"],
                footer={b"f": {"TYPE": AMQPTypes.symbol, "VALUE": b"end"}},
            ),
        )
    )
    read = Message(data)
    assert read.header() == Header(True, UByte(4), UInt(60_000), False, UInt(2))
    assert_same(read.annotations(), Map.symbols({"x-opt-partition-key": "key"}))
    assert read.properties() == Properties("id", to="there", group_id="session", creation_time=Timestamp(5))
    assert_same(read.application_properties(), Map.of({"n": Long(1), "s": "text"}))
    bodies = [decode(data, span.value)[0] for span in read.spans if span.section == Section.DATA]
    assert bodies == [b"body", b"more"]
    assert_same(read.read(Section.FOOTER), Map.symbols({"f": Symbol("end")}))
    assert batch_parts(data) == bodies


def test_the_sdk_reads_a_message_that_we_wrote() -> None:
    annotations = Map.symbols({"x-opt-sequence-number": Long(2**40), "x-opt-enqueued-time": Timestamp(5)})
    data = b"".join(
        [
            header_bytes(Header(True, UByte(4), UInt(60_000), None, UInt(2))),
            section_bytes(Section.DELIVERY_ANNOTATIONS, Map.symbols({"x-opt-lock-token": uuid.UUID(int=7)})),
            section_bytes(Section.MESSAGE_ANNOTATIONS, annotations),
            properties_bytes(Properties("id", b"user", "there", group_id="session", group_sequence=UInt(3))),
            section_bytes(
                Section.APPLICATION_PROPERTIES, Map.of({"n": Long(1), "span": Described(Symbol("s"), Long(2))})
            ),
            data_section(b"body"),
            data_section(b"more"),
            section_bytes(Section.FOOTER, Map.symbols({"f": True})),
        ]
    )
    read = decode_payload(memoryview(data))
    assert read.header == message.Header(True, 4, 60_000, None, 2)
    assert read.delivery_annotations == {b"x-opt-lock-token": uuid.UUID(int=7)}
    assert read.message_annotations == {b"x-opt-sequence-number": 2**40, b"x-opt-enqueued-time": 5}
    assert read.properties == message.Properties(b"id", b"user", b"there", group_id=b"session", group_sequence=3)
    assert read.application_properties == {b"n": 1, b"span": 2}
    assert read.data == [b"body", b"more"]
    assert read.footer == {b"f": True}


# --- performatives ---------------------------------------------------------------------------------------------------


def sdk_body(performative: Any, kind: bytes = b"\x00") -> bytes:
    _, body = encode_frame(performative, kind)
    assert body is not None
    return bytes(body)


def sdk(kind: Any, *fields: Any) -> Any:
    """A record of the SDK's, its last fields null."""
    return kind(*fields, *[None] * (len(kind._fields) - len(fields)))


def sdk_disposition(state: Any) -> Any:
    return sdk(performatives.DispositionFrame, True, 1, 2, False, state)


_CAPABILITIES = [b"a", b"b"]
_DEAD_LETTER = error.AMQPError(b"com.microsoft:dead-letter", "why", {b"DeadLetterReason": "because"})

SDK_SENDS: list[tuple[Any, Composite]] = [
    (
        sdk(performatives.OpenFrame, "c", "host", 65536, 100, 60_000, None, None, None, _CAPABILITIES, {b"p": "sdk"}),
        Open(
            "c",
            "host",
            65536,
            100,
            60_000,
            desired_capabilities=Array(0xB3, (Symbol("a"), Symbol("b"))),
            properties=Map.symbols({"p": "sdk"}),
        ),
    ),
    (
        sdk(performatives.OpenFrame, "c", None, None, None, None, None, None, None, []),
        Open("c", desired_capabilities=Array(0x40)),
    ),
    (sdk(performatives.BeginFrame, None, 0, 65536, 65536, 255), Begin(None, 0, 65536, 65536, 255)),
    (
        sdk(
            performatives.AttachFrame,
            "link",
            1,
            True,
            1,
            1,
            sdk(endpoints.Source, "queue"),
            sdk(endpoints.Target, "me"),
            None,
            False,
            0,
            2**40,
        ),
        Attach("link", 1, True, 1, 1, Source("queue"), Target("me"), None, False, 0, 2**40),
    ),
    (
        sdk(performatives.FlowFrame, 0, 65536, 1, 65536, 1, 0, 100, None, True, False),
        Flow(0, 65536, 1, 65536, 1, 0, 100, None, True, False),
    ),
    (sdk_disposition(outcomes.Accepted()), Disposition(True, 1, 2, False, Accepted())),
    (sdk_disposition(outcomes.Released()), Disposition(True, 1, 2, False, Released())),
    (
        sdk_disposition(outcomes.Modified(True, False, {b"a": "b"})),
        Disposition(True, 1, 2, False, Modified(True, False, Map.symbols({"a": "b"}))),
    ),
    (
        sdk_disposition(outcomes.Rejected(_DEAD_LETTER)),
        Disposition(
            True,
            1,
            2,
            False,
            Rejected(Error("com.microsoft:dead-letter", "why", Map.symbols({"DeadLetterReason": "because"}))),
        ),
    ),
    (sdk(performatives.DetachFrame, 1, True), Detach(1, True)),
    (
        sdk(performatives.EndFrame, error.AMQPError(b"amqp:not-found", "gone", None)),
        End(Error("amqp:not-found", "gone")),
    ),
    (sdk(performatives.CloseFrame), Close()),
    (sdk(performatives.SASLInit, b"PLAIN", b"\x00a\x00b", "host"), SaslInit("PLAIN", b"\x00a\x00b", "host")),
]


@pytest.mark.parametrize(("sent", "record"), SDK_SENDS, ids=lambda value: type(value).__name__)
def test_we_read_the_performatives_that_the_sdk_sends(sent: Any, record: Composite) -> None:
    body = sdk_body(sent)
    read, pos = read_performative(body)
    assert read == record
    assert pos == len(body)


def test_we_read_a_transfer_of_the_sdk_and_its_payload() -> None:
    sent = performatives.TransferFrame(1, 2, b"tag", 0x80013700, False, False, None, None, None, None, True, b"payload")
    body = sdk_body(sent)
    read, pos = read_performative(body)
    assert read == Transfer(1, 2, b"tag", 0x80013700, False, False, batchable=True)
    assert body[pos:] == b"payload"


WE_SEND: list[tuple[Composite, int, list[Any]]] = [
    (Open("c", max_frame_size=65536, channel_max=9), 0x10, [b"c", None, 65536, 9, None, None, None, None, None, None]),
    (Begin(3, 0, 100, 200, 255), 0x11, [3, 0, 100, 200, 255, None, None, None]),
    (
        Attach(
            "link", 1, False, 0, 1, Source("queue", filter=Map.symbols({"f": "v"})), Target("me"), max_message_size=5
        ),
        0x12,
        [
            b"link",
            1,
            False,
            0,
            1,
            [b"queue", None, None, None, None, None, None, {b"f": b"v"}],
            [b"me"],
            None,
            False,
            None,
            5,
            None,
            None,
            None,
        ],
    ),
    (Flow(None, 1, 2, 3, 4, 5, 6), 0x13, [None, 1, 2, 3, 4, 5, 6, None, False, False, None]),
    (Disposition(False, 1, 2, True, Accepted()), 0x15, [False, 1, 2, True, {"accepted": []}, False]),
    (
        Disposition(False, 1, 1, True, Rejected(Error("amqp:not-found"))),
        0x15,
        [False, 1, 1, True, {"rejected": [[b"amqp:not-found", b"", {}]]}, False],
    ),
    (Detach(1, True, Error("amqp:not-found", "gone", Map())), 0x16, [1, True, [b"amqp:not-found", b"gone", {}]]),
    (End(), 0x17, [None]),
    (Close(Error("amqp:internal-error", "no")), 0x18, [[b"amqp:internal-error", b"no", {}]]),
    (SaslMechanisms(Array(0xA3, (Symbol("ANONYMOUS"), Symbol("PLAIN")))), 0x40, [[b"ANONYMOUS", b"PLAIN"]]),
    (SaslOutcome(0), 0x44, [0, None]),
]


@pytest.mark.parametrize(("record", "code", "fields"), WE_SEND, ids=lambda value: type(value).__name__)
def test_the_sdk_reads_the_performatives_that_we_send(record: Composite, code: int, fields: list[Any]) -> None:
    read_code, read = decode_frame(memoryview(record.to_bytes()))
    assert read_code == code
    assert read == fields


def test_the_sdk_reads_our_transfer_and_its_payload() -> None:
    body = Transfer(1, 2, b"tag", 0, False, True).to_bytes()
    whole = frame(1, body + b"payload")
    code, fields = decode_frame(memoryview(whole)[8:])
    assert code == 0x14
    assert fields[:6] == [1, 2, b"tag", 0, False, True]
    assert bytes(fields[-1]) == b"payload"
