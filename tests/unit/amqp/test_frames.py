"""Performatives as records (AMQP 1.0 parts 2.7, 3.4, 3.5, 4.5 and 5.3)."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import (
    Array,
    Decimal32,
    Described,
    Int,
    Long,
    Malformed,
    Map,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    decode,
    encode,
)
from syphon.amqp.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_AMQP,
    FRAME_SASL,
    SASL_HEADER,
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    TransactionalState,
    Transfer,
    composite_of,
    frame,
    read_performative,
)
from tests.support.amqp_equality import assert_same
from tests.support.amqp_strategies import arrays_of, booleans, examples, mutated, noise, scalars, symbols, values

# What the specification says of each record: its descriptor, then its fields with their types, in order.
# An asterisk marks the fields that are mandatory.
SPECIFICATION: dict[type[Composite], tuple[int, str]] = {
    Open: (
        0x10,
        "container-id*:string hostname:string max-frame-size:uint channel-max:ushort idle-time-out:uint "
        "outgoing-locales:symbols incoming-locales:symbols offered-capabilities:symbols "
        "desired-capabilities:symbols properties:map",
    ),
    Begin: (
        0x11,
        "remote-channel:ushort next-outgoing-id*:uint incoming-window*:uint outgoing-window*:uint "
        "handle-max:uint offered-capabilities:symbols desired-capabilities:symbols properties:map",
    ),
    Attach: (
        0x12,
        "name*:string handle*:uint role*:boolean snd-settle-mode:ubyte rcv-settle-mode:ubyte source:source "
        "target:target unsettled:map incomplete-unsettled:boolean initial-delivery-count:uint "
        "max-message-size:ulong offered-capabilities:symbols desired-capabilities:symbols properties:map",
    ),
    Flow: (
        0x13,
        "next-incoming-id:uint incoming-window*:uint next-outgoing-id*:uint outgoing-window*:uint handle:uint "
        "delivery-count:uint link-credit:uint available:uint drain:boolean echo:boolean properties:map",
    ),
    Transfer: (
        0x14,
        "handle*:uint delivery-id:uint delivery-tag:binary message-format:uint settled:boolean "
        "more:boolean rcv-settle-mode:ubyte state:state resume:boolean aborted:boolean batchable:boolean",
    ),
    Disposition: (0x15, "role*:boolean first*:uint last:uint settled:boolean state:state batchable:boolean"),
    Detach: (0x16, "handle*:uint closed:boolean error:error"),
    End: (0x17, "error:error"),
    Close: (0x18, "error:error"),
    Error: (0x1D, "condition*:condition description:string info:map"),
    Received: (0x23, "section-number*:uint section-offset*:ulong"),
    Accepted: (0x24, ""),
    Rejected: (0x25, "error:error"),
    Released: (0x26, ""),
    Modified: (0x27, "delivery-failed:boolean undeliverable-here:boolean message-annotations:map"),
    Source: (
        0x28,
        "address:any durable:uint expiry-policy:symbol timeout:uint dynamic:boolean "
        "dynamic-node-properties:map distribution-mode:symbol filter:map default-outcome:outcome outcomes:symbols "
        "capabilities:symbols",
    ),
    Target: (
        0x29,
        "address:any durable:uint expiry-policy:symbol timeout:uint dynamic:boolean "
        "dynamic-node-properties:map capabilities:symbols",
    ),
    Coordinator: (0x30, "capabilities:symbols"),
    Declare: (0x31, "global-id:any"),
    Discharge: (0x32, "txn-id*:binary fail:boolean"),
    Declared: (0x33, "txn-id*:binary"),
    TransactionalState: (0x34, "txn-id*:binary outcome:outcome"),
    SaslMechanisms: (0x40, "sasl-server-mechanisms*:symbols"),
    SaslInit: (0x41, "mechanism*:symbol initial-response:binary hostname:string"),
    SaslOutcome: (0x44, "code*:ubyte additional-data:binary"),
}


class Field(NamedTuple):
    name: str
    kind: str
    mandatory: bool


def fields_of(kind: type[Composite]) -> list[Field]:
    fields = []
    for entry in SPECIFICATION[kind][1].split():
        name, type_ = entry.split(":")
        fields.append(Field(name.rstrip("*"), type_, name.endswith("*")))
    return fields


RECORD = pytest.mark.parametrize("kind", SPECIFICATION, ids=lambda kind: kind.__name__)

_ERROR = Described(ULong(0x1D), [Symbol("amqp:not-found"), "gone", Map()])
_ACCEPTED = Described(ULong(0x24), [])
_SOURCE = Described(ULong(0x28), ["queue"])
_TARGET = Described(ULong(0x29), ["queue"])
_COORDINATOR = Described(ULong(0x30), [])
_RECEIVED = Described(ULong(0x23), [UInt(1), ULong(2)])

SAMPLES: dict[str, Value] = {
    "null": None,
    "boolean": True,
    "ubyte": UByte(1),
    "ushort": UShort(1),
    "uint": UInt(1),
    "ulong": ULong(1),
    "int": Int(1),
    "long": Long(1),
    "timestamp": Timestamp(1),
    "double": 1.0,
    "decimal": Decimal32(b"1234"),
    "binary": b"a",
    "string": "a",
    "symbol": Symbol("a"),
    "symbols": Array(0xA3, (Symbol("a"),)),
    "list": [],
    "map": Map(),
    "error": _ERROR,
    "state": _RECEIVED,
    "outcome": _ACCEPTED,
    "source": _SOURCE,
    "target": _TARGET,
    "coordinator": _COORDINATOR,
    "described map": Described(ULong(0x1D), Map()),
    "unknown": Described(ULong(0x99), []),
}

SAMPLE_OF = {**SAMPLES, "any": "address", "condition": Symbol("amqp:not-found")}

TAKES: dict[str, set[str]] = {
    "string": {"string", "symbol"},  # peers differ
    "condition": {"string", "symbol"},  # a symbol, but again peers differ
    "target": {"target", "coordinator"},
    "state": {"state", "outcome"},
    "any": set(SAMPLES),
    "symbols": set(SAMPLES),  # one symbol or an array of them: the user of the field checks
}


def raw(kind: type[Composite], fields: list[Value]) -> bytes:
    return b"\x00\x53" + bytes((SPECIFICATION[kind][0],)) + encode(fields)


def minimal(kind: type[Composite]) -> list[Value]:
    """The shortest list of fields that a record takes."""
    fields = fields_of(kind)
    last = max((place for place, field in enumerate(fields) if field.mandatory), default=-1)
    return [SAMPLE_OF[field.kind] if field.mandatory else None for field in fields[: last + 1]]


def up_to(kind: type[Composite], place: int) -> list[Value]:
    """The fields of a record up to one place, that one included."""
    fields = minimal(kind)
    return fields + [None] * (place + 1 - len(fields))


# --- records that hypothesis draws -----------------------------------------------------------------------------------

_numbers = {
    "ubyte": st.integers(0, 2**8 - 1).map(UByte),
    "ushort": st.integers(0, 2**16 - 1).map(UShort),
    "uint": st.integers(0, 2**32 - 1).map(UInt),
    "ulong": st.integers(0, 2**64 - 1).map(ULong),
}
_text = st.text(max_size=10)
_small_maps = st.lists(st.tuples(symbols, scalars), max_size=2).map(lambda pairs: Map(tuple(pairs)))


def records(kind: type[Composite]) -> st.SearchStrategy[Composite]:
    """Records with the exact types of the wire, so that they come back the same. An Error has all its fields."""
    filled = kind is Error
    arguments = []
    for field in fields_of(kind):
        value = FIELD[field.kind]
        arguments.append(value if field.mandatory or filled else st.one_of(st.none(), value))
    return st.builds(kind, *arguments)


def _records(*kinds: type[Composite]) -> st.SearchStrategy[Any]:
    return st.deferred(lambda: st.one_of(*map(records, kinds)))


FIELD: dict[str, st.SearchStrategy[Any]] = {
    **_numbers,
    "boolean": booleans,
    "string": _text,
    "symbol": symbols,
    "condition": symbols,
    "binary": st.binary(max_size=20),
    "map": _small_maps,
    "any": scalars,
    "symbols": st.one_of(symbols, arrays_of(0xA3)),
    "error": _records(Error),
    "outcome": _records(Accepted, Rejected, Released, Modified, Declared),
    "source": _records(Source),
    "target": _records(Target, Coordinator),
    "state": _records(Received, Accepted, Rejected, Released, Modified, Declared, TransactionalState),
}


@RECORD
@given(data=st.data(), payload=st.binary(max_size=10))
@examples(25)
def test_a_record_comes_back_from_its_bytes_and_the_payload_begins_behind_it(
    kind: type[Composite], data: st.DataObject, payload: bytes
) -> None:
    record = data.draw(records(kind))
    body = record.to_bytes()
    back, pos = read_performative(body + payload)
    assert_same(back, record)
    assert pos == len(body)


@RECORD
def test_a_record_has_the_descriptor_and_the_fields_of_the_specification(kind: type[Composite]) -> None:
    fields = fields_of(kind)
    record, _ = read_performative(raw(kind, [SAMPLE_OF[field.kind] for field in fields]))
    assert type(record) is kind
    names = [field.name.replace("-", "_") for field in fields]
    assert list(kind.FIELDS) == [name if name != "sasl_server_mechanisms" else "mechanisms" for name in names]
    described, _ = decode(record.to_bytes())
    assert isinstance(described, Described)
    assert_same(described.descriptor, ULong(SPECIFICATION[kind][0]))
    again, _ = read_performative(record.to_bytes())
    assert_same(again, record)


@RECORD
def test_a_record_is_known_by_its_long_and_its_symbolic_descriptor_too(kind: type[Composite]) -> None:
    expected, _ = read_performative(raw(kind, minimal(kind)))
    code, name = SPECIFICATION[kind][0], b"amqp:" + kind.NAME.encode() + b":list"
    for descriptor in (b"\x00\x80" + struct.pack(">Q", code), b"\x00\xa3" + bytes((len(name),)) + name):
        body = descriptor + encode(minimal(kind))
        record, pos = read_performative(body + b"payload")
        assert_same(record, expected)
        assert pos == len(body)


def test_the_symbolic_names_are_those_of_the_specification() -> None:
    assert {kind.NAME for kind in SPECIFICATION} == {
        "open",
        "begin",
        "attach",
        "flow",
        "transfer",
        "disposition",
        "detach",
        "end",
        "close",
        "error",
        "received",
        "accepted",
        "rejected",
        "released",
        "modified",
        "source",
        "target",
        "coordinator",
        "declare",
        "discharge",
        "declared",
        "transactional-state",
        "sasl-mechanisms",
        "sasl-init",
        "sasl-outcome",
    }


# --- records that are none -------------------------------------------------------------------------------------------


def wire_name(kind: type[Composite], field: Field) -> str:
    return f"{kind.NAME}.{field.name.removeprefix('sasl-server-')}"


@RECORD
def test_a_field_of_the_wrong_type_is_malformed_and_named(kind: type[Composite]) -> None:
    for place, field in enumerate(fields_of(kind)):
        for name, sample in SAMPLES.items():
            fields = up_to(kind, place)
            fields[place] = sample
            body = raw(kind, fields)
            if name == "null" or name in TAKES.get(field.kind, {field.kind}):
                if name != "null" or not field.mandatory:
                    assert type(read_performative(body)[0]) is kind
                continue
            known = name not in ("unknown", "described map")
            described = field.kind in ("error", "outcome", "source", "state", "target")
            # Where a record is expected, the error names the descriptor of an unknown one.
            expected = (
                "is not a known descriptor" if described and not known else wire_name(kind, field).replace(".", r"\.")
            )
            with pytest.raises(Malformed, match=expected):
                read_performative(body)


@RECORD
def test_a_mandatory_field_that_is_null_or_left_out_is_malformed_and_named(kind: type[Composite]) -> None:
    fields = minimal(kind)
    assert type(read_performative(raw(kind, fields))[0]) is kind
    for place, field in enumerate(fields_of(kind)):
        if not field.mandatory:
            continue
        with pytest.raises(Malformed, match=rf"{wire_name(kind, field)} must be set"):
            read_performative(raw(kind, [*fields[:place], None, *fields[place + 1 :]]))
        with pytest.raises(Malformed, match=rf"{wire_name(kind, field)} must be set"):
            read_performative(raw(kind, fields[:place]))


@RECORD
def test_the_first_mandatory_field_is_named_when_there_is_none_at_all(kind: type[Composite]) -> None:
    first = next((field for field in fields_of(kind) if field.mandatory), None)
    if first is None:
        assert type(read_performative(raw(kind, []))[0]) is kind
    else:
        with pytest.raises(Malformed, match=rf"{wire_name(kind, first)} must be set"):
            read_performative(raw(kind, []))


@RECORD
def test_a_field_too_many_is_malformed_even_if_it_is_null(kind: type[Composite]) -> None:
    fields = up_to(kind, len(fields_of(kind)) - 1)
    assert type(read_performative(raw(kind, fields))[0]) is kind
    with pytest.raises(Malformed, match=f"{kind.NAME} has {len(fields) + 1} fields, {len(fields)} at most"):
        read_performative(raw(kind, [*fields, None]))


@RECORD
def test_a_record_that_is_no_list_is_malformed(kind: type[Composite]) -> None:
    samples: list[Value] = [None, Map(), "a", Array(0xA3), ULong(1)]
    for value in samples:
        with pytest.raises(Malformed, match="is not a list"):
            read_performative(b"\x00\x53" + bytes((SPECIFICATION[kind][0],)) + encode(value))
        with pytest.raises(Malformed, match="is not a known descriptor"):
            read_performative(b"\x00\x80" + struct.pack(">Q", SPECIFICATION[kind][0]) + encode(value))


@pytest.mark.parametrize(
    "descriptor",
    [
        ULong(2**64 - 1),
        ULong(0x0000_0001_0000_0010),
        Symbol("amqp:unknown:list"),
        Symbol("open"),
        "",
        None,
        True,
        UInt(0x10),
        Int(0x10),
        UByte(0x10),
        16.0,
        b"\x10",
        [ULong(0x10)],
        Map(),
        Described(ULong(0x10), ULong(0x10)),
    ],
    ids=lambda descriptor: f"{type(descriptor).__name__} {descriptor!r}",
)
def test_a_descriptor_that_is_not_known_is_malformed(descriptor: Value) -> None:
    with pytest.raises(Malformed, match="is not a known descriptor"):
        read_performative(encode(Described(descriptor, ["container"])))


def test_no_other_number_than_those_of_the_specification_is_known() -> None:
    for code in set(range(256)) - {known for known, _ in SPECIFICATION.values()}:
        with pytest.raises(Malformed, match="is not a known descriptor"):
            read_performative(encode(Described(ULong(code), [])))


def test_the_error_for_an_unknown_descriptor_is_short() -> None:
    with pytest.raises(Malformed) as caught:
        read_performative(encode(Described(Symbol("x" * 100_000), [])))
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [None, [], "open", ULong(0x10), Map()], ids=repr)
def test_a_body_that_does_not_start_with_a_performative_is_malformed(value: Value) -> None:
    with pytest.raises(Malformed, match="must start with a performative"):
        read_performative(encode(value))


@RECORD
@given(data=st.data())
@examples(5)
def test_a_record_that_is_cut_short_is_malformed(kind: type[Composite], data: st.DataObject) -> None:
    body = data.draw(records(kind)).to_bytes()
    for cut in range(len(body)):
        with pytest.raises(Malformed):
            read_performative(body[:cut])


def read_or_malformed(body: bytes) -> None:
    with suppress(Malformed):
        record, pos = read_performative(body)
        assert isinstance(record, Composite)
        assert 0 < pos <= len(body)


_codes = sorted(code for code, _ in SPECIFICATION.values())
_anything = st.one_of(scalars, *(FIELD[name] for name in ("map", "symbols")), st.sampled_from(list(SAMPLES.values())))


_starts_well = st.builds(lambda code, rest: b"\x00\x53" + bytes((code,)) + rest, st.sampled_from(_codes), noise)
_records_by_kind = {kind: records(kind).map(lambda record: record.to_bytes()) for kind in SPECIFICATION}
_bodies = st.sampled_from(list(SPECIFICATION)).flatmap(lambda kind: _records_by_kind[kind])


@given(st.one_of(noise, _starts_well))
@examples(250)
def test_random_bytes_are_a_record_or_malformed(body: bytes) -> None:
    read_or_malformed(body)


@given(st.sampled_from(list(SPECIFICATION)), st.lists(_anything, max_size=15))
@examples(250)
def test_random_fields_are_a_record_or_malformed(kind: type[Composite], fields: list[Value]) -> None:
    read_or_malformed(raw(kind, fields))


@given(mutated(_bodies))
@examples(250)
def test_a_damaged_record_is_a_record_or_malformed(body: bytes) -> None:
    read_or_malformed(body)


_descriptors = st.one_of(st.sampled_from(_codes).map(ULong), values)


@given(st.builds(Described, _descriptors, st.one_of(st.lists(_anything, max_size=6), values)))
@examples(100)
def test_any_described_value_is_a_record_or_malformed(value: Described) -> None:
    with suppress(Malformed):
        assert isinstance(composite_of(value), Composite)


def test_a_described_value_can_be_read_as_a_record_more_than_once() -> None:
    attach = Described(ULong(0x12), ["link", UInt(0), True, None, None, _SOURCE, _TARGET])
    assert_same(composite_of(attach), composite_of(attach))


# --- writing ---------------------------------------------------------------------------------------------------------


def test_records_may_hold_plain_numbers_and_text_and_the_wire_gets_the_types_it_wants() -> None:
    source = Source("queue", durable=1, expiry_policy="never", distribution_mode=Symbol("move"))
    attach = Attach(Symbol("link"), 7, True, 0, 1, source, Target(), max_message_size=2**40)
    described, _ = decode(attach.to_bytes())
    assert_same(
        described,
        Described(
            ULong(0x12),
            [
                "link",
                UInt(7),
                True,
                UByte(0),
                UByte(1),
                Described(ULong(0x28), ["queue", UInt(1), Symbol("never"), None, None, None, Symbol("move")]),
                Described(ULong(0x29), []),
                None,
                None,
                None,
                ULong(2**40),
                None,
                None,
                None,
            ],
        ),
    )
    assert read_performative(attach.to_bytes())[0] == attach
    assert_same(decode(SaslInit("PLAIN").to_bytes())[0], Described(ULong(0x41), [Symbol("PLAIN")]))


def test_trailing_nulls_are_left_out_but_those_of_performatives_are_not() -> None:
    assert Accepted().to_bytes() == bytes.fromhex("00 53 24 45")
    assert Modified(True).to_bytes() == bytes.fromhex("00 53 27 c0 02 01 41")
    assert Source("q", timeout=0).to_bytes() == bytes.fromhex("00 53 28 c0 07 04 a1 01 71 40 40 43")
    assert Begin().to_bytes() == bytes.fromhex("00 53 11 c0 09 08 40 43 43 43 40 40 40 40")
    settled = Disposition(True, 1, state=Accepted())
    assert settled.to_bytes() == bytes.fromhex("00 53 15 c0 0b 06 41 52 01 40 40 00 53 24 45 40")
    assert Detach(0, closed=False).to_bytes() == bytes.fromhex("00 53 16 c0 04 03 43 42 40")
    assert Close().to_bytes() == bytes.fromhex("00 53 18 c0 02 01 40")


def test_a_number_too_large_for_its_field_is_not_written() -> None:
    with pytest.raises(ValueError, match="does not fit into the AMQP type uint"):
        Transfer(2**32).to_bytes()
    with pytest.raises(ValueError, match="does not fit into the AMQP type ushort"):
        Open("a", channel_max=-1).to_bytes()


@given(_text.map(lambda text: text.encode("ascii", "ignore").decode()), st.none() | _text, st.none() | _small_maps)
@examples(100)
def test_an_error_is_written_with_all_its_three_fields(
    condition: str, description: str | None, info: Map | None
) -> None:
    # With fewer, a client that waits for the outcome of a send waits forever (WIRE: Sending).
    error = Error(condition, description, info)
    expected = Described(ULong(0x1D), [Symbol(condition), description or "", info or Map()])
    assert_same(decode(error.to_bytes())[0], expected)
    for around in (Rejected(error), Detach(0, True, error), End(error), Close(error)):
        described, _ = decode(around.to_bytes())
        assert isinstance(described, Described)
        assert isinstance(described.value, list)
        assert_same(described.value[-1], expected)


def test_an_error_with_fewer_fields_is_still_read() -> None:
    record, _ = read_performative(raw(Rejected, [Described(ULong(0x1D), [Symbol("amqp:not-found")])]))
    assert record == Rejected(Error("amqp:not-found"))


# --- frames ----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**16 - 1), st.binary(max_size=600), st.sampled_from([FRAME_AMQP, FRAME_SASL]))
@examples(50)
def test_a_frame_says_how_long_it_is_where_its_body_begins_its_kind_and_its_channel(
    channel: int, body: bytes, kind: int
) -> None:
    data = frame(channel, body, kind)
    size, offset, type_, channel_read = struct.unpack_from(">IBBH", data)
    assert (size, offset, type_, channel_read) == (len(data), 2, kind, channel)
    assert data[4 * offset :] == body


def test_a_heartbeat_is_a_frame_without_a_body() -> None:
    assert EMPTY_FRAME.hex() == "0000000802000000"


def test_the_protocol_headers_are_those_of_the_specification() -> None:
    assert AMQP_HEADER.hex() == "414d515000010000"
    assert SASL_HEADER.hex() == "414d515003010000"
