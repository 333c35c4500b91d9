"""What the broker wrote onto a backlog message: where it stands in the queue, and since when."""

from __future__ import annotations

from dataclasses import dataclass

from syphon.amqp import Malformed, Message


@dataclass(frozen=True, slots=True)
class Facts:
    """The broker's annotations, in milliseconds since 1970 where they are times. 0 is "not said"."""

    sequence_number: int = 0
    enqueued_at: int = 0
    locked_until: int = 0
    delivery_count: int = 0


def facts_of(payload: bytes) -> Facts:
    """Never raises: a message that cannot be read has no facts, and is dealt with where it is restored."""
    try:
        message = Message(payload)
        annotations = message.annotations()
        count = message.header().delivery_count
    except Malformed:
        return Facts()
    numbers = [annotations.get(name) for name in ("x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until")]
    return Facts(*(_number(value) for value in numbers), _number(count))


def _number(value: object) -> int:
    return int(value) if isinstance(value, int) else 0
