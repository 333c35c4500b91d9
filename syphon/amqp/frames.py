"""AMQP 1.0 frames and performatives as typed records, from bytes and to bytes. No I/O.

A record's fields have the order of the specification. Reading checks the type of each field, so that users of a record
need not. Writing omits trailing nulls, except those of performatives.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from .amqp_values import Described, Map, Symbol, UByte, UInt, ULong, UShort, Value
from .decoding import Malformed, decode
from .encoding import compound, encode

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
FRAME_AMQP, FRAME_SASL = 0, 1
MIN_MAX_FRAME_SIZE = 512
BATCH_FORMAT = 0x80013700
"""The message format of a Service Bus batch: one data section per encoded message."""

_ANY = object
_SYMBOLS = _ANY
"""A symbol, or an array of symbols: peers differ in how they write a single one."""


@dataclass(slots=True)
class Composite:
    """A described list with a fixed meaning for each position."""

    CODE: ClassVar[int]
    NAME: ClassVar[str]
    TYPES: ClassVar[tuple[Kind, ...]]
    REQUIRED: ClassVar[range] = range(0)
    """The positions of mandatory fields."""
    FIELDS: ClassVar[tuple[str, ...]] = ()
    WRITERS: ClassVar[tuple[tuple[str, Callable[[Any], bytes]], ...]] = ()
    """The name of each field, and what turns its value into bytes."""

    @classmethod
    def of(cls: type[C], fields: list[Any]) -> C:
        if len(fields) > len(cls.TYPES):
            raise Malformed(f"{cls.NAME} has {len(fields)} fields, {len(cls.TYPES)} at most")
        for place in cls.REQUIRED:
            if place >= len(fields) or fields[place] is None:
                raise Malformed(f"{cls._field(place)} must be set")
        for place, (value, kind) in enumerate(zip(fields, cls.TYPES, strict=False)):
            if value is not None and type(value) is not kind and kind is not _ANY:
                fields[place] = cls._converted(place, value, kind)
        return cls(*fields)

    @classmethod
    def _converted(cls, place: int, value: Any, kind: Kind) -> Any:
        """Converts a value that is not exactly of its field's type: a nested record, or a symbol for a string."""
        if isinstance(kind, tuple):
            record = composite_of(value) if isinstance(value, Described) else value
            if isinstance(record, kind):
                return record
            names = " or ".join(one.NAME for one in kind)
            raise Malformed(f"{cls._field(place)} is {_name(record)}, expected {names}")
        if kind is str and isinstance(value, str):
            return value
        raise Malformed(f"{cls._field(place)} is {_name(value)}, expected {kind.__name__.lower()}")

    @classmethod
    def _field(cls, place: int) -> str:
        return f"{cls.NAME}.{cls.FIELDS[place].replace('_', '-')}"

    def to_bytes(self) -> bytes:
        parts = [_NULL if (value := getattr(self, name)) is None else write(value) for name, write in self.WRITERS]
        # azure-servicebus 7.10 to 7.14 indexes the fields of performatives without asking how many there are.
        while parts and parts[-1] == _NULL and self.CODE not in _PERFORMATIVES:
            parts.pop()
        head = b"\x00\x53" + bytes((self.CODE,))
        return head + compound(0xC0, len(parts), b"".join(parts)) if parts else head + b"\x45"


C = TypeVar("C", bound=Composite)
Kind = type | tuple[type[Composite], ...]
"""The type of a field: a value of exactly this type, or one of these records."""

_NULL = encode(None)
_PERFORMATIVES = range(0x10, 0x19)
"""The codes of performatives, from open to close."""
_SMALL = tuple(encode(UInt(number)) for number in range(256))
"""The bytes of small numbers: most numbers of most frames."""
_LARGE = struct.Struct(">BI").pack
_WIRE_TYPES = frozenset({UInt, UShort, UByte, ULong, Symbol, str})


def _writer(kind: Any) -> Callable[[Any], bytes]:
    """What writes a field of this type.

    Plain numbers and text of a record get their AMQP type: the width of a number, or symbol instead of string.
    """
    if kind is UInt:
        return _write_uint
    if kind in _WIRE_TYPES:
        return lambda value: encode(kind(value))
    return lambda value: value.to_bytes() if isinstance(value, Composite) else encode(value)


def _write_uint(value: int) -> bytes:
    if 0 <= value < 256:
        return _SMALL[value]
    return _LARGE(0x70, value) if 0 <= value <= 0xFFFFFFFF else encode(UInt(value))  # which says what is wrong


