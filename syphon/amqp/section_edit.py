"""Edits sections as bytes: removes pairs from a map section, and sets fields of a list section.

All other bytes are copied, and never decoded and encoded again: even the choice between a short and a long form stays
unless it must change. Bytes that are not AMQP raise `Malformed`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from .amqp_values import Symbol, Value
from .decoding import Malformed, decode
from .encoding import encode
from .sections import Section, Span, content, map_starts, split, walk

NULL = b"\x40"
SHORT_MAP, LONG_MAP = 0xC1, 0xD1
MOST_FIELDS = 64
"""The properties have 13 fields. A list of millions of nulls would be small on the wire and large in memory."""
LONGEST_VALUE = 64 * 1024
"""What Service Bus allows for all properties of a message together. Longer values are not decoded."""


def keys(names: Iterable[str]) -> dict[bytes, str]:
    """All encodings of each name as a key: string or symbol, with a short or a long length."""
    forms: dict[bytes, str] = {}
    for name in names:
        for short in (encode(name), encode(Symbol(name))):
            forms[short] = name
            forms[bytes((short[0] | 0x10,)) + long_string(name)[1:]] = name
    return forms


def long_string(text: str) -> bytes:
    """A string in the long form, whatever its length."""
    raw = text.encode()
    return b"\xb1" + struct.pack(">I", len(raw)) + raw


class Outline(NamedTuple):
    """The sections that matter here."""

    header: Span | None
    annotations: Span | None
    properties: Span | None
    application: Span | None
    body: int
    """The start of the body, or of any other section after the application properties."""


def outline(data: bytes) -> Outline:
    """Finds the sections."""
    spans = split(data)
    place = {span.section: span for span in spans}
    body = next((span.start for span in spans if span.section > Section.APPLICATION_PROPERTIES), len(data))
    return Outline(
        place.get(Section.HEADER),
        place.get(Section.MESSAGE_ANNOTATIONS),
        place.get(Section.PROPERTIES),
        place.get(Section.APPLICATION_PROPERTIES),
        body,
    )


ByteRange: TypeAlias = tuple[int, int]
"""The first byte of a value, and the byte after its last."""


class Extracted(NamedTuple):
    """A map section from which some pairs were removed."""

    kept: list[ByteRange]
    """The byte ranges of the pairs that stay."""
    pairs: int
    """How many pairs stay."""
    found: dict[str, ByteRange]
    """The byte range of the value of each removed pair."""

    def remaining(self, data: bytes) -> bytes:
        """The bytes of the pairs that stay."""
        return b"".join([data[start:end] for start, end in self.kept])


EMPTY = Extracted([], 0, {})
"""The result for a section that is missing."""


def extract(data: bytes, span: Span | None, names: Mapping[bytes, str]) -> Extracted:
    """Goes through a map and removes the pairs whose keys are among `names` (made by `keys`)."""
    if span is None:
        return EMPTY
    found: dict[str, ByteRange] = {}
    kept: list[ByteRange] = []
    starts = map_starts(data, span)
    run, each = starts[0], iter(starts)
    for key, value, after in zip(each, each, starts[2::2], strict=False):
        name = names.get(data[key:value])
        if name is not None:
            if name in found:
                raise Malformed(f"the map at byte {span.value} has {name} twice")
            found[name] = (value, after)
            if run < key:
                kept.append((run, key))
            run = after
    if run < starts[-1]:
        kept.append((run, starts[-1]))
    return Extracted(kept, len(starts) // 2 - len(found), found)


def value_at(data: bytes, start: int, end: int) -> Value:
    """Decodes a value that `extract` or `fields` has found. Most values are short strings."""
    if end - start > LONGEST_VALUE:
        raise Malformed(f"the value at byte {start} has {end - start} bytes, {LONGEST_VALUE} are allowed")
    if data[start] == 0xA1:
        try:
            return data[start + 2 : end].decode()
        except UnicodeDecodeError:
            pass  # `decode` raises the error with its text
    return decode(data, start, end)[0]


def with_pairs(
    data: bytes, span: Span | None, section: Section, count: int, body: bytes, code: int | None = None
) -> bytes:
    """The map section with these pairs as its content; empty if there are none.

    It keeps its form, unless `code` gives another one; a map that is too long for the short form gets the long one.
    """
    if count == 0:
        return b""
    head, own = (data[span.start : span.value], data[span.value]) if span else (_descriptor(section), SHORT_MAP)
    return head + _compound(own if code is None else code, 2 * count, body)


def fits_short(count: int, size: int) -> bool:
    """Whether a list or map with this many items and bytes can have the short form."""
    return size < 255 and count < 256


def fields(data: bytes, span: Span) -> list[int]:
    """The start of each field of a list section, and the end of the last one."""
    end = span.end
    if data[span.value] == 0x45:
        return [end]
    first, count = content(data, span, 0xC0)
    if count > MOST_FIELDS:
        raise Malformed(f"the list at byte {span.value} has {count} fields, at most {MOST_FIELDS} are possible")
    return walk(data, first, count, span)


def field(data: bytes, span: Span, index: int) -> bytes | None:
    """The bytes of one field of a list; None if it is not set."""
    starts = fields(data, span)
    if index + 1 >= len(starts):
        return None
    raw = data[starts[index] : starts[index + 1]]
    return None if raw == NULL else raw


def with_fields(data: bytes, span: Span | None, section: Section, changes: Mapping[int, bytes]) -> bytes:
    """The list section with some fields, by index, added or replaced."""
    if not changes:
        return data[span.start : span.end] if span else b""
    if span is None:
        head, code, starts = _descriptor(section), 0xC0, [0]
    else:
        head, code, starts = data[span.start : span.value], data[span.value], fields(data, span)
    count, copied = len(starts) - 1, starts[0]
    parts: list[bytes] = []
    for index, value in sorted(changes.items()):
        if index < count:
            parts += (data[copied : starts[index]], value)
            copied = starts[index + 1]
        else:  # after the last field: there is nothing more to copy
            parts += (data[copied : starts[-1]], NULL * (index - count), value)
            count, copied = index + 1, starts[-1]
    parts.append(data[copied : starts[-1]])
    return head + _compound(code if code != 0x45 else 0xC0, count, b"".join(parts))


def _descriptor(section: Section) -> bytes:
    return b"\x00\x53" + bytes((section,))


def _compound(code: int, count: int, body: bytes) -> bytes:
    """A list or map in the form it had, or in the long form if the short one is too short."""
    if not code & 0x10 and fits_short(count, len(body)):
        return bytes((code, len(body) + 1, count)) + body
    return bytes((code | 0x10,)) + struct.pack(">II", len(body) + 4, count) + body
