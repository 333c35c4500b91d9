"""What the broker wrote onto a backlog message: where it stands in the queue, and since when."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from syphon.amqp import Malformed, Span

from .cutting import content, fields, keys, outline, take, value_at

_SEQUENCE, _ENQUEUED, _LOCKED = "x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"
_STAMPS = keys((_SEQUENCE, _ENQUEUED, _LOCKED))
_DELIVERY_COUNT = 4

Stamps: TypeAlias = tuple[int, int, int]
"""Sequence number, enqueued at, locked until."""
_USUAL = re.compile(
    rb"(?:(\xa3\x15x-opt-sequence-number\x81.{8})|(\xa3\x13x-opt-enqueued-time\x83.{8})"
    rb"|(\xa3\x12x-opt-locked-until\x83.{8})|(\xa3\x1dx-opt-enqueue-sequence-number(?:\x55.|\x81.{8}))"
    rb"|(\xa3\x13x-opt-message-state\x54.))*", re.DOTALL
).fullmatch  # fmt: skip
"""The annotations of most messages: the broker's, as brokers write them, in any order, and no others."""
_THREE_LONGS = struct.Struct(">qqq").unpack


class Facts(NamedTuple):
    """The broker's annotations, in milliseconds since 1970 where they are times. 0 is "not said"."""

    sequence_number: int = 0
    enqueued_at: int = 0
    locked_until: int = 0
    delivery_count: int = 0


def facts_of(payload: bytes) -> Facts:
    """Never raises: a message that cannot be read has no facts, and is dealt with where it is restored."""
    try:
        header, annotations, *_ = outline(payload)
        stamps = take(payload, annotations, _STAMPS).found if annotations is not None else {}
        return Facts(*stamps_from(payload, stamps), deliveries(payload, header))
    except Malformed:
        return Facts()


def usual_stamps(data: bytes, annotations: Span) -> Stamps | None:
    """The stamps at a glance, of annotations that hold nothing else. None: they must be walked through."""
    first, items = content(data, annotations, 0xC1)
    usual = _USUAL(data, first, annotations.end)
    if usual is None:
        return None
    pairs = usual.groups(b"")
    if sum(map(len, pairs)) != annotations.end - first or 2 * sum(map(bool, pairs)) != items:
        return None  # one is there twice, or they were not counted right
    sequence, enqueued, locked, _, _ = pairs
    if not (sequence and enqueued and locked):
        return None
    return _THREE_LONGS(sequence[-8:] + enqueued[-8:] + locked[-8:])


def stamps_from(data: bytes, found: Mapping[str, tuple[int, int]]) -> Stamps:
    """The stamps where `take` has found them."""
    return _number(data, found.get(_SEQUENCE)), _number(data, found.get(_ENQUEUED)), _number(data, found.get(_LOCKED))


def deliveries(data: bytes, header: Span | None) -> int:
    """How often the message was delivered before, as its header says."""
    if header is None or len(starts := fields(data, header)) < _DELIVERY_COUNT + 2:
        return 0
    return _number(data, (starts[_DELIVERY_COUNT], starts[_DELIVERY_COUNT + 1]))


def _number(data: bytes, place: tuple[int, int] | None) -> int:
    if place is None:
        return 0
    start, end = place
    if data[start] in b"\x81\x83":  # a long or a timestamp, as brokers write them
        return int.from_bytes(data[start + 1 : end], "big", signed=True)
    value = value_at(data, start, end)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0
