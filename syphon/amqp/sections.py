"""The sections of a message: finds where each begins and ends, so that one can be read or replaced alone.

The body stays bytes. It is found by its length and never decoded, so that a message with values of unknown types
passes unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from .amqp_values import Map, ULong, Value
from .decoding import Malformed, decode, skip
from .encoding import compound, encode


class Section(IntEnum):
    """The sections of a message by their descriptors, in their order."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78


_NAMES: dict[str, int] = {
    "amqp:header:list": 0x70,
    "amqp:delivery-annotations:map": 0x71,
    "amqp:message-annotations:map": 0x72,
    "amqp:properties:list": 0x73,
    "amqp:application-properties:map": 0x74,
    "amqp:data:binary": 0x75,
    "amqp:amqp-sequence:list": 0x76,
    "amqp:amqp-value:*": 0x77,
    "amqp:footer:map": 0x78,
}


class Span(NamedTuple):
    """The position of one section: its descriptor begins at `start`, its value at `value`; it ends before `end`."""

    section: int
    start: int
    value: int
    end: int


class OutOfOrder(Malformed):
    """The sections of a message are not in the standard's order. `in_order` puts them into it (M8)."""


def split(data: bytes, until: int | None = None) -> list[Span]:
    """Every section of a message. Sections that are out of order or there twice are an error; only bodies repeat.

    With `until` it reads no further than that section: the bytes after it may not be AMQP at all.
    """
    spans: list[Span] = []
    pos, end, last = 0, len(data), 0
    while pos < end and (until is None or last < until):
        code, value = _section_head(data, pos, end)
        if until is not None and code > until:
            break
        if code < last:
            raise OutOfOrder(f"section 0x{code:02x} at byte {pos} is out of order")
        if code == last and code not in _REPEATABLE:
            raise Malformed(f"section 0x{code:02x} occurs twice, again at byte {pos}")
        if last in _BODIES and code in _BODIES and code != last:
            raise Malformed(f"the body is of two kinds at byte {pos}")
        start, pos = pos, skip(data, value, end)
        spans.append(Span(code, start, value, pos))
        last = code
    return spans


def in_order(data: bytes) -> bytes:
    """The message with its sections in the standard's order (M8). A section that occurs twice is an error.

    Clients write them in other orders, and Service Bus takes that: the Python SDK writes delivery annotations after the
    body, and rhea writes the footer before it.
    """
    return _ordered(data)[0]


def _ordered(data: bytes) -> tuple[bytes, list[Span]]:
    """The message in the standard's order, and its sections there."""
    try:
        return data, split(data)
    except OutOfOrder:
        pos, end = 0, len(data)
        sections: list[tuple[int, bytes]] = []
        while pos < end:
            code, value = _section_head(data, pos, end)
            start, pos = pos, skip(data, value, end)
            sections.append((code, data[start:pos]))
        sections.sort(key=lambda section: section[0])  # stable: the parts of a body keep their order
        data = b"".join(section for _, section in sections)
        return data, split(data)


def _section_head(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """The descriptor of the section at a position, and where the section's value begins."""
    if data[pos : pos + 2] == b"\x00\x53" and pos + 2 < end:
        code, value = data[pos + 2], pos + 3
    else:
        code, value = _descriptor(data, pos, end)
    if not 0x70 <= code <= 0x78:
        raise Malformed(f"0x{code:02x} at byte {pos} is not a section of a message")
    return code, value


_REPEATABLE = (Section.DATA, Section.SEQUENCE)
_BODIES = (Section.DATA, Section.SEQUENCE, Section.VALUE)


def _descriptor(data: bytes, pos: int, end: int) -> tuple[int, int]:
    if data[pos] != 0:
        raise Malformed(f"a section was expected at byte {pos}, not 0x{data[pos]:02x}")
    descriptor, value = decode(data, pos + 1, end)
    if isinstance(descriptor, ULong):
        return int(descriptor), value
    if isinstance(descriptor, str) and descriptor in _NAMES:
        return _NAMES[descriptor], value
    raise Malformed(f"{descriptor!r:.200} at byte {pos} is not a section of a message")


@dataclass(frozen=True, slots=True)
class Header:
    """The delivery details of a message. AMQP 1.0 has only these five."""

    durable: Value = None
    priority: Value = None
    ttl: Value = None
    first_acquirer: Value = None
    delivery_count: Value = None


PROPERTY_FIELDS = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "group_id",
    "group_sequence",
    "reply_to_group_id",
)


