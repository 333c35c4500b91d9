"""The server's end of a WebSocket that is open already, as a socket: bytes in, bytes out."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from wsproto.connection import SERVER, Connection, ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event


class FarWebSocket:
    """Wraps a socket. Messages that its user receives have the limits of what came in one read."""

    def __init__(self, wrapped: socket.socket) -> None:
        self.wrapped = wrapped
        self.heard: list[Event] = []
        """The control frames that came."""
        self._websocket = Connection(SERVER)
        self._waiting: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wrapped.close()

    def post(self, event: Event) -> bytes:
        """Sends a frame, and returns its bytes."""
        data = self._websocket.send(event)
        self.wrapped.sendall(data)
        return data

    def sendall(self, data: bytes) -> None:
        self.post(BytesMessage(data=data))

    def recv(self, size: int) -> bytes:
        """The bytes inside the next frames; nothing at the end of the connection, or of the WebSocket."""
        while not self._waiting:
            if self._websocket.state is ConnectionState.CLOSED:
                return b""
            data = self.wrapped.recv(size)
            if not data:
                return b""
            self._websocket.receive_data(data)
            for event in self._websocket.events():
                if isinstance(event, BytesMessage):
                    self._waiting.append(bytes(event.data))
                else:
                    self.heard.append(event)
        return self._waiting.pop(0)

    @property
    def is_closed(self) -> bool:
        """Whether the client has said farewell."""
        return any(isinstance(event, CloseConnection) for event in self.heard)

    def settimeout(self, seconds: float) -> None:
        self.wrapped.settimeout(seconds)

    def setblocking(self, blocking: bool) -> None:
        self.wrapped.setblocking(blocking)

    def close(self) -> None:
        self.wrapped.close()
