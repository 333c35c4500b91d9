"""A non-blocking socket that reads and writes whole AMQP frames: buffers both ways, TLS and WebSockets included.

The SDK's own transport closes a connection in mid-frame when the peer does not read for 0.2 seconds. This one keeps
unsent frames until the socket accepts them.
"""

from __future__ import annotations

import ssl
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from syphon.amqp import Malformed
from syphon.model import Interrupted, SyphonError

from .sdk_sockets import OpenSocket

if TYPE_CHECKING:
    from .websocket_codec import WebSocketCodec  # comes with an extra

CHUNK = 262_144
BYTES_A_TURN = 4 * CHUNK
"""The most bytes that one `read` takes in: a fast peer must not fill our memory before its frames are handled."""

_FRAME_HEAD = struct.Struct(">IBxH").unpack_from


class FrameSocket:
    """Gives each frame it has read to `_on_frame`, which a subclass implements.

    It is a base class and not a part of its user, because a call through another object for each frame would cost time.
    """

    def __init__(self, opened: OpenSocket, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.now = now
        self.failure: SyphonError | None = None
        self._socket = opened.socket
        self._websocket = opened.websocket
        self._piece_size = CHUNK if opened.websocket is None else opened.websocket.MESSAGE_SIZE
        self._rest = opened.unread
        """The bytes of a frame that has not arrived completely."""
        self._out: deque[bytes | memoryview] = deque()
        self._unsent = memoryview(b"")
        """The rest of the piece that is being written."""
        self._heard_at = self._wrote_at = now()

    def fileno(self) -> int:
        return self._socket.fileno()

    def wants_to_write(self) -> bool:
        return bool(self._out or self._unsent)

    def has_heard_since(self, when: float) -> bool:
        """Whether anything came from the peer after a time."""
        return self._heard_at > when

    def has_unread(self) -> bool:
        """Whether TLS has decrypted more bytes than were read: the socket then looks idle although bytes wait."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def read(self) -> None:
        """Reads the bytes that have arrived, up to a limit, and handles each complete frame."""
        received: list[bytes] = []
        room = BYTES_A_TURN
        failure: Interrupted | None = None
        try:
            while room > 0:
                piece = self._socket.recv(CHUNK)
                if not piece:
                    failure = Interrupted(f"{self.name} closed the connection.")
                    break
                received.append(piece)
                room -= len(piece)
                if len(piece) < CHUNK and not isinstance(self._socket, ssl.SSLSocket):
                    break  # the socket is empty now; TLS returns one record at a time, and may have more
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            failure = Interrupted(f"The connection to {self.name} broke: {error.strerror or error}.")
        pieces: list[bytes | memoryview] = [self._rest] if self._rest else []
        if received:
            self._heard_at = self.now()
            if self._websocket is None:
                pieces += received
            else:
                failure = self._unwrap(self._websocket, received, pieces) or failure
        if pieces:
            self._split(b"".join(pieces))  # which copies nothing if there is one, and it is bytes
        if failure is not None:
            # Last: the outcomes that came before the end count, and a Close there says why it ends.
            if self._websocket is not None and self._websocket.ended is not None:
                self._out.clear()  # only the answer to the peer's farewell may follow
                self.flush()
            self.fail(failure)

    def _unwrap(
        self, websocket: WebSocketCodec, received: list[bytes], pieces: list[bytes | memoryview]
    ) -> Interrupted | None:
        """Adds what is inside the frames of the WebSocket. Returns an error if the WebSocket has ended."""
        for data in received:
            pieces += websocket.decode(data)
        if websocket.reply:
            # `_unsent` ends with a whole frame, so that another one may follow.
            self._unsent = memoryview(bytes(self._unsent) + websocket.reply)
            websocket.reply = b""
        return Interrupted(f"{self.name} {websocket.ended}.") if websocket.ended is not None else None

    def _split(self, data: bytes) -> None:
        pos, end = 0, len(data)
        try:
            while end - pos >= 8 and self.failure is None:  # nothing counts after a Close
                size, offset, channel = _FRAME_HEAD(data, pos)
                if size < 8 or size > 0x7FFFFFFF:
                    raise Malformed(f"a frame of {size} bytes")
                after = pos + size
                if after > end:
                    break
                start = pos + 4 * offset
                if start < after:
                    self._on_frame(channel, data, start, after)
                pos = after
        except Malformed as error:
            self.fail(Interrupted(f"{self.name} sent bytes that are not AMQP: {error}."))
            pos = end
        self._rest = data[pos:]

    def _on_frame(self, channel: int, data: bytes, start: int, end: int) -> None:
        """Handles the frame whose body is data[start:end]."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        self._out.append(data)

    def flush(self) -> None:
        """Writes as much as the socket accepts; the rest waits for the next call."""
        if not self.wants_to_write() or self.failure is not None:
            return
        try:
            while self.wants_to_write():
                # A piece is written to its end before the next one is made: TLS accepts one record at a time.
                self._unsent = self._unsent or memoryview(self._next_piece())
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self.fail(Interrupted(f"The connection to {self.name} broke: {error.strerror or error}."))
        self._wrote_at = self.now()

    def _next_piece(self) -> bytes | memoryview:
        """Joins as many frames as one efficient write takes. With a WebSocket they are one message."""
        piece = self._out.popleft()
        size = len(piece)
        if self._out and size + len(self._out[0]) <= self._piece_size:
            pieces = [piece]
            while self._out and (size := size + len(self._out[0])) <= self._piece_size:
                pieces.append(self._out.popleft())
            piece = b"".join(pieces)
        return piece if self._websocket is None else self._websocket.encode(piece)

    def end_websocket(self) -> None:
        """Sends a WebSocket close frame, if there is a WebSocket and all frames are written."""
        if self._websocket is not None and self.failure is None and not self.wants_to_write():
            self._unsent = memoryview(self._websocket.farewell())
            self.flush()

    def fail(self, error: SyphonError) -> None:
        """Closes the socket for good. The first error is kept."""
        if self.failure is None:
            self.failure = error
            self._socket.close()