@dataclass(frozen=True, slots=True)
class Properties:
    """The immutable properties of a message, as the sender wrote them."""

    message_id: Value = None
    user_id: Value = None
    to: Value = None
    subject: Value = None
    reply_to: Value = None
    correlation_id: Value = None
    content_type: Value = None
    content_encoding: Value = None
    absolute_expiry_time: Value = None
    creation_time: Value = None
    group_id: Value = None
    group_sequence: Value = None
    reply_to_group_id: Value = None


class Message:
    """One message as bytes, with its sections found. Reading decodes one section; replacing makes new bytes.

    `data` has the sections in the standard's order, in whatever order they came (M8).
    """

    __slots__ = ("data", "spans")

    def __init__(self, data: bytes) -> None:
        self.data, self.spans = _ordered(data)

    def span(self, section: Section) -> Span | None:
        for span in self.spans:
            if span.section == section:
                return span
        return None

    def raw(self, section: Section) -> bytes:
        """The bytes of a section, its descriptor included; empty if the message has none."""
        span = self.span(section)
        return self.data[span.start : span.end] if span else b""

    def read(self, section: Section) -> Value:
        span = self.span(section)
        return decode(self.data, span.value, span.end)[0] if span else None

    def header(self) -> Header:
        return Header(*self._fields(Section.HEADER, 5))

    def properties(self) -> Properties:
        return Properties(*self._fields(Section.PROPERTIES, 13))

    def annotations(self) -> Map:
        return self._map(Section.MESSAGE_ANNOTATIONS)

    def application_properties(self) -> Map:
        return self._map(Section.APPLICATION_PROPERTIES)

    def bare(self) -> bytes:
        """The bytes from the properties to the end, which no broker may change."""
        for span in self.spans:
            if span.section >= Section.PROPERTIES:
                return self.data[span.start :]
        return b""

    def replace(self, section: Section, value: bytes) -> bytes:
        """The message with one section added, replaced, or (with empty bytes) removed."""
        span = self.span(section)
        if span is not None:
            return self.data[: span.start] + value + self.data[span.end :]
        for later in self.spans:
            if later.section > section:
                return self.data[: later.start] + value + self.data[later.start :]
        return self.data + value

    def _fields(self, section: Section, most: int) -> list[Value]:
        fields = self.read(section)
        if fields is None:
            return []
        if not isinstance(fields, list) or len(fields) > most:
            raise Malformed(f"the {section.name.lower()} section is not a list of at most {most} fields")
        return fields

    def _map(self, section: Section) -> Map:
        value = self.read(section)
        if value is None:
            return Map()
        if not isinstance(value, Map):
            raise Malformed(f"the {section.name.lower().replace('_', ' ')} section is not a map")
        return value


def section_bytes(section: Section, value: Value) -> bytes:
    """A section as bytes, its descriptor included."""
    return b"\x00\x53" + bytes((section,)) + encode(value)


def properties_bytes(properties: Properties) -> bytes:
    """The properties section without trailing nulls."""
    fields: list[Value] = [getattr(properties, name) for name in PROPERTY_FIELDS]
    return section_bytes(Section.PROPERTIES, _trimmed(fields))


def header_bytes(header: Header) -> bytes:
    fields: list[Value] = [header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count]
    return section_bytes(Section.HEADER, _trimmed(fields))


def _trimmed(fields: list[Value]) -> list[Value]:
    while fields and fields[-1] is None:
        fields.pop()
    return fields


def data_section(body: bytes) -> bytes:
    """A body of binary data."""
    return data_head(body) + body


def data_head(body: bytes) -> bytes:
    """The bytes before a body of binary data. A caller that joins many bodies need not copy each one first."""
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big")


def batch_parts(data: bytes) -> list[bytes]:
    """The encoded messages inside a Service Bus batch (message format 0x80013700): one per data section."""
    found = _plain_parts(data)
    if found is not None:
        return found
    parts: list[bytes] = []
    data, spans = _ordered(data)
    for span in spans:
        if span.section not in _BODIES:
            continue
        part = decode(data, span.value, span.end)[0] if span.section == Section.DATA else None
        if type(part) is not bytes:
            raise Malformed("a batch may contain only data sections of binary")
        parts.append(part)
    return parts


