"""What the broker wrote onto a backlog message: where it stands in the queue, and since when."""

from __future__ import annotations

from typing import NamedTuple

from syphon.amqp import Malformed, decode

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
        count = 0
        if header is not None and len(starts := fields(payload, header)) > _DELIVERY_COUNT + 1:
            count = _number(payload, (starts[_DELIVERY_COUNT], starts[_DELIVERY_COUNT + 1]))
        sequence, enqueued, locked = (_number(payload, stamps.get(name)) for name in (_SEQUENCE, _ENQUEUED, _LOCKED))
        return Facts(sequence, enqueued, locked, count)
    except Malformed:
        return Facts()


def _number(payload: bytes, place: tuple[int, int] | None) -> int:
    value = decode(payload, *place)[0] if place is not None else None
    return int(value) if isinstance(value, int) else 0
