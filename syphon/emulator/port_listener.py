"""A port for AMQP, AMQP over WebSockets and HTTP, with and without TLS: the first bytes of a connection decide.

This is our own code because asyncio's server must know in advance whether a connection is encrypted. We peek at the
first byte: a TLS client starts with a handshake record.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

TLS_HANDSHAKE = 0x16
FIRST_BYTE_TIMEOUT = 30.0
BACKLOG = 512
LARGEST_SEGMENT = 32_000
"""Bytes of a TCP segment. The asyncio client of azure-servicebus before 7.15 reads the size of its connection and sets
it again. On loopback it can be about 64 KB, and Linux accepts at most 32,767: the client would fail with errno 22."""

WEBSOCKET_REQUEST = b"get /$servicebus/websocket"

MakeProtocol = Callable[[], asyncio.Protocol]


@dataclass(frozen=True, slots=True)
class Protocols:
    """What a port speaks."""

    make_amqp: MakeProtocol
    make_websocket: MakeProtocol
    make_http: MakeProtocol

    def detect(self, data: bytes) -> MakeProtocol | None:
        """The protocol of a connection that starts with these bytes; None if that takes more bytes."""
        # HTTP methods are words of letters. All other bytes (AMQP or garbage) get the answer of AMQP.
        if not data[:1].isalpha() or b"AMQP".startswith(data[:4]):
            return self.make_amqp
        start = data[: len(WEBSOCKET_REQUEST)].lower()
        if start == WEBSOCKET_REQUEST:
            return self.make_websocket
        return None if WEBSOCKET_REQUEST.startswith(start) else self.make_http


class PortListener:
    """A listening socket. It passes each connection to the front that speaks its protocol."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, protocols: Protocols) -> None:
        self.port = port
        self._host = host
        self._tls = tls
        self._protocols = protocols
        self._socket: socket.socket | None = None
        self._reserved: socket.socket | None = None
        self._detecting: set[asyncio.Task[None]] = set()
        self._silent: set[_ProtocolDetector] = set()

    async def open(self) -> None:
        """Binds the port. With port 0 the system chooses a free one."""
        self.reopen()

    def reopen(self) -> None:
        if self._socket is not None:
            return
        listening, self._reserved = self._reserved or self._bind(), None
        try:
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
            raise
        self.port = listening.getsockname()[1]
        self._socket = listening
        self._watch(listening)

    def refuse(self) -> None:
        """Refuses connections but keeps the port bound: otherwise the client end of a connection could get it."""
        if self._socket is not None:
            self.close()
            self._reserved = self._bind()

    def _bind(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sys.platform == "linux":
                bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, LARGEST_SEGMENT)
            bound.bind((self._host, self.port))
        except OSError:
            bound.close()
            raise
        return bound

    def close(self) -> None:
        """Stops listening. Connections that were passed on stay open; those that sent nothing are closed."""
        for task in list(self._detecting):
            task.cancel()
        for greeter in list(self._silent):
            greeter.abort()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def _watch(self, listening: socket.socket) -> None:
        if listening is self._socket:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Accepts a connection. This is not a task: a cancelled task would lose the connection it has just accepted."""
        loop = asyncio.get_running_loop()
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # the client disconnected meanwhile
        except OSError:
            # Out of file descriptors: retry later.
            loop.remove_reader(listening.fileno())
            loop.call_later(0.05, self._watch, listening)
            return
        task = loop.create_task(self._detect(connection))
        self._detecting.add(task)
        task.add_done_callback(partial(self._detected, connection))

    async def _detect(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setblocking(False)
            tls = await self._first_byte(connection) == TLS_HANDSHAKE if self._tls is not None else False
            await loop.connect_accepted_socket(self._make_detector, connection, ssl=self._tls if tls else None)
        except (OSError, TimeoutError, ssl.SSLError):
            connection.close()

    def _detected(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        self._detecting.discard(task)
        if task.cancelled():  # also a task that never started
            connection.close()

    async def _first_byte(self, connection: socket.socket) -> int | None:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(connection.fileno(), readable.set)
        try:
            async with asyncio.timeout(FIRST_BYTE_TIMEOUT):
                await readable.wait()
            first = connection.recv(1, socket.MSG_PEEK)
        finally:
            with contextlib.suppress(ValueError):
                loop.remove_reader(connection.fileno())
        return first[0] if first else None

    def _make_detector(self) -> asyncio.Protocol:
        return _ProtocolDetector(self._protocols, self._silent)


class _ProtocolDetector(asyncio.Protocol):
    """Waits for the first bytes, then switches to the protocol that they belong to."""

    def __init__(self, protocols: Protocols, silent: set[_ProtocolDetector]) -> None:
        self._protocols = protocols
        self._silent = silent
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TCP transports read and write
        self._timeout = asyncio.get_running_loop().call_later(FIRST_BYTE_TIMEOUT, self.abort)
        self._silent.add(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        make = self._protocols.detect(self._received)
        if make is None:
            return
        self._done()
        transport = self._transport
        assert transport is not None  # data comes after the connection was made
        protocol = make()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(self._received)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._done()

    def _done(self) -> None:
        self._timeout.cancel()
        self._silent.discard(self)


class NotInstalled(asyncio.Protocol):
    """Answers an HTTP request for something that is not installed."""

    def __init__(self, text: str) -> None:
        self._text = text.encode()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # TCP transports read and write

    def data_received(self, data: bytes) -> None:  # noqa: ARG002  the answer is always the same
        assert self._transport is not None  # data comes after the connection was made
        head = f"HTTP/1.1 501 Not Implemented\r\nContent-Length: {len(self._text)}\r\nConnection: close\r\n\r\n"
        self._transport.write(head.encode() + self._text)
        self._transport.close()
