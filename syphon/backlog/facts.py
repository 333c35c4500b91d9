"""What the broker wrote onto a backlog message: where it stands in the queue, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from syphon.amqp import Malformed, Span, decode

from .cutting import fields, keys, outline, take

_SEQUENCE, _ENQUEUED, _LOCKED = "x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"
_STAMPS = keys((_SEQUENCE, _ENQUEUED, _LOCKED))
_DELIVERY_COUNT = 4


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
        return facts_from(payload, header, stamps)
    except Malformed:
        return Facts()


def facts_from(data: bytes, header: Span | None, stamps: Mapping[str, tuple[int, int]]) -> Facts:
    """The same, for who has found header and annotations already."""
    count = 0
    if header is not None and len(starts := fields(data, header)) > _DELIVERY_COUNT + 1:
        count = _number(data, (starts[_DELIVERY_COUNT], starts[_DELIVERY_COUNT + 1]))
    sequence, enqueued, locked = stamps.get(_SEQUENCE), stamps.get(_ENQUEUED), stamps.get(_LOCKED)
    return Facts(_number(data, sequence), _number(data, enqueued), _number(data, locked), count)


def _number(data: bytes, place: tuple[int, int] | None) -> int:
    if place is None:
        return 0
    start, end = place
    if end - start == 9:  # a long or a timestamp, as brokers write them
        return int.from_bytes(data[start + 1 : end], "big", signed=True)
    value = decode(data, start, end)[0]
    return int(value) if isinstance(value, int) else 0
