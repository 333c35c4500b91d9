"""A network in memory: connections between the syphon and the emulator that fail in every way a real one can.

Bytes travel with a delay, in the pieces they were written in or in others. A connection can be cut after any byte, be
silent in one or both directions, be refused, or be accepted and never answered. There are no sockets and no threads.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .scheduler import VirtualTime

SEND_BUFFER = 128 * 1024
"""Bytes that one end of a connection may have in flight. The peer of a full buffer waits."""
GIVE_UP_AFTER = 30.0
"""Seconds after which a broker gives up a peer whose machine has vanished: nothing confirms the bytes that it sends."""


@dataclass(slots=True)
class Conditions:
    """The state of the network on the way to one namespace. Faults change it."""

    latency: float = 0.005
    jitter: float = 0.0
    splits: float = 0.0
    """The share of writes that arrive in pieces."""
    refuses: bool = False
    has_no_name: bool = False
    """The name of the namespace is unknown: no connection can be opened."""
    is_silent: bool = False
    """New connections are accepted, and nothing arrives on them."""
    stalls_up: bool = False
    """What the syphon writes does not arrive for now."""
    stalls_down: bool = False
    cut_up: int | None = None
    """After so many more bytes from the syphon the connection breaks."""
    cut_down: int | None = None
    links: list[Link] = field(default_factory=list)
    """The connections that are open."""


class Way:
    """One direction of a connection. Bytes arrive in order, after a delay."""

    __slots__ = (
        "_conditions",
        "_down",
        "_held",
        "_last",
        "_link",
        "_rng",
        "_time",
        "deliver",
        "end",
        "is_paused",
        "on_room",
        "under_way",
    )

    def __init__(self, link: Link, down: bool) -> None:
        self._link = link
        self._conditions = link.conditions
        self._time = link.time
        self._rng = link.rng
        self._down = down
        self._last = 0.0
        self._held: deque[bytes | None] = deque()
        self.is_paused = False
        """The reader does not read: bytes wait for it."""
        self.under_way = 0
        self.deliver: Callable[[bytes], None]
        self.end: Callable[[], None]
        self.on_room: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        conditions = self._conditions
        self.under_way += len(data)
        if conditions.splits and len(data) > 1 and self._rng.random() < conditions.splits:
            middle = self._rng.randrange(1, len(data))
            self._travel(data[:middle])
            data = data[middle:]
        self._travel(data)

    def write_end(self) -> None:
        self._travel(None)

    def _travel(self, data: bytes | None) -> None:
        conditions = self._conditions
        when = self._time.now + conditions.latency
        if conditions.jitter:
            when += conditions.jitter * self._rng.random()
        if when < self._last:
            when = self._last
        self._last = when
        self._time.call_at(when, self._arrive, data)

    def _arrive(self, data: bytes | None) -> None:
        if not self._link.is_open:
            return
        conditions = self._conditions
        if (
            self._held
            or self.is_paused
            or self._link.is_silent
            or (conditions.stalls_down if self._down else conditions.stalls_up)
        ):
            self._held.append(data)
        else:
            self._pass_on(data)

    def go_on(self) -> None:
        """Delivers what was held back, unless it must still wait."""
        conditions = self._conditions
        while (
            self._held
            and self._link.is_open
            and not (self.is_paused or self._link.is_silent)
            and not (conditions.stalls_down if self._down else conditions.stalls_up)
        ):
            self._pass_on(self._held.popleft())

    def _pass_on(self, data: bytes | None) -> None:
        if data is None:
            self.end()
            return
        left = self._conditions.cut_down if self._down else self._conditions.cut_up
        if left is not None:
            if left <= len(data):
                if self._down:
                    self._conditions.cut_down = None
                else:
                    self._conditions.cut_up = None
                if left:
                    self.deliver(data[:left])
                self._link.cut()
                return
            if self._down:
                self._conditions.cut_down = left - len(data)
            else:
                self._conditions.cut_up = left - len(data)
        self.under_way -= len(data)
        self.deliver(data)
        if self.on_room is not None and self.under_way < SEND_BUFFER:
            self.on_room()


class Link:
    """A connection: the syphon's socket, the emulator's transport, and the two ways between them."""

    def __init__(self, time: VirtualTime, rng: random.Random, conditions: Conditions) -> None:
        self.time = time
        self.rng = rng
        self.conditions = conditions
        self.is_open = True
        self.is_silent = conditions.is_silent
        self.up = Way(self, down=False)
        self.down = Way(self, down=True)
        self.socket = ClientSocket(self)
        self.transport: ServerTransport | None = None
        conditions.links.append(self)

    def accept(self, make: Callable[[], Any]) -> None:
        """Connects the emulator's end."""
        protocol = make()
        self.transport = transport = ServerTransport(self, protocol)
        protocol.connection_made(transport)

    def cut(self) -> None:
        """Breaks the connection: both ends find out at once, and what is in flight is lost."""
        if self.is_open:
            self.over()
            self.socket.reset()
            if self.transport is not None:
                self.transport.lost()

    def vanish(self) -> None:
        """Ends the syphon's end without a word: its process was killed together with its machine."""
        if self.is_open:
            self.is_silent = True
            self.socket.forget()
            self.time.call_later(GIVE_UP_AFTER, self.cut)

    def reset_by_server(self) -> None:
        if self.is_open:
            self.over()
            self.time.call_later(self.conditions.latency, self.socket.reset)

    def closed_by_client(self) -> None:
        if self.is_open:
            self.up.write_end()

    def over(self) -> None:
        if self.is_open:
            self.is_open = False
            self.conditions.links.remove(self)


