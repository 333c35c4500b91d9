"""The connections of an HTTP server: bounded in number and life, so that a client with a request always gets through.

Anyone who can reach the port may open connections and stay silent. So a newcomer is never refused: if there are too
many, the oldest one is closed. A well-behaved client sends its request immediately and is answered long before it
becomes the oldest. A connection whose client has shown a secret can be exempted.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web, web_response

from syphon.time_budget import CONNECTION_LIFE, REQUEST_WITHIN

MOST_CONNECTIONS = 64
MOST_OF_A_PEER = 48
"""Connections from one address."""
AT_ONCE = 8
"""Connections that the event loop accepts before it serves those it has. A request is answered within five such turns,
and its connection is the oldest of its peer after six."""
MOST_IN_LINE = 512
"""Connections that the system keeps until they are accepted."""

# aiohttp would name its version, and Python's. Answers to malformed requests pass no handler that could change them.
web_response.SERVER_SOFTWARE = "syphon"  # type: ignore[attr-defined]


@dataclass
class _Open:
    peer: str
    is_waiting: bool = True
    """Its request has not come yet."""
    timers: list[asyncio.TimerHandle] = field(default_factory=list)


class Connections:
    """All open connections, the oldest first."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: dict[asyncio.Transport, _Open] = {}

    def admit(self, transport: asyncio.Transport) -> None:
        """Takes in a new connection. Another one may have to end for it."""
        address = transport.get_extra_info("peername")
        opened = _Open(peer=str(address[0]) if address else "")
        self._make_room(opened.peer)
        self._open[transport] = opened
        opened.timers = [
            self._loop.call_later(REQUEST_WITHIN, self._drop_if_waiting, transport),
            self._loop.call_later(CONNECTION_LIFE, transport.abort),
        ]

    def requested(self, transport: asyncio.Transport | None) -> None:
        """The request of a connection has come."""
        if transport is not None and transport in self._open:
            self._open[transport].is_waiting = False

    def trust(self, transport: asyncio.Transport | None) -> None:
        """The client has shown a secret: its connection may stay, and takes no room from others."""
        if transport is not None:
            self.ended(transport)

    def ended(self, transport: asyncio.Transport) -> None:
        """A connection is closed, or no longer counts."""
        opened = self._open.pop(transport, None)
        for timer in opened.timers if opened is not None else ():
            timer.cancel()

    async def listen(self, handler: Callable[[], web.RequestHandler], host: str, port: int) -> asyncio.Server:
        """Accepts connections, and hands them to aiohttp. With port 0 the system chooses a free one."""
        listener = await self._loop.create_server(
            lambda: BoundedConnection(self, handler()), host, port, backlog=AT_ONCE
        )
        for listening in listener.sockets:
            with socket.socket(fileno=os.dup(listening.fileno())) as same:
                same.listen(MOST_IN_LINE)  # asyncio has one number for both
        return listener

    def close(self) -> None:
        """Ends all connections that count."""
        for transport in list(self._open):
            transport.abort()

    def _make_room(self, peer: str) -> None:
        crowd = [transport for transport, opened in self._open.items() if opened.peer == peer]
        if len(crowd) < MOST_OF_A_PEER:
            if len(self._open) < MOST_CONNECTIONS:
                return
            crowd = list(self._open)
        self.ended(crowd[0])
        crowd[0].abort()

    def _drop_if_waiting(self, transport: asyncio.Transport) -> None:
        if transport in self._open and self._open[transport].is_waiting:
            transport.abort()


class BoundedConnection(asyncio.Protocol):
    """Passes a connection to aiohttp, which alone would wait for a slow client forever."""

    def __init__(self, connections: Connections, handler: web.RequestHandler) -> None:
        self._connections, self._handler = connections, handler
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.admit(transport)
        self._handler.connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._transport is not None:
            self._connections.ended(self._transport)
        self._handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()
