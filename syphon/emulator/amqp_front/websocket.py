"""AMQP over WebSockets, as on port 443 of Service Bus: a layer between the socket and an AMQP connection.

The AMQP connection does not know of it: the layer is the transport that the connection writes to. The frames that carry
AMQP are read and made by `syphon.amqp.websocket_frames`; wsproto does the rest of the protocol, without I/O.
"""

from __future__ import annotations

import asyncio
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

from syphon.amqp.websocket_frames import FrameSorter, Piece, server_message

from .connection import AmqpConnection

SUBPROTOCOL = "AMQPWSB10"
MESSAGE_SIZE = 65_536
"""The most bytes in one WebSocket message. Clients limit its size: aiohttp to 4 MB."""
END_OF_REQUEST = b"\r\n\r\n"
REQUEST_SIZE = 65_536
"""The most bytes of a request that are kept until its end has arrived. wsproto refuses longer ones."""


class WebSocketLayer(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket, and the transport of an AMQP connection."""

    def __init__(self, amqp: AmqpConnection) -> None:
        asyncio.Transport.__init__(self)
        self._amqp = amqp
        self._websocket = WSConnection(ConnectionType.SERVER)
        self._request: bytes | None = b""
        """The bytes of the request that have arrived; None after its end."""
        self._sorter = FrameSorter(masked=True)
        self._socket: asyncio.Transport | None = None
        self._is_paused = False
        self._unread = b""
        """The bytes that came while reading was paused."""

    # --- the socket ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio's by type
        # Before the upgrade: an outage or a fault strikes the connection itself, and so it does here.
        self._amqp.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._amqp.is_hung:
            return  # neither a request nor a ping is answered
        if self._is_paused:
            self._unread += data
            return
        if self._request is not None:
            head, end, data = (self._request + data).partition(END_OF_REQUEST)
            if not end and len(head) <= REQUEST_SIZE:
                self._request = head
                return
            self._request = None
            self._read_other(head + end)
        # The payload of all frames goes to the AMQP connection at once: clients make a message of each AMQP frame.
        payload: list[Piece] = []
        for is_payload, piece in self._sorter.sort(data):
            if is_payload:
                payload.append(piece)
            else:
                self._pass_on(payload)
                self._read_other(bytes(piece))
        self._pass_on(payload)

    def _pass_on(self, payload: list[Piece]) -> None:
        if payload and self._websocket.state is ConnectionState.OPEN:
            self._amqp.data_received(b"".join(payload))
        payload.clear()

    def _read_other(self, data: bytes) -> None:
        """Reads bytes that are not just payload: the request, control frames, parts of messages, errors."""
        if self._websocket.state in (ConnectionState.CLOSED, ConnectionState.REJECTING):
            return
        try:
            self._websocket.receive_data(data)
            for event in self._websocket.events():
                self._on_event(event)
        except RemoteProtocolError as error:
            self._refuse(error)

    def _on_event(self, event: Event) -> None:
        if isinstance(event, BytesMessage):
            self._amqp.data_received(bytes(event.data))
        elif isinstance(event, Request):
            self._answer(event)
        elif isinstance(event, Ping):
            if self._websocket.state is ConnectionState.OPEN:  # else we have said farewell
                self._send(event.response())
        elif isinstance(event, CloseConnection):
            self._end(event.response())
        elif isinstance(event, TextMessage):
            self._end(CloseConnection(code=CloseReason.UNSUPPORTED_DATA, reason="AMQP is sent in binary messages."))

    def _answer(self, request: Request) -> None:
        if SUBPROTOCOL in request.subprotocols:
            self._send(AcceptConnection(subprotocol=SUBPROTOCOL))
            return
        text = f"Ask for the subprotocol {SUBPROTOCOL}."
        self._send(RejectConnection(status_code=400, has_body=True))
        self._end(RejectData(data=text.encode()))

    def _refuse(self, error: RemoteProtocolError) -> None:
        """Ends a connection whose bytes are not a WebSocket's, with the answer that wsproto proposes."""
        hint = error.event_hint
        if isinstance(hint, RejectConnection):
            self._send(RejectConnection(status_code=hint.status_code, headers=hint.headers, has_body=True))
            hint = RejectData(data=f"{error}".encode())
        self._end(hint)

    def _end(self, farewell: Event | None) -> None:
        if farewell is not None and self._websocket.state not in (
            ConnectionState.LOCAL_CLOSING,
            ConnectionState.CLOSED,
        ):
            self._send(farewell)
        if self._socket is not None:
            self._socket.close()

    def _send(self, event: Event) -> None:
        if self._socket is not None:
            self._socket.write(self._websocket.send(event))

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        self._amqp.connection_lost(exc)

    def pause_writing(self) -> None:
        self._amqp.pause_writing()

    def resume_writing(self) -> None:
        self._amqp.resume_writing()

    # --- the transport of the AMQP connection ----------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if self._socket is None or self._websocket.state is not ConnectionState.OPEN:
            return  # there was no upgrade, or the peer has closed: it would not be read
        view = memoryview(data)
        for start in range(0, len(view), MESSAGE_SIZE):
            self._socket.write(server_message(view[start : start + MESSAGE_SIZE]))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Begins the closing handshake. The peer's answer ends the connection."""
        if self._websocket.state is ConnectionState.OPEN:
            self._send(CloseConnection(code=CloseReason.NORMAL_CLOSURE))
        else:
            self._end(None)

    def is_closing(self) -> bool:
        return self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        unread, self._unread = self._unread, b""
        if unread:
            self.data_received(unread)
        if self._socket is not None and not self._is_paused:
            self._socket.resume_reading()

    def close(self) -> None:
        is_open = self._websocket.state is ConnectionState.OPEN
        self._end(CloseConnection(code=CloseReason.NORMAL_CLOSURE) if is_open else None)

    def abort(self) -> None:
        if self._socket is not None:
            self._socket.abort()
