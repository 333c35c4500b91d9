"""What a stranger with a bare socket can try on the ports of a Spark session: Spark's own wire protocol, no library."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import IO

CHUNK_REQUEST, CHUNK, RPC_REQUEST, RPC_RESPONSE = 0, 1, 3, 4
OPEN_BLOCKS = b"\x00"
PATIENCE = 5.0
"""Seconds to wait for an answer. A port with another protocol gives none."""


@dataclass(frozen=True)
class Answer:
    """An answer of a Spark port. `kind` is -1 if it closed the connection or said nothing."""

    kind: int
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")


def fetch_block(port: int, block: str) -> Answer:
    """Asks a port for a block as an executor asks another one, and returns the block, or the answer in its place."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as stranger:
        stream = stranger.makefile("rb")
        request = OPEN_BLOCKS + _text("app") + _text("driver") + struct.pack(">i", 1) + _text(block)
        stranger.sendall(_frame(RPC_REQUEST, struct.pack(">qi", 1, len(request)) + request))
        try:
            opened = _answer(stream)
            if opened.kind != RPC_RESPONSE:
                return opened
            number, _ = struct.unpack(">qi", opened.content[-12:])  # of the stream, and of its chunks
            stranger.sendall(_frame(CHUNK_REQUEST, struct.pack(">qi", number, 0)))
            return _answer(stream)
        except (TimeoutError, ConnectionError):
            return Answer(-1, b"")


def call_rpc(port: int, content: bytes) -> Answer:
    """Sends a call with a body of any bytes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as stranger:
        stranger.sendall(_frame(RPC_REQUEST, struct.pack(">qi", 1, len(content)) + content))
        try:
            return _answer(stranger.makefile("rb"))
        except (TimeoutError, ConnectionError):
            return Answer(-1, b"")


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()


def _frame(kind: int, content: bytes) -> bytes:
    return struct.pack(">qb", 9 + len(content), kind) + content


def _answer(stream: IO[bytes]) -> Answer:
    head = stream.read(9)
    if len(head) < 9:
        return Answer(-1, b"")
    length, kind = struct.unpack(">qb", head)
    return Answer(kind, stream.read(length - 9))
