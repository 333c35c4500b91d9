"""Taking pairs out of a map section and changing fields of a list section, all other bytes left as they stand.

What is kept is copied, never decoded and written again: not even the choice between a short and a long form changes
where it need not. Bytes that are not AMQP give `Malformed`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from syphon.amqp import Malformed, Section, Span, Symbol, Value, decode, encode, skip, split

NULL = b"\x40"
MOST_FIELDS = 64
"""Properties have 13. A list of millions would cost no bytes to speak of, and memory to look at."""
LONGEST_VALUE = 64 * 1024
"""What Service Bus allows for all properties of a message together. What is longer is not even decoded."""


def keys(names: Iterable[str]) -> dict[bytes, str]:
    """For each name the forms it can have as a key: string or symbol, with a short length or a long one."""
    forms: dict[bytes, str] = {}
    for name in names:
        for short in (encode(name), encode(Symbol(name))):
            raw = name.encode("ascii")
            forms[short] = name
            forms[bytes((short[0] | 0x10,)) + struct.pack(">I", len(raw)) + raw] = name
    return forms


class Outline(NamedTuple):
    """Where the sections stand that matter here."""

    header: Span | None
    annotations: Span | None
    properties: Span | None
    application: Span | None
    body: int
    """Where the body begins, or whatever else stands behind the application properties."""


def outline(data: bytes) -> Outline:
    """Find the sections."""
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


Place: TypeAlias = tuple[int, int]
"""Where a value stands: from its first byte to behind its last."""


class Taken(NamedTuple):
    """A map section with some of its pairs taken out."""

    kept: list[Place]
    """Where the pairs stand that stay."""
    pairs: int
    """How many those are."""
    found: dict[str, Place]
    """Of those taken out, where the value of each stands."""

    def rest(self, data: bytes) -> bytes:
        """The pairs that stay, as they stood."""
        return b"".join([data[start:end] for start, end in self.kept])


NOTHING = Taken([], 0, {})
"""Of a section that is not there."""


def take(data: bytes, span: Span | None, names: Mapping[bytes, str]) -> Taken:
    """Walk through a map and take out the pairs whose keys are among `names` (made by `keys`)."""
    if span is None:
        return NOTHING
    _, _, start, end = span
    first, items = content(data, span, 0xC1)
    if items % 2:
        raise Malformed(f"the map at byte {start} has a key without a value")
    found: dict[str, Place] = {}
    kept: list[Place] = []
    pos = run = first
    # A length that is wrong leads past the end, and that is seen behind the loop.
    try:
        for _ in range(items // 2):
            here = pos
            size = _SIZE[data[pos]]
            pos = pos + 2 + data[pos + 1] if size == 0 else pos + size if size > 0 else skip(data, pos, end)
            value = pos
            size = _SIZE[data[pos]]
            pos = pos + size if size > 0 else pos + 2 + data[pos + 1] if size == 0 else skip(data, pos, end)
            name = names.get(data[here:value])
            if name is not None:
                if name in found:
                    raise Malformed(f"the map at byte {start} has {name} twice")
                found[name] = (value, pos)
                if run < here:
                    kept.append((run, here))
                run = pos
    except IndexError:
        pos = -1
    if pos != end:
        raise Malformed(f"the map at byte {start} does not end where its pairs do")
    if run < end:
        kept.append((run, end))
    return Taken(kept, items // 2 - len(found), found)


def content(data: bytes, span: Span, short: int) -> tuple[int, int]:
    """Where the items of a list (0xc0) or map (0xc1) begin, and how many it says there are."""
    _, _, start, end = span
    code = data[start]
    if code == short and start + 3 <= end:
        first, items = start + 3, data[start + 2]
    elif code == short | 0x10 and start + 9 <= end:
        first, items = start + 9, int.from_bytes(data[start + 5 : start + 9], "big")
    else:
        raise Malformed(f"the section at byte {span.start} is no {'list' if short == 0xC0 else 'map'}")
    if items > end - first:
        raise Malformed(f"{items} items at byte {start} cannot fit into {end - first} bytes")
    return first, items


_SIZE = [-1] * 256
"""The bytes of a value by its first one: that many in all; 0, the second one is a length; -1, ask `skip`."""
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


def value_at(data: bytes, start: int, end: int) -> Value:
    """The value that stands there, of which `take` or `fields` has told. Most are short strings."""
    if end - start > LONGEST_VALUE:
        raise Malformed(f"the value at byte {start} has {end - start} bytes, {LONGEST_VALUE} are allowed")
    if data[start] == 0xA1:
        try:
            return data[start + 2 : end].decode()
        except UnicodeDecodeError:
            pass  # the codec has the words for it
    return decode(data, start, end)[0]


def with_pairs(data: bytes, span: Span | None, section: Section, count: int, pairs: bytes) -> bytes:
    """The map section with these pairs for its content; nothing at all if there are none."""
    if count == 0:
        return b""
    head, code = (data[span.start : span.value], data[span.value]) if span else (_descriptor(section), 0xC1)
    return head + _compound(code, 2 * count, pairs)


def fields(data: bytes, span: Span) -> list[int]:
    """Where each field of a list section begins, and behind them where the last one ends."""
    end = span.end
    if data[span.value] == 0x45:
        return [end]
    pos, count = content(data, span, 0xC0)
    if count > MOST_FIELDS:
        raise Malformed(f"the list at byte {span.value} has {count} fields, {MOST_FIELDS} at the most make sense")
    starts = []
    try:
        for _ in range(count):
            starts.append(pos)
            size = _SIZE[data[pos]]
            pos = pos + size if size > 0 else pos + 2 + data[pos + 1] if size == 0 else skip(data, pos, end)
    except IndexError:
        pos = -1
    if pos != end:
        raise Malformed(f"the list at byte {span.value} does not end where its fields do")
    starts.append(pos)
    return starts


def field(data: bytes, span: Span, index: int) -> bytes | None:
    """The bytes of one field of a list, None if it is not set."""
    starts = fields(data, span)
    if index + 1 >= len(starts):
        return None
    raw = data[starts[index] : starts[index + 1]]
    return None if raw == NULL else raw


def with_fields(data: bytes, span: Span | None, section: Section, changes: Mapping[int, bytes]) -> bytes:
    """The list section with some fields, by index, put in or put in place of what stood there."""
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
        else:  # behind the last one: nothing is left to copy once we come here
            parts += (data[copied : starts[-1]], NULL * (index - count), value)
            count, copied = index + 1, starts[-1]
    parts.append(data[copied : starts[-1]])
    return head + _compound(code if code != 0x45 else 0xC0, count, b"".join(parts))


def _descriptor(section: Section) -> bytes:
    return b"\x00\x53" + bytes((section,))


def _compound(code: int, count: int, body: bytes) -> bytes:
    """A list or map in the form it had; in the long one where the short one is too short."""
    if not code & 0x10 and len(body) < 255 and count < 256:
        return bytes((code, len(body) + 1, count)) + body
    return bytes((code | 0x10,)) + struct.pack(">II", len(body) + 4, count) + body
