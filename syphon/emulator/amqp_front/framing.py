"""Frames: whole ones cut out of the bytes that come in, and performatives made to fit those that go out."""

from __future__ import annotations

from syphon.amqp.frames import Close, Composite, Detach, Disposition, End, Rejected

MAX_FRAME_SIZE = 65536
HEADER_SIZE = 8


class ProtocolError(Exception):
    """The peer did what AMQP does not allow."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


def cut(data: bytes, pos: int, kind: int) -> tuple[int, bytes, int] | None:
    """The next whole frame: its channel, its body and where it ends. None until all of it is there."""
    if len(data) - pos < HEADER_SIZE:
        return None
    size = int.from_bytes(data[pos : pos + 4], "big")
    offset = data[pos + 4] * 4
    if size > MAX_FRAME_SIZE:
        raise ProtocolError(
            "amqp:connection:framing-error", f"A frame of {size} bytes exceeds the limit of {MAX_FRAME_SIZE}."
        )
    if offset < HEADER_SIZE or size < offset or data[pos + 5] != kind:
        raise ProtocolError("amqp:connection:framing-error", "A frame's header is not valid.")
    after = pos + size
    if after > len(data):
        return None
    return int.from_bytes(data[pos + 6 : pos + 8], "big"), data[pos + offset : after], after


def fitted(performative: Composite, frame_size: int) -> bytes | None:
    """A performative's bytes for a frame of this size. An error tells as much as fits; None if that is not enough."""
    room = frame_size - HEADER_SIZE
    body = performative.to_bytes()
    if len(body) > room:
        holder = performative.state if isinstance(performative, Disposition) else performative
        error = holder.error if isinstance(holder, Close | End | Detach | Rejected) else None
        while error is not None and error.description and len(body) > room:
            error.description = error.description[: -(len(body) - room)]
            body = performative.to_bytes()
    return body if len(body) <= room else None
