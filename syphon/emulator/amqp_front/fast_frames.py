"""The frames that every message needs, read and written without the codec: a delivery, its completion, the answer.

AMQP allows other forms of them. Those are decoded and encoded in full, with the same result. Frames are written with
all their fields: some clients index them without asking how many there are.
"""

from __future__ import annotations

import re
import struct

_UINT = rb"(\x43|\x52.|\x70.{4})"
_FALSE, _TRUE = rb"(?:\x42|\x56\x00)", rb"(?:\x41|\x56\x01)"
_COMPLETION = re.compile(
    rb"\x00\x53\x15\xc0(.)(.)"
    + _TRUE  # the role: a receiver
    + _UINT
    + rb"(?:\x40|\3)("
    + _TRUE
    + rb"|"
    + _FALSE
    + rb")\x00\x53\x24(?:\x45|\xc0\x01\x00)((?:\x40|\x41|\x42|\x56[\x00\x01])?)",
    re.DOTALL,
).fullmatch


def match_completion(body: bytes) -> tuple[int, bool] | None:
    """Recognises a disposition that completes one delivery. Returns the delivery id, and whether it is settled."""
    found = _COMPLETION(body)
    if found is None:
        return None
    size, count, delivery_id, settled, batchable = found.groups()
    if len(body) != 5 + size[0] or count[0] != 5 + bool(batchable):
        return None
    return int.from_bytes(delivery_id[1:], "big"), settled in (b"\x41", b"\x56\x01")


_ANSWER = struct.Struct(">IBBH4sBBBBI").pack
_ACCEPTED = b"\x40\x41\x00\x53\x24\x45\x40"


def accepted_frame(channel: int, role: bool, delivery_id: int) -> bytes:
    """A disposition that settles one delivery as accepted."""
    flag = 0x41 if role else 0x42
    return _ANSWER(27, 2, 0, channel, b"\x00\x53\x15\xc0", 14, 6, flag, 0x70, delivery_id) + _ACCEPTED


_DELIVERY = struct.Struct(">IBBH4sBBBIBIBB").pack
UNUSED_TRANSFER_FIELDS = b"\x40" * 5
"""The fields of a transfer after `more`, none of which this broker sets."""
_SETTLED = b"\x70\x00\x00\x00\x00\x41\x42" + UNUSED_TRANSFER_FIELDS
_UNSETTLED = b"\x70\x00\x00\x00\x00\x42\x42" + UNUSED_TRANSFER_FIELDS
DELIVERY_OVERHEAD = 38
"""The bytes of a frame with one whole message, without its tag and payload."""


def delivery_frame(channel: int, handle: int, delivery_id: int, tag: bytes, payload: bytes, settled: bool) -> bytes:
    """A transfer with a whole message. The tag is short, as all tags of this broker."""
    width = len(tag)
    size = DELIVERY_OVERHEAD + width + len(payload)
    head = _DELIVERY(
        size, 2, 0, channel, b"\x00\x53\x14\xc0", 25 + width, 11, 0x70, handle, 0x70, delivery_id, 0xA0, width
    )
    return head + tag + (_SETTLED if settled else _UNSETTLED) + payload
