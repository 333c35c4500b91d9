"""Reads what the broker wrote onto a message: sequence number, enqueued time, end of the lock, delivery count."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from syphon.amqp import Malformed, Section, Span, split

from .aliases import ENQUEUED_TIME, LOCKED_UNTIL, SEQUENCE_NUMBER
from .section_edit import ByteRange, extract, fields, keys, value_at

_STAMPS = keys((SEQUENCE_NUMBER, ENQUEUED_TIME, LOCKED_UNTIL))
_DELIVERY_COUNT = 4
_LONG = struct.Struct(">q").unpack_from


Stamps: TypeAlias = tuple[int, int, int]
"""Sequence number, enqueued at, locked until."""


class BrokerStamps(NamedTuple):
    """What the broker wrote. Times are milliseconds since 1970. 0 means that the broker wrote nothing."""

    sequence_number: int = 0
    enqueued_at: int = 0
    locked_until: int = 0
    delivery_count: int = 0


def stamps_of(payload: bytes) -> BrokerStamps:
    """The stamps of a message. Never raises: a message that cannot be read has none, and restoring it gives the error.

    The broker's sections come first. The sender's sections after them may be malformed.
    """
    try:
        spans = {span.section: span for span in split(payload, until=Section.MESSAGE_ANNOTATIONS)}
        stamps = extract(payload, spans.get(Section.MESSAGE_ANNOTATIONS), _STAMPS).found
        return BrokerStamps(*stamps_at(payload, stamps), deliveries(payload, spans.get(Section.HEADER)))
    except Malformed:
        return BrokerStamps()


def stamps_at(data: bytes, found: Mapping[str, ByteRange]) -> Stamps:
    """The stamps in the ranges that `extract` has found."""
    if not found:
        return 0, 0, 0
    sequence, enqueued, locked = found.get(SEQUENCE_NUMBER), found.get(ENQUEUED_TIME), found.get(LOCKED_UNTIL)
    return _number(data, sequence), _number(data, enqueued), _number(data, locked)


def deliveries(data: bytes, header: Span | None) -> int:
    """How often the message was delivered before, according to its header."""
    if header is None or len(starts := fields(data, header)) < _DELIVERY_COUNT + 2:
        return 0
    return _number(data, (starts[_DELIVERY_COUNT], starts[_DELIVERY_COUNT + 1]))


def _number(data: bytes, where: ByteRange | None) -> int:
    if where is None:
        return 0
    start, end = where
    code = data[start]
    if code == 0x81 or code == 0x83:  # a long or a timestamp, as brokers write them
        number: int = _LONG(data, start + 1)[0]
        return number
    value = value_at(data, start, end)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0
