"""The two frames that nearly every frame is, recognised without decoding: what one expression tells of a message.

A message costs a transfer and a disposition each way. Other forms that AMQP has for them are decoded in full, with the
same result.
"""

from __future__ import annotations

import re

_UINT = rb"(\x43|\x52.|\x70.{4})"
_TRANSFER = re.compile(
    rb"\x00\x53\x14\xc0(.)(.)" + _UINT + _UINT + rb"\xa0\x10(.{16})(?:\x40|\x43|\x52.|\x70.{4})[\x40\x42][\x40\x42]"
    rb"([\x40\x42]{4}[\x40-\x42]|[\x40\x42]{0,4})",
    re.DOTALL,
).match
_DISPOSITION = re.compile(
    rb"\x00\x53\x15\xc0(.)(.)([\x41\x42])" + _UINT + rb"(?:\x40|\4)\x41\x00\x53\x24\x45([\x40-\x42]?)", re.DOTALL
).fullmatch


def usual_transfer(data: bytes, start: int, end: int) -> tuple[int, int, bytes, int] | None:
    """A whole message in one frame, unsettled, under a lock token: its link's handle, its delivery id, the token, and
    where the message begins."""
    found = _TRANSFER(data, start, end)
    if found is None:
        return None
    size, count, handle, delivery_id, token, rest = found.groups()
    payload = found.end()
    if payload != start + 5 + size[0] or count[0] != 6 + len(rest):
        return None
    return int.from_bytes(handle[1:], "big"), int.from_bytes(delivery_id[1:], "big"), token, payload


def usual_disposition(data: bytes, start: int, end: int) -> tuple[bool, int] | None:
    """One delivery, accepted and settled: the role of who says so, and the delivery's id."""
    found = _DISPOSITION(data, start, end)
    if found is None:
        return None
    size, count, role, delivery_id, rest = found.groups()
    if end != start + 5 + size[0] or count[0] != 5 + len(rest):
        return None
    return role == b"\x41", int.from_bytes(delivery_id[1:], "big")
