"""The WebSocket between a socket and a wire: takes the frames off what arrives, and puts them around what is sent.

It does no I/O: `frame_socket` reads and writes. The SDK opens the WebSocket with websocket-client, and `take_over` goes
on where that stopped, even in the middle of a frame. All packages come with the extra `syphon-servicebus[websockets]`.

`syphon.amqp.websocket_frames` reads and makes the frames that carry AMQP, wsproto all others. A client must mask what
it sends. For 64 KB that takes wsproto 76 µs, one XOR of two large integers 175 µs, and the function in C of the package
websockets 1 µs, on one machine. Where that package has no C, wsproto does it.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from wsproto.connection import CLIENT, Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from syphon.amqp.websocket_frames import FrameSorter, Piece, client_message, encoded_length


class WebSocketCodec:
    """The frames of one WebSocket, seen from the client."""

    MESSAGE_SIZE = 65_536
    """The most bytes in a message of several AMQP frames. The SDK sends one frame in each, which may be that large."""

    def __init__(self, unread: bytes = b"") -> None:
        self._sorter = FrameSorter(masked=False, unread=unread)
        self._connection = Connection(CLIENT)
        self.reply = b""
        """A control frame that the peer waits for. Its user sends it between two frames, and clears it."""
        self.ended: str | None = None
        """What the peer did to end it, as the rest of a sentence."""

    def decode(self, data: bytes) -> list[Piece]:
        """The bytes inside the frames. Once the WebSocket has ended, `ended` says why."""
        inside: list[Piece] = []
        for is_payload, piece in self._sorter.sort(data):
            if self.ended is not None:
                break  # nothing counts after the end
            if is_payload:
                inside.append(piece)
            else:
                inside += self._read_other(bytes(piece))
        return inside

    def _read_other(self, data: bytes) -> list[bytes]:
        inside: list[bytes] = []
        self._connection.receive_data(data)
        for event in self._connection.events():
            if isinstance(event, BytesMessage):
                inside.append(bytes(event.data))
            elif isinstance(event, Ping):
                # Only the last of several needs an answer, so that they cannot fill our memory.
                self.reply = self._connection.send(event.response())
            elif isinstance(event, CloseConnection | TextMessage):
                self._end(event)
                break
        return inside

    def _end(self, event: CloseConnection | TextMessage) -> None:
        if isinstance(event, TextMessage):
            event = CloseConnection(code=CloseReason.UNSUPPORTED_DATA, reason="a text message")
        if self._connection.state is ConnectionState.OPEN:  # it was not the peer that closed
            self.ended = f"broke the rules of WebSockets: {event.reason}"
        else:
            why = f" ({event.code}{f': {event.reason}' if event.reason else ''})"
            self.ended = f"closed the WebSocket{why if event.code != CloseReason.NORMAL_CLOSURE else ''}"
        self.reply = self._connection.send(event.response())

    def encode(self, data: Piece) -> bytes:
        """Bytes in a frame of their own."""
        return client_message(data, os.urandom(4)) or self._connection.send(BytesMessage(data=bytes(data)))

    def farewell(self) -> bytes:
        """The frame that closes the WebSocket; nothing if that has happened."""
        if self._connection.state is not ConnectionState.OPEN:
            return b""
        return self._connection.send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))


def take_over(websocket: Any) -> tuple[socket.socket, WebSocketCodec]:
    """Takes the socket from a WebSocket of websocket-client, which cannot be used then. The codec goes on with it."""
    taken: socket.socket = websocket.sock
    websocket.sock, websocket.connected = None, False
    return taken, WebSocketCodec(_unfinished_message(websocket.cont_frame) + _unfinished_frame(websocket.frame_buffer))


def _unfinished_message(fragments: Any) -> bytes:
    """The frames of a message of which the last one is missing, as one frame."""
    if fragments.cont_data is None:
        return b""
    opcode, payload = fragments.cont_data
    return bytes((opcode,)) + encoded_length(len(payload)) + bytes(payload)


def _unfinished_frame(buffer: Any) -> bytes:
    """The bytes of a frame that has not arrived completely. A server's frame has no mask."""
    head = b""
    if buffer.header is not None:
        final, *reserved, opcode, _, length = buffer.header
        bits = (final, *reserved)
        head = bytes((sum(bit << (7 - place) for place, bit in enumerate(bits)) | opcode, length))
        if buffer.length is not None:
            head = head[:1] + encoded_length(buffer.length)
    return head + b"".join(buffer.recv_buffer)
