"""The answer to a peek: the messages in it, each with its sequence number and its state.

The usual forms are read by hand, because a backlog may have millions of messages; all others by the codec.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from enum import IntEnum
from typing import NamedTuple

from syphon.amqp import Malformed, Map, Section, Value, decode, split
from syphon.amqp.section_edit import extract, keys
from syphon.model import SyphonError, from_condition

from .management_node import ManagementReply

_SEQUENCE, _STATE = "x-opt-sequence-number", "x-opt-message-state"
_KEYS = keys((_SEQUENCE, _STATE))


class MessageState(IntEnum):
    """The state of a message, by the numbers that Service Bus annotates it with."""

    ACTIVE = 0
    """The message can be received, or a receiver has it locked."""
    DEFERRED = 1
    SCHEDULED = 2


class Peeked(NamedTuple):
    """A message that was peeked at."""

    payload: bytes
    sequence_number: int
    state: MessageState


def messages_of(reply: ManagementReply, path: str) -> list[Peeked]:
    """The messages in the answer to a peek into `path`. Raises the error that it reports."""
    if reply.status in (202, 204):
        return []
    if reply.status != 200:
        text = f"'{path}' cannot be peeked at: {reply.description} (status {reply.status})"
        raise from_condition(reply.condition, text) if reply.condition else SyphonError(text)
    try:
        return [stamped(payload) for payload in payloads_of(reply)]
    except Malformed as error:
        raise SyphonError(f"'{path}' answered a peek with bytes that are not AMQP: {error}.") from None


def payloads_of(reply: ManagementReply) -> list[bytes]:
    """The messages in the answer to a peek. The usual form is read by hand: a page has 250 of them."""
    span = reply.message.span(Section.VALUE)
    if span is not None:
        try:
            if (usual := _usual_payloads(reply.message.data, span.value, span.end)) is not None:
                return usual
        except (IndexError, struct.error):
            pass
    entries = body.get("messages") if isinstance(body := reply.body, Map) else None
    payloads = (
        [entry.get("message") for entry in entries if isinstance(entry, Map)] if isinstance(entries, list) else []
    )
    return [payload for payload in payloads if isinstance(payload, bytes)]


_MESSAGES, _MESSAGE = b"\xa1\x08messages", b"\xa1\x07message"


def _usual_payloads(data: bytes, start: int, end: int) -> list[bytes] | None:
    """The payloads in {messages: [{message: binary}, …]}; None if the value has any other form."""
    pos = start + 9 if data[start] == 0xD1 else start + 3 if data[start] == 0xC1 else 0
    if not pos or data[pos - 1] != 2 or not data.startswith(_MESSAGES, pos):
        return None
    pos += len(_MESSAGES)
    if data[pos] == 0xD0:
        count, pos = _UINT(data, pos + 5)[0], pos + 9
    elif data[pos] == 0xC0:
        count, pos = data[pos + 2], pos + 3
    else:
        return None
    found: list[bytes] = []
    for _ in range(count):
        pos += 9 if data[pos] == 0xD1 else 3 if data[pos] == 0xC1 else end
        if data[pos - 1] != 2 or not data.startswith(_MESSAGE, pos):
            return None
        pos += len(_MESSAGE)
        if data[pos] == 0xB0:
            size, pos = _UINT(data, pos + 1)[0], pos + 5
        elif data[pos] == 0xA0:
            size, pos = data[pos + 1], pos + 2
        else:
            return None
        found.append(data[pos : pos + size])
        pos += size
    return found if pos == end else None


def stamped(payload: bytes) -> Peeked:
    """A message with two annotations of the broker: its sequence number and its state."""
    number: Value = None
    code: Value = None
    with suppress(IndexError, struct.error):
        number, code = usual_stamps(payload)
    if number is None:
        number, code = _stamps(payload)
    if not isinstance(number, int):
        raise SyphonError(f"A message of {len(payload)} bytes has no {_SEQUENCE}: its place in the queue is unknown.")
    # A missing or unknown state counts as active: the queue must not be reported as empty because of it.
    state = _STATES.get(code, MessageState.ACTIVE) if isinstance(code, int) else MessageState.ACTIVE
    return Peeked(payload, int(number), state)


_STATES = {int(state): state for state in MessageState}
_UINT, _LONG = struct.Struct(">I").unpack_from, struct.Struct(">q").unpack_from
_SIZES = {0x40: 1, 0x41: 1, 0x42: 1, 0x43: 1, 0x44: 1, 0x50: 2, 0x51: 2, 0x52: 2, 0x53: 2, 0x54: 2, 0x55: 2, 0x56: 2}
_SIZES |= {0x60: 3, 0x61: 3, 0x70: 5, 0x71: 5, 0x80: 9, 0x81: 9, 0x83: 9, 0x98: 17}
"""The bytes of a value with its constructor, for the types that brokers annotate messages with."""


def usual_stamps(data: bytes) -> tuple[int | None, int | None]:
    """The sequence number and the state's code, if all annotations up to them have the usual forms. Raises IndexError,
    or struct.error, for other bytes.
    """
    pos = 0
    while data[pos] == 0 and data[pos + 1] == 0x53 and data[pos + 2] < 0x72:  # the header, the delivery annotations
        pos += 5 + data[pos + 4] if data[pos + 3] in (0xC0, 0xC1) else 8 + _UINT(data, pos + 4)[0]
    if data[pos + 2] != 0x72:
        return None, None
    if data[pos + 3] == 0xD1:
        count, end, pos = _UINT(data, pos + 8)[0], pos + 8 + _UINT(data, pos + 4)[0], pos + 12
    elif data[pos + 3] == 0xC1:
        count, end, pos = data[pos + 5], pos + 5 + data[pos + 4], pos + 6
    else:
        return None, None
    number = state = None
    for _ in range(count // 2):
        if data[pos] != 0xA3:
            return None, None
        value = pos + 2 + data[pos + 1]
        name, code = data[pos + 2 : value], data[value]
        if name == b"x-opt-sequence-number":
            if code != 0x81 or number is not None:
                return None, None
            number = _LONG(data, value + 1)[0]
        elif name == b"x-opt-message-state":
            if code != 0x54 or state is not None:
                return None, None
            state = data[value + 1]
        pos = (
            value + _SIZES[code] if code in _SIZES else value + 2 + data[value + 1] if code in (0xA1, 0xA3) else end + 1
        )
    return (number, state) if pos == end else (None, None)


def _stamps(payload: bytes) -> tuple[Value, Value]:
    """The same for all forms. Reads no further than the annotations: the sections after them may not be AMQP at all."""
    try:
        for span in split(payload, until=Section.MESSAGE_ANNOTATIONS):
            if span.section == Section.MESSAGE_ANNOTATIONS:
                found = extract(payload, span, _KEYS).found
                number, state = (
                    decode(payload, *found[name])[0] if name in found else None for name in (_SEQUENCE, _STATE)
                )
                return number, state
    except Malformed:
        pass
    return None, None
