"""The frames in which AMQP travels over WebSockets: whole binary messages, read and written without a library.

A library keeps each message until all of it has arrived, and copies it several times on its way. AMQP is a stream and
does not care where a message ends, so the payload is passed on as it comes. All other frames (control frames, parts of
messages, errors) are rare and belong to a library such as wsproto.
"""

from __future__ import annotations

from collections.abc import Callable

apply_mask: Callable[[bytes | memoryview, bytes], bytes] | None
try:
    from websockets.speedups import apply_mask
except ImportError:
    apply_mask = None

BINARY_MESSAGE = 0x82
"""The first byte of a frame that is a whole binary message."""
FINAL, CONTROL, MASKED = 0x80, 0x08, 0x80
LONGEST = 2**63

Piece = bytes | memoryview


def server_message(data: Piece) -> bytes:
    """A binary message as a server sends it: without a mask."""
    return b"".join((bytes((BINARY_MESSAGE,)), encoded_length(len(data)), data))


def client_message(data: Piece, key: bytes) -> bytes | None:
    """A binary message as a client sends it: masked with a key of four bytes. None without the function in C."""
    if apply_mask is None:
        return None
    first, *more = encoded_length(len(data))
    return b"".join((bytes((BINARY_MESSAGE, first | MASKED, *more)), key, apply_mask(data, key)))


def encoded_length(size: int) -> bytes:
    """The length in the head of a frame, in its shortest form: the only one that is allowed."""
    if size < 126:
        return bytes((size,))
    return b"\x7e" + size.to_bytes(2, "big") if size < 65_536 else b"\x7f" + size.to_bytes(8, "big")


class FrameSorter:
    """Cuts what arrives into the payload of whole binary messages and all other frames."""

    def __init__(self, *, masked: bool, unread: bytes = b"") -> None:
        self._masked = masked
        """Whether the peer is a client: it must mask what it sends."""
        self._head = unread
        """The bytes of a head that has not arrived completely."""
        self._left = 0
        """The bytes of the present frame that have not arrived."""
        self._is_payload = False
        self._key = b""
        self._in_parts = False
        """Whether a message of several frames has begun and not ended."""

    def sort(self, data: bytes) -> list[tuple[bool, Piece]]:
        """The pieces in their order, each with whether it is payload. Payload comes without heads and masks."""
        if self._head:
            data, self._head = self._head + data, b""
        pieces: list[tuple[bool, Piece]] = []
        view, pos, end = memoryview(data), 0, len(data)
        while pos < end:
            start = pos
            if not self._left:
                after = self._begin(data, pos)
                if after > end:
                    self._head = data[pos:]
                    break
                pos = after
                if self._is_payload:
                    start = pos
            stop = min(pos + self._left, end)
            self._left -= stop - pos
            if stop > start:
                pieces.append((self._is_payload, self._unmasked(view[start:stop])))
            pos = stop
        return pieces

    def _begin(self, data: bytes, pos: int) -> int:
        """Reads the head of a frame, and returns where it ends. Nothing has changed if that is after the data."""
        if len(data) - pos < 2:
            return pos + 2
        first, second = data[pos], data[pos + 1]
        size, after, least = second & 0x7F, pos + 2, 0
        if size >= 126:
            width, least = (2, 126) if size == 126 else (8, 65_536)
            size, after = int.from_bytes(data[after : after + width], "big"), after + width
        is_masked = bool(second & MASKED)
        after += 4 if is_masked else 0
        if after > len(data):
            return after
        self._left = size
        self._is_payload = (
            first == BINARY_MESSAGE
            and is_masked is self._masked
            and least <= size < LONGEST
            and not self._in_parts
            and (apply_mask is not None or not is_masked)
        )
        if self._is_payload:
            self._key = data[after - 4 : after] if is_masked else b""
        elif not first & CONTROL:
            self._in_parts = not first & FINAL
        return after

    def _unmasked(self, piece: memoryview) -> Piece:
        if not self._is_payload or not self._key or apply_mask is None:
            return piece
        key, turned = self._key, len(piece) % 4
        if self._left:  # the next piece goes on within the key
            self._key = key[turned:] + key[:turned]
        return apply_mask(piece, key)
