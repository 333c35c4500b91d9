"""The layout of a message: the byte ranges that must be known before a section can be edited.

Parsing goes through the sections, their pairs and their fields. But messages of one sender have the same layout. So the
cache keeps a layout together with the bytes that determine it: constructors, lengths and keys, but no values. A message
that agrees in all of them has the same layout, and one comparison shows it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from syphon.amqp import Span, Value, content, pairs, skip
from syphon.amqp.section_edit import (
    LONG_MAP,
    NULL,
    SHORT_MAP,
    ByteRange,
    Extracted,
    Outline,
    extract,
    fields,
    keys,
    outline,
    value_at,
)

from .aliases import ALIASES, PATH, PATH_KEY, PATH_KEY_NO_DURABLE
from .backlog_message import GROUP_ID, NOT_CARRIED, Stamps, stamps_at

_PARTITION = "x-opt-partition-key"
_PARTITION_KEY = keys((_PARTITION,))

MOST_LAYOUTS = 512
"""Layouts in the cache, at most."""
LONGEST_HEAD = 2048
"""Bytes before the body. Messages with more than that rarely have the same layout again."""
MISSES_PER_ENTRY = 8
"""Of this many missed layouts one is added to the cache: where all messages differ, the cache must cost very little."""


class Layout(NamedTuple):
    """The byte ranges in a message."""

    outline: Outline
    fields: list[int]
    """The start of each field of the properties, and the end of the last one."""
    annotations: Extracted
    """The annotations without those that stay behind in the queue."""
    aliases: Extracted
    """The application properties without the aliases."""
    partition_key: ByteRange | None
    lacks_durable: bool = False
    """The sender's message had no `durable` field: see `aliases`."""
    map_form: int = SHORT_MAP
    """The form that the application properties had without aliases, if they fit into it."""


def parse_layout(data: bytes) -> Layout:
    """The layout of any message whose sections are in order. Raises Malformed, and OutOfOrder for other orders."""
    found = outline(data)
    aliases = extract(data, found.application, ALIASES)
    return Layout(
        found,
        fields(data, found.properties) if found.properties is not None else [],
        extract(data, found.annotations, NOT_CARRIED),
        aliases,
        _partition_key(data, found.annotations),
        *_notes(data, found.application, aliases.found.get(PATH)),
    )


def _partition_key(data: bytes, annotations: Span | None) -> ByteRange | None:
    if annotations is None or data.find(_PARTITION.encode(), annotations.start, annotations.end) < 0:
        return None  # most messages have none
    return extract(data, annotations, _PARTITION_KEY).found.get(_PARTITION)


def _notes(data: bytes, application: Span | None, path: ByteRange | None) -> tuple[bool, int]:
    """What the form of the `x-ms-path` pair says about the sender's message."""
    if application is None or path is None:
        return False, SHORT_MAP
    value, first = path[0], content(data, application, SHORT_MAP)[0]
    lacks_durable = data.endswith(PATH_KEY_NO_DURABLE, first, value)
    key = PATH_KEY_NO_DURABLE if lacks_durable else PATH_KEY
    is_long = data[application.value] == LONG_MAP and value == first + len(key)
    return lacks_durable, LONG_MAP if is_long else SHORT_MAP


def identity(data: bytes, layout: Layout) -> tuple[Value, str | None, str | None, Stamps]:
    """What a message says without aliases: message id, session id, partition key, the broker's stamps.

    It has a session id of its own only if a person put it into the backlog by hand.
    """
    message_id: Value = None
    session_id: Value = None
    partition_key: Value = None
    starts = layout.fields
    if len(starts) > 1:
        message_id = value_at(data, starts[0], starts[1])
        if len(starts) > GROUP_ID + 1 and data[starts[GROUP_ID]] != NULL[0]:
            session_id = value_at(data, starts[GROUP_ID], starts[GROUP_ID + 1])
    if layout.partition_key is not None:
        partition_key = value_at(data, *layout.partition_key)
    return (
        message_id,
        session_id if isinstance(session_id, str) else None,
        _text(partition_key) if isinstance(partition_key, str | bytes) else None,
        stamps_at(data, layout.annotations.found),
    )


def _text(key: str | bytes) -> str:
    """A partition key. The SDK writes it as binary when it sends a message again that it has received."""
    return key if isinstance(key, str) else key.decode(errors="backslashreplace")