def _ignore() -> None:
    """Does nothing: no task waits for it."""


class ClientSocket:
    """The syphon's end of a connection: a non-blocking socket."""

    __slots__ = ("_ended", "_in", "_is_forgotten", "_link", "_reset", "on_news")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._in: list[bytes] = []
        self._ended = self._reset = self._is_forgotten = False
        self.on_news: Callable[[], None] = _ignore
        """Called when the socket can be read, or written again."""
        link.down.deliver = self._deliver
        link.down.end = self._end

    def _deliver(self, data: bytes) -> None:
        self._in.append(data)
        self.on_news()

    def _end(self) -> None:
        self._ended = True
        self.on_news()

    def reset(self) -> None:
        self._reset = True
        self.on_news()

    def forget(self) -> None:
        """Its process is dead: nothing is read or written any more."""
        self.on_news = _ignore
        self._is_forgotten = True

    def recv(self, size: int, /) -> bytes:
        waiting = self._in
        if waiting:
            data = waiting[0] if len(waiting) == 1 else b"".join(waiting)
            waiting.clear()
            if len(data) > size:
                waiting.append(data[size:])
                data = data[:size]
            return data
        if self._reset:
            raise ConnectionResetError(104, "Connection reset by peer")
        if self._ended:
            return b""
        raise BlockingIOError

    def send(self, data: memoryview, /) -> int:
        if self._reset:
            raise ConnectionResetError(104, "Connection reset by peer")
        room = SEND_BUFFER - self._link.up.under_way
        if room <= 0:
            self._link.up.on_room = self._has_room
            raise BlockingIOError
        piece = bytes(data[:room])
        if self._link.is_open and not self._is_forgotten:
            self._link.up.write(piece)
        return len(piece)

    def _has_room(self) -> None:
        self._link.up.on_room = None
        self.on_news()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self.on_news = _ignore
        if not self._is_forgotten:
            self._link.closed_by_client()


class ServerTransport:
    """The emulator's end of a connection: as much of asyncio's transport as its connections use."""

    __slots__ = ("_closing", "_link", "_lost", "_protocol", "_writing_paused")

    def __init__(self, link: Link, protocol: Any) -> None:
        self._link = link
        self._protocol = protocol
        self._closing = self._lost = self._writing_paused = False
        link.up.deliver = protocol.data_received
        link.up.end = self._client_left

    def write(self, data: bytes) -> None:
        link = self._link
        if not link.is_open or not data:
            return
        link.down.write(bytes(data))
        if link.down.under_way > SEND_BUFFER and not self._writing_paused:
            self._writing_paused = True
            link.down.on_room = self._has_room
            self._protocol.pause_writing()

    def _has_room(self) -> None:
        self._writing_paused = False
        self._link.down.on_room = None
        self._protocol.resume_writing()

    def write_eof(self) -> None:
        self._link.down.write_end()

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._link.up.is_paused = True

    def resume_reading(self) -> None:
        self._link.up.is_paused = False
        self._link.time.call_soon(self._link.up.go_on)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._link.down.write_end()
            self._link.time.call_soon(self.lost)

    def abort(self) -> None:
        self._closing = True
        self._link.reset_by_server()
        self._link.time.call_soon(self.lost)

    def _client_left(self) -> None:
        self._closing = True
        self._link.over()
        self._link.time.call_soon(self.lost)

    def lost(self) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._protocol.connection_lost(None)


class Network:
    """The way to each namespace."""

    def __init__(self, time: VirtualTime, rng: random.Random) -> None:
        self._time = time
        self._rng = rng
        self.to: dict[str, Conditions] = {}
        self._servers: dict[str, Callable[[], Any]] = {}

    def serve(self, name: str, make: Callable[[], Any], conditions: Conditions) -> None:
        """Accepts connections to a namespace; `make` makes the emulator's end of each."""
        self.to[name] = conditions
        self._servers[name] = make

    def has_no(self, name: str) -> bool:
        """Whether no namespace has this name now."""
        return self.to[name].has_no_name

    def connect(self, name: str) -> Link | None:
        """A new connection to a namespace; None if it is refused."""
        conditions = self.to[name]
        if conditions.refuses:
            return None
        link = Link(self._time, self._rng, conditions)
        link.accept(self._servers[name])
        return link

    def cut_all(self, name: str) -> None:
        for link in list(self.to[name].links):
            link.cut()

    def go_on(self, name: str) -> None:
        """Lets bytes pass that a stall held back."""
        for link in list(self.to[name].links):
            link.up.go_on()
            link.down.go_on()