def _name(value: Any) -> str:
    return value.NAME if isinstance(value, Composite) else type(value).__name__


@dataclass(slots=True)
class Error(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x1D, "error", (str, str, Map), range(1)
    condition: str
    description: str | None = None
    info: Map | None = None

    def to_bytes(self) -> bytes:
        # Always three fields: with a shorter list, the SDK waits for a rejected send forever.
        info = encode(self.info if self.info is not None else Map())
        body = encode(Symbol(self.condition)) + encode(self.description or "") + info
        return b"\x00\x53\x1d" + compound(0xC0, 3, body)


@dataclass(slots=True)
class Received(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x23, "received", (UInt, ULong), range(2)
    section_number: int
    section_offset: int


@dataclass(slots=True)
class Accepted(Composite):
    CODE, NAME, TYPES = 0x24, "accepted", ()


@dataclass(slots=True)
class Rejected(Composite):
    CODE, NAME, TYPES = 0x25, "rejected", ((Error,),)
    error: Error | None = None


@dataclass(slots=True)
class Released(Composite):
    CODE, NAME, TYPES = 0x26, "released", ()


@dataclass(slots=True)
class Modified(Composite):
    CODE, NAME, TYPES = 0x27, "modified", (bool, bool, Map)
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Map | None = None


@dataclass(slots=True)
class Declared(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x33, "declared", (bytes,), range(1)
    txn_id: bytes


_OUTCOMES = (Accepted, Rejected, Released, Modified, Declared)


@dataclass(slots=True)
class TransactionalState(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x34, "transactional-state", (bytes, _OUTCOMES), range(1)
    txn_id: bytes
    outcome: Composite | None = None


_STATES = (Received, *_OUTCOMES, TransactionalState)


@dataclass(slots=True)
class Source(Composite):
    CODE, NAME = 0x28, "source"
    TYPES = (_ANY, UInt, Symbol, UInt, bool, Map, Symbol, Map, _OUTCOMES, _SYMBOLS, _SYMBOLS)
    address: Value = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Map | None = None
    distribution_mode: str | None = None
    filter: Map | None = None
    default_outcome: Composite | None = None
    outcomes: Value = None
    capabilities: Value = None


@dataclass(slots=True)
class Target(Composite):
    CODE, NAME, TYPES = 0x29, "target", (_ANY, UInt, Symbol, UInt, bool, Map, _SYMBOLS)
    address: Value = None
    durable: int | None = None
    expiry_policy: str | None = None
    timeout: int | None = None
    dynamic: bool | None = None
    dynamic_node_properties: Map | None = None
    capabilities: Value = None


@dataclass(slots=True)
class Coordinator(Composite):
    CODE, NAME, TYPES = 0x30, "coordinator", (_SYMBOLS,)
    capabilities: Value = None


@dataclass(slots=True)
class Declare(Composite):
    CODE, NAME, TYPES = 0x31, "declare", (_ANY,)
    global_id: Value = None


@dataclass(slots=True)
class Discharge(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x32, "discharge", (bytes, bool), range(1)
    txn_id: bytes
    fail: bool | None = None


@dataclass(slots=True)
class Open(Composite):
    CODE, NAME, REQUIRED = 0x10, "open", range(1)
    TYPES = (str, str, UInt, UShort, UInt, _SYMBOLS, _SYMBOLS, _SYMBOLS, _SYMBOLS, Map)
    container_id: str
    hostname: str | None = None
    max_frame_size: int | None = None
    channel_max: int | None = None
    idle_time_out: int | None = None
    outgoing_locales: Value = None
    incoming_locales: Value = None
    offered_capabilities: Value = None
    desired_capabilities: Value = None
    properties: Map | None = None


@dataclass(slots=True)
class Begin(Composite):
    CODE, NAME, REQUIRED = 0x11, "begin", range(1, 4)
    TYPES = (UShort, UInt, UInt, UInt, UInt, _SYMBOLS, _SYMBOLS, Map)
    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int | None = None
    offered_capabilities: Value = None
    desired_capabilities: Value = None
    properties: Map | None = None


@dataclass(slots=True)
class Attach(Composite):
    CODE, NAME, REQUIRED = 0x12, "attach", range(3)
    TYPES = (
        str,
        UInt,
        bool,
        UByte,
        UByte,
        (Source,),
        (Target, Coordinator),
        Map,
        bool,
        UInt,
        ULong,
        _SYMBOLS,
        _SYMBOLS,
        Map,
    )
    name: str
    handle: int
    role: bool
    snd_settle_mode: int | None = None
    rcv_settle_mode: int | None = None
    source: Composite | None = None
    target: Composite | None = None
    unsettled: Map | None = None
    incomplete_unsettled: bool | None = None
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Value = None
    desired_capabilities: Value = None
    properties: Map | None = None


@dataclass(slots=True)
class Flow(Composite):
    CODE, NAME, REQUIRED = 0x13, "flow", range(1, 4)
    TYPES = (UInt, UInt, UInt, UInt, UInt, UInt, UInt, UInt, bool, bool, Map)
    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool | None = None
    echo: bool | None = None
    properties: Map | None = None


@dataclass(slots=True)
class Transfer(Composite):
    CODE, NAME, REQUIRED = 0x14, "transfer", range(1)
    TYPES = (UInt, UInt, bytes, UInt, bool, bool, UByte, _STATES, bool, bool, bool)
    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool | None = None
    rcv_settle_mode: int | None = None
    state: Composite | None = None
    resume: bool | None = None
    aborted: bool | None = None
    batchable: bool | None = None


@dataclass(slots=True)
class Disposition(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x15, "disposition", (bool, UInt, UInt, bool, _STATES, bool), range(2)
    role: bool
    first: int
    last: int | None = None
    settled: bool | None = None
    state: Composite | None = None
    batchable: bool | None = None


@dataclass(slots=True)
class Detach(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x16, "detach", (UInt, bool, (Error,)), range(1)
    handle: int
    closed: bool | None = None
    error: Error | None = None


@dataclass(slots=True)
class End(Composite):
    CODE, NAME, TYPES = 0x17, "end", ((Error,),)
    error: Error | None = None


@dataclass(slots=True)
class Close(Composite):
    CODE, NAME, TYPES = 0x18, "close", ((Error,),)
    error: Error | None = None


@dataclass(slots=True)
class SaslMechanisms(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x40, "sasl-mechanisms", (_SYMBOLS,), range(1)
    mechanisms: Value


@dataclass(slots=True)
class SaslInit(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x41, "sasl-init", (Symbol, bytes, str), range(1)
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(slots=True)
class SaslOutcome(Composite):
    CODE, NAME, TYPES, REQUIRED = 0x44, "sasl-outcome", (UByte, bytes), range(1)
    code: int
    additional_data: bytes | None = None


_KNOWN: dict[int, type[Composite]] = {}
for _kind in Composite.__subclasses__():
    _kind.FIELDS = tuple(field.name for field in dataclasses.fields(_kind))
    _kind.WRITERS = tuple(zip(_kind.FIELDS, map(_writer, _kind.TYPES), strict=True))
    _KNOWN[_kind.CODE] = _kind
_NAMED = {f"amqp:{kind.NAME}:list": kind for kind in _KNOWN.values()}


def composite_of(value: Described) -> Composite:
    """The record that a described list represents."""
    descriptor = value.descriptor
    if isinstance(descriptor, ULong):
        kind = _KNOWN.get(descriptor)
    else:
        kind = _NAMED.get(descriptor) if isinstance(descriptor, str) else None
    if kind is None or not isinstance(value.value, list):
        raise Malformed(f"{descriptor!r:.200} is not a known descriptor")
    return kind.of(value.value)


def read_performative(body: bytes) -> tuple[Composite, int]:
    """The performative at the start of a frame's body, and where its payload begins."""
    if body[:2] == b"\x00\x53" and len(body) > 2 and (kind := _KNOWN.get(body[2])) is not None:
        fields, pos = decode(body, 3)
        if not isinstance(fields, list):
            raise Malformed(f"{kind.NAME} is not a list")
        return kind.of(fields), pos
    value, pos = decode(body, 0)
    if not isinstance(value, Described):
        raise Malformed("a frame must start with a performative")
    return composite_of(value), pos


def frame(channel: int, body: bytes, kind: int = FRAME_AMQP, following: int = 0) -> bytes:
    """A frame around a performative and its payload. `following` bytes may be sent after it, without a copy."""
    return _HEAD(len(body) + following + 8, 2, kind, channel) + body


_HEAD = struct.Struct(">IBBH").pack
EMPTY_FRAME = frame(0, b"")
"""A heartbeat."""