def _plain_parts(data: bytes) -> list[bytes] | None:
    """The parts of a batch as most clients write it: long data sections at its end. None for all other forms."""
    pos, end = data.find(_LONG_DATA), len(data)
    try:
        if pos < 0 or any(span.section in _BODIES for span in split(data[:pos])):
            return None
    except Malformed:  # it may be so, or these bytes are within another section
        return None
    parts: list[bytes] = []
    while pos < end:
        start = pos + 8
        if start > end or data[pos : pos + 4] != _LONG_DATA:
            return None
        pos = start + int.from_bytes(data[pos + 4 : start], "big")
        if pos > end:
            return None
        parts.append(data[start:pos])
    return parts


_LONG_DATA = b"\x00\x53\x75\xb0"


def walk(data: bytes, first: int, count: int, span: Span) -> list[int]:
    """The start of each of `count` values, from the byte `first` on, and the end of the last: that of the section.

    This is the one walk over the values of a section. It finds the most frequent types by a table, and decodes nothing.
    """
    end, pos = span.end, first
    starts: list[int] = []
    # A wrong length leads past the end; the check after the loop finds it.
    try:
        for _ in range(count):
            starts.append(pos)
            size = _SIZE[data[pos]]
            if size > 0:
                pos += size
            else:
                pos = pos + 2 + data[pos + 1] if size == 0 else skip(data, pos, end)
    except IndexError:
        pos = -1
    if pos != end:
        raise Malformed(f"the section at byte {span.start} does not end where its values do")
    starts.append(pos)
    return starts


def content(data: bytes, span: Span, short: int) -> tuple[int, int]:
    """The start of the items of a list (0xc0) or map (0xc1), and how many items it declares."""
    _, _, start, end = span
    code = data[start]
    if code == short and start + 3 <= end:
        first, items = start + 3, data[start + 2]
    elif code == short | 0x10 and start + 9 <= end:
        first, items = start + 9, int.from_bytes(data[start + 5 : start + 9], "big")
    else:
        raise Malformed(f"the section at byte {span.start} is not a {'list' if short == 0xC0 else 'map'}")
    if items > end - first:
        raise Malformed(f"{items} items at byte {start} cannot fit into {end - first} bytes")
    return first, items


def pairs(data: bytes, span: Span) -> Iterable[tuple[int, int, int]]:
    """The pairs of a map section: where each key starts, where its value starts, and where that ends."""
    starts = map_starts(data, span)
    each = iter(starts)
    return zip(each, each, starts[2::2], strict=False)


def map_starts(data: bytes, span: Span) -> list[int]:
    """The start of each key and each value of a map section, in their order, and the end of the last value."""
    first, count = content(data, span, 0xC1)
    if count % 2:
        raise Malformed(f"the map at byte {span.value} has a key without a value")
    return walk(data, first, count, span)


_SIZE = [-1] * 256
"""The size of a value by its first byte. 0: the second byte is the length. -1: `skip` must compute it."""
for _size, _codes in {
    1: (0x40, 0x41, 0x42, 0x43, 0x44, 0x45),
    2: (0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56),
    3: (0x60, 0x61),
    5: (0x70, 0x71, 0x72, 0x73, 0x74),
    9: (0x80, 0x81, 0x82, 0x83, 0x84),
    17: (0x94, 0x98),
    0: (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0),
}.items():
    for _code in _codes:
        _SIZE[_code] = _size


class Entry(NamedTuple):
    """One pair of a map section: its key, and where key (`start`) and value are in the message."""

    key: Value
    start: int
    value: int
    end: int


def entries(data: bytes, span: Span) -> list[Entry]:
    """The pairs of a map section with their keys. Values are not decoded."""
    return [Entry(_key(data[start:value]), start, value, end) for start, value, end in pairs(data, span)]


def _key(raw: bytes) -> Value:
    return _usual_key(raw) if len(raw) <= _USUAL_KEY else decode(raw)[0]


@lru_cache(maxsize=1024)
def _usual_key(raw: bytes) -> Value:
    """A key. The messages of an entity have the same few ones."""
    return decode(raw)[0]


_USUAL_KEY = 64
"""Bytes of a key that is worth caching, at most."""


def map_section(section: Section, pairs: list[bytes]) -> bytes:
    """A map section made of encoded pairs; no bytes if there are none."""
    return b"\x00\x53" + bytes((section,)) + compound(0xC1, 2 * len(pairs), b"".join(pairs)) if pairs else b""
