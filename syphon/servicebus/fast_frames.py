"""The two most frequent frames, recognised and written without the codec: a transfer, and a disposition `accepted`.

Each message costs a transfer and a disposition each way. AMQP allows other forms of both frames; those are decoded in
full, with the same result.
"""

from __future__ import annotations

import re

from syphon.amqp import Described, ULong, compound, encode
from syphon.amqp.frames import frame

CHANNEL = 2
"""The channel of our session. The SDK uses channel 1."""

TRANSFER, DISPOSITION = b"\x00\x53\x14", b"\x00\x53\x15"

ACCEPTED = Described(ULong(0x24), [])
ACCEPTED_BYTES = encode(ACCEPTED)
COMPLETION_TAIL = b"\x40\x42" + ACCEPTED_BYTES
COMPLETION_HEAD = frame(CHANNEL, DISPOSITION + compound(0xC0, 5, b"\x41\x70" + bytes(4) + COMPLETION_TAIL))
COMPLETION_HEAD = COMPLETION_HEAD[: -len(COMPLETION_TAIL) - 4]
"""The frame that completes one delivery is this head, the delivery id in 4 bytes, and the tail. Every message needs
one."""

_UINT = rb"(\x43|\x52.|\x70.{4})"
_TRANSFER = re.compile(
    rb"\x00\x53\x14\xc0(.)(.)" + _UINT + _UINT + rb"\xa0\x10(.{16})(?:\x40|\x43|\x52.|\x70.{4})[\x40\x42][\x40\x42]"
    rb"([\x40\x42]{4}[\x40-\x42]|[\x40\x42]{0,4})",
    re.DOTALL,
).match
_DISPOSITION = re.compile(
    rb"\x00\x53\x15\xc0(.)(.)([\x41\x42])" + _UINT + rb"(?:\x40|\4)\x41\x00\x53\x24\x45([\x40-\x42]?)", re.DOTALL
).fullmatch


def match_transfer(data: bytes, start: int, end: int) -> tuple[int, int, bytes, int] | None:
    """Recognises a whole message in one frame, unsettled, with a lock token as its tag.

    Returns the link's handle, the delivery id, the lock token, and where the message begins.
    """
    found = _TRANSFER(data, start, end)
    if found is None:
        return None
    size, count, handle, delivery_id, token, rest = found.groups()
    payload = found.end()
    if payload != start + 5 + size[0] or count[0] != 6 + len(rest):
        return None
    return int.from_bytes(handle[1:], "big"), int.from_bytes(delivery_id[1:], "big"), token, payload


def match_disposition(data: bytes, start: int, end: int) -> tuple[bool, int] | None:
    """Recognises one delivery, accepted and settled. Returns the role of the peer that says so, and the delivery id."""
    found = _DISPOSITION(data, start, end)
    if found is None:
        return None
    size, count, role, delivery_id, rest = found.groups()
    if end != start + 5 + size[0] or count[0] != 5 + len(rest):
        return None
    return role == b"\x41", int.from_bytes(delivery_id[1:], "big")
