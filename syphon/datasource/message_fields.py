"""Reads the fields of one message from its bytes: quickly, because a read has 50 microseconds for each message.

Sections are walked by hand, and the most frequent types (null and short strings) are read on the spot; all others go
through the codec. No clock, no I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from syphon.amqp import Long, Malformed, OutOfOrder, Section, Timestamp, Value, decode, in_order, split

_SECTION_HEAD = struct.Struct(">HBB").unpack_from
_UINT, _LONG = struct.Struct(">I").unpack_from, struct.Struct(">q").unpack_from
_DATA, _SEQUENCE, _VALUE = int(Section.DATA), int(Section.SEQUENCE), int(Section.VALUE)
_UNREADABLE = (Malformed, IndexError, UnicodeDecodeError, struct.error)

Pairs = dict[str, Value]
"""A map by its keys, as text. Of a key that occurs twice, the last one counts."""


class MessageFields(NamedTuple):
    """The sections of a message, as far as they are read."""

    header: tuple[Value, ...] = ()
    annotations: Mapping[str, Value] = MappingProxyType({})
    properties: Sequence[Value] = ()
    application: Mapping[str, Value] = MappingProxyType({})
    body: bytes | None = None
    is_readable: bool = True
    """False if the sender's sections are not AMQP. What the broker wrote before them is still read."""


def read_fields(data: bytes, *, with_body: bool, with_application: bool = True) -> MessageFields:
    """The fields of a message. Never raises: the sender may have written anything."""
    header: tuple[Value, ...] = ()
    annotations: Pairs = {}
    properties: list[Value] = []
    application: Pairs = {}
    body: bytes | None = None
    try:
        for code, start, end in _sections(data):
            if code == 0x72:
                annotations = _pairs(data, start, end)
            elif code == 0x73:
                properties = _items(data, start, end)
            elif code == 0x74:
                if with_application:
                    application = _pairs(data, start, end)
            elif code == 0x70:
                header = _header(data[start:end])
            elif code > 0x74:
                body = _body(data, code, start) if with_body else None
                break
    except OutOfOrder:
        return read_fields(in_order(data), with_body=with_body, with_application=with_application)  # M8
    except _UNREADABLE:
        return MessageFields(header, annotations, is_readable=False)
    return MessageFields(header, annotations, properties, application, body)


def _sections(data: bytes) -> list[tuple[int, int, int]]:
    """Code, start and end of each section's value, up to the first one of the body."""
    found: list[tuple[int, int, int]] = []
    pos, size, last = 0, len(data), 0
    while pos < size:
        described, code, kind = _SECTION_HEAD(data, pos)
        if described != 0x0053 or code <= last or code > 0x78:
            return _unusual_sections(data, found)
        if code > 0x74:
            found.append((code, pos + 3, size))
            return found
        if kind == 0xC1 or kind == 0xC0:
            after = pos + 5 + data[pos + 4]
        elif kind == 0xD1 or kind == 0xD0:
            after = pos + 8 + _UINT(data, pos + 4)[0]
        elif kind == 0x45:
            after = pos + 4
        else:
            return _unusual_sections(data, found)
        if after > size:
            return _unusual_sections(data, found)
        found.append((code, pos + 3, after))
        last, pos = code, after
    return found


def _unusual_sections(data: bytes, found: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The same by the codec, which knows all descriptors. Sections before those that are not AMQP are returned."""
    try:
        return [(span.section, span.value, span.end) for span in split(data)]
    except OutOfOrder:
        raise
    except Malformed:
        if not found:
            raise
        return [
            *found,
            (0x73, found[-1][2], len(data)),
        ]  # a placeholder that fails to parse


def _items(data: bytes, start: int, end: int) -> list[Value]:
    """The items of a list."""
    kind = data[start]
    if kind == 0xC0:
        count, pos = data[start + 2], start + 3
    elif kind == 0xD0:
        count, pos = _UINT(data, start + 5)[0], start + 9
    elif kind == 0x45:
        return []
    else:
        raise Malformed(f"the section at byte {start} is not a list")
    if count > end - pos:
        raise Malformed(f"{count} items at byte {start} cannot fit")
    items: list[Value] = []
    for _ in range(count):
        kind = data[pos]
        if kind == 0x40:
            items.append(None)
            pos += 1
        elif kind == 0xA1:
            after = pos + 2 + data[pos + 1]
            items.append(data[pos + 2 : after].decode())
            pos = after
        else:
            value, pos = decode(data, pos, end)
            items.append(value)
    if pos != end:
        raise Malformed(f"the section at byte {start} does not end where its items do")
    return items


def _pairs(data: bytes, start: int, end: int) -> Pairs:
    kind = data[start]
    if kind == 0xC1:
        count, pos = data[start + 2], start + 3
    elif kind == 0xD1:
        count, pos = _UINT(data, start + 5)[0], start + 9
    else:
        raise Malformed(f"the section at byte {start} is not a map")
    if count % 2 or count > end - pos:
        raise Malformed(f"the map at byte {start} claims {count} keys and values")
    pairs: Pairs = {}
    for _ in range(count // 2):
        kind = data[pos]
        if kind == 0xA1 or kind == 0xA3:
            after = pos + 2 + data[pos + 1]
            key = _text(data[pos + 2 : after])
        else:
            found, after = decode(data, pos, end)
            key = found if isinstance(found, str) else str(found)
        kind = data[after]
        if kind == 0xA1:
            pos = after + 2 + data[after + 1]
            pairs[key] = data[after + 2 : pos].decode()
        elif kind == 0x83:
            pos = after + 9
            pairs[key] = Timestamp(_LONG(data, after + 1)[0])
        elif kind == 0x81:
            pos = after + 9
            pairs[key] = Long(_LONG(data, after + 1)[0])
        else:
            pairs[key], pos = decode(data, after, end)
    if pos != end:
        raise Malformed(f"the map at byte {start} does not end where its pairs do")
    return pairs


@lru_cache(maxsize=4096)
def _text(raw: bytes) -> str:
    """A key. The messages of an entity have the same few ones."""
    return raw.decode()


@lru_cache(maxsize=256)
def _header(section: bytes) -> tuple[Value, ...]:
    """The fields of a header. Most messages of a queue have the same one."""
    return tuple(_items(section, 0, len(section)))


def _body(data: bytes, code: int, start: int) -> bytes | None:
    """The content of a body: of binary data its bytes, of one string or binary value that value.

    Any other body (a map, say) is its sections in AMQP encoding, descriptors included.
    """
    kind, size = data[start], len(data)
    if code == _DATA and kind == 0xB0 and start + 5 + _UINT(data, start + 1)[0] == size:
        return data[start + 5 :]
    if code == _DATA and kind == 0xA0 and start + 2 + data[start + 1] == size:
        return data[start + 2 :]
    spans = [span for span in split(data) if span.section in (_DATA, _SEQUENCE, _VALUE)]
    if not spans:
        return None
    if code == _DATA:
        parts = [decode(data, span.value, span.end)[0] for span in spans]
        return b"".join(part for part in parts if isinstance(part, bytes))
    if len(spans) == 1 and data[start] in _TEXT_OR_BINARY:
        content = decode(data, start)[0]
        return content.encode() if isinstance(content, str) else content if isinstance(content, bytes) else None
    return data[spans[0].start : spans[-1].end]


_TEXT_OR_BINARY = frozenset((0xA0, 0xB0, 0xA1, 0xB1))