SectionStarts: TypeAlias = tuple[int, ...]
"""The code and the start of each section; the body is the last."""


class _Known(NamedTuple):
    layout: Layout
    structure: Callable[[bytes], tuple[bytes, ...]]
    """Picks the bytes that the layout depends on."""
    expected: tuple[bytes, ...]


class LayoutCache:
    """The layouts of earlier messages. Threads may share a cache: its entries never change."""

    def __init__(self) -> None:
        self._known: dict[SectionStarts, _Known] = {}
        self._misses = 0

    def __len__(self) -> int:
        return len(self._known)

    def of(self, data: bytes) -> Layout:
        """The layout of a message, from the cache or by parsing. Raises Malformed."""
        starts = section_starts(data)
        if starts is None:
            return parse_layout(data)
        known = self._known.get(starts)
        if known is not None and known.structure(data) == known.expected:
            return known.layout
        layout = parse_layout(data)
        self._misses += 1
        if self._misses % MISSES_PER_ENTRY == 1 and layout.outline.body <= LONGEST_HEAD:
            self._remember(starts, data, layout)
        return layout

    def _remember(self, starts: SectionStarts, data: bytes, layout: Layout) -> None:
        if len(self._known) >= MOST_LAYOUTS:
            self._known.clear()
        structure = _picker(layout.outline.body, values(data, layout))
        self._known[starts] = _Known(layout, structure, structure(data))


layout_of = LayoutCache().of


def section_starts(data: bytes) -> SectionStarts | None:
    """The section starts of an ordinary message: short descriptors, and one section of binary data as its body.

    None for any other message.

    It uses plain numbers instead of `Section` because it runs for every message: an enum would double the cost.
    """
    starts: list[int] = []
    pos, last = 0, 0x6F
    try:
        while True:
            described, code, kind, size = _SECTION_HEAD(data, pos)
            if described != 0x0053 or code <= last:
                return None
            if kind == 0xC1 or kind == 0xC0 or kind == 0xA0:
                after = pos + 5 + size
            elif kind == 0xB0 or kind == 0xD0 or kind == 0xD1:
                after = pos + 8 + _UINT(data, pos + 4)[0]
            else:
                return None
            starts += (code, pos)
            if code > 0x74:
                is_all = code == 0x75 and (kind == 0xB0 or kind == 0xA0) and after == len(data)
                return tuple(starts) if is_all else None
            last, pos = code, after
    except struct.error:  # the message ends too early, or after a section that is not a body
        return None


_SECTION_HEAD = struct.Struct(">HBBB").unpack_from
"""A descriptor in its short form (0x00 0x53), the section's code, its constructor, and the first byte of its size."""
_UINT = struct.Struct(">I").unpack_from


def values(data: bytes, layout: Layout) -> Iterator[ByteRange]:
    """The byte ranges, in order, that no layout depends on: the contents of values, and the first two sections.

    The header and the delivery annotations, which have another lock token in each delivery, are not parsed: only their
    ends matter, and these are the starts of other sections.
    """
    _, annotations, properties, application, body = layout.outline
    yield 0, next((span.start for span in (annotations, properties, application) if span is not None), body)
    if annotations is not None:
        yield from _map_values(data, annotations)
    for start, end in pairwise(layout.fields):
        yield _held(data, start, end), end
    if application is not None:
        yield from _map_values(data, application)


def _map_values(data: bytes, span: Span) -> Iterator[ByteRange]:
    for _, value, end in pairs(data, span):
        yield _held(data, value, end), end


def _held(data: bytes, start: int, end: int) -> int:
    """The start of a value's content, after the bytes that give its type and length."""
    code = data[start]
    if code == 0:
        return _held(data, skip(data, start + 1, end), end)
    return start + 1 + _LENGTH_BYTES.get(code >> 4, 0)


_LENGTH_BYTES = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}


def _picker(end: int, left_out: Iterator[ByteRange]) -> Callable[[bytes], tuple[bytes, ...]]:
    """A function that picks all bytes up to `end` except these ranges."""
    form, pos = [">"], 0
    for start, after in left_out:
        form.append(f"{start - pos}s{after - start}x")
        pos = after
    form.append(f"{end - pos}s")
    return struct.Struct("".join(form)).unpack_from
