"""Where things stand in a message: what must be known of it before it is cut.

To find out, its sections, their pairs and their fields are walked through. But messages of one sender look alike. So a
layout is remembered together with the bytes that decided it, which are those the walk looked at: constructors, lengths,
keys, and no values. A message that agrees in all of them has the same layout, and to see that is one comparison.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from syphon.amqp import Span, skip

from .aliases import ALIASES, NOT_CARRIED
from .section_edit import Outline, Place, Taken, content, fields, keys, outline, take

_PARTITION = "x-opt-partition-key"
_PARTITION_KEY = keys((_PARTITION,))

MOST_LAYOUTS = 512
LONGEST_HEAD = 2048
"""Bytes before the body. Who writes more than that does not write it alike again."""
MISSES_A_LESSON = 8
"""Not every new layout is worth remembering: where no two messages are alike, remembering must cost next to nothing."""


class Layout(NamedTuple):
    """The places in a message: the same in all that are laid out alike."""

    outline: Outline
    fields: list[int]
    """Where each field of the properties begins, and behind them where the last one ends."""
    annotations: Taken
    """Without those that are not carried."""
    aliases: Taken
    """The application properties without the aliases."""
    partition_key: Place | None


def walk(data: bytes) -> Layout:
    """The layout of any message. Raises Malformed."""
    found = outline(data)
    return Layout(
        found,
        fields(data, found.properties) if found.properties is not None else [],
        take(data, found.annotations, NOT_CARRIED),
        take(data, found.application, ALIASES),
        take(data, found.annotations, _PARTITION_KEY).found.get(_PARTITION),
    )


Landmarks: TypeAlias = tuple[int, ...]
"""The code and the start of each section, the body's last."""


class _Known(NamedTuple):
    layout: Layout
    decisive: Callable[[bytes], tuple[bytes, ...]]
    """Picks the bytes that the layout depends on."""
    expected: tuple[bytes, ...]


class Layouts:
    """Those that were seen before. Threads may share them: what is remembered is never changed."""

    def __init__(self) -> None:
        self._known: dict[Landmarks, _Known] = {}
        self._misses = 0

    def __len__(self) -> int:
        return len(self._known)

    def of(self, data: bytes) -> Layout:
        """The layout of a message, found at a glance or on foot. Raises Malformed."""
        marks = landmarks(data)
        if marks is None:
            return walk(data)
        known = self._known.get(marks)
        if known is not None and known.decisive(data) == known.expected:
            return known.layout
        layout = walk(data)
        self._misses += 1
        if self._misses % MISSES_A_LESSON == 1 and layout.outline.body <= LONGEST_HEAD:
            self._remember(marks, data, layout)
        return layout

    def _remember(self, marks: Landmarks, data: bytes, layout: Layout) -> None:
        if len(self._known) >= MOST_LAYOUTS:
            self._known.clear()
        decisive = _picked(layout.outline.body, values(data, layout))
        self._known[marks] = _Known(layout, decisive, decisive(data))


layout_of = Layouts().of


def landmarks(data: bytes) -> Landmarks | None:
    """Of an ordinary message: short descriptors, and one section of binary data for its body. None: it is another one.

    Plain numbers instead of `Section`: every message passes here, and an enum would double the cost.
    """
    marks: list[int] = []
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
            marks += (code, pos)
            if code > 0x74:
                is_all = code == 0x75 and (kind == 0xB0 or kind == 0xA0) and after == len(data)
                return tuple(marks) if is_all else None
            last, pos = code, after
    except struct.error:  # it ends too early, or after a section that is no body
        return None


_SECTION_HEAD = struct.Struct(">HBBB").unpack_from
"""A descriptor in its short form (0x00 0x53), the section's code, its constructor, and the first byte of its size."""
_UINT = struct.Struct(">I").unpack_from


def values(data: bytes, layout: Layout) -> Iterator[Place]:
    """In the order they stand, the bytes that no layout depends on: the header, and what values hold."""
    header, annotations, _, application, _ = layout.outline
    if header is not None:
        yield header.start, header.end
    if annotations is not None:
        yield from _map_values(data, annotations)
    for start, end in pairwise(layout.fields):
        yield _held(data, start, end), end
    if application is not None:
        yield from _map_values(data, application)


def _map_values(data: bytes, span: Span) -> Iterator[Place]:
    pos, items = content(data, span, 0xC1)
    for _ in range(items // 2):
        value = skip(data, pos, span.end)
        pos = skip(data, value, span.end)
        yield _held(data, value, pos), pos


def _held(data: bytes, start: int, end: int) -> int:
    """Where a value's own bytes begin, behind those that say what it is and how long."""
    code = data[start]
    if code == 0:
        return _held(data, skip(data, start + 1, end), end)
    return start + 1 + _LENGTH_BYTES.get(code >> 4, 0)


_LENGTH_BYTES = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}


def _picked(end: int, left_out: Iterator[Place]) -> Callable[[bytes], tuple[bytes, ...]]:
    """What picks all bytes up to `end` but these."""
    form, pos = [">"], 0
    for start, after in left_out:
        form.append(f"{start - pos}s{after - start}x")
        pos = after
    form.append(f"{end - pos}s")
    return struct.Struct("".join(form)).unpack_from
