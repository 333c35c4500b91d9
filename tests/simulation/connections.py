"""Connections of a simulated process: the product's wire and tokens, on a socket of the simulated network."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote_plus

from syphon.amqp.frames import AMQP_HEADER, Open, frame, read_performative
from syphon.model import DestinationUnreachable, NamespaceGone, SyphonError
from syphon.servicebus import Connection, Namespace
from syphon.servicebus.cbs_tokens import Tokens
from syphon.servicebus.sdk_sockets import OpenSocket
from syphon.servicebus.wire_session import Wire
from syphon.time_budget import IDLE_TIMEOUT, LONGEST_RECONNECT_DELAY, OPEN_WITHIN

from .network import Link
from .scheduler import EPOCH
from .threads import SimulatedProcess, SimulatedThread

KEY_NAME, KEY = "RootManageSharedAccessKey", "a key of the simulation"
HANDSHAKE = 0.05
"""Seconds for what is not simulated of an opening: TCP, TLS, SASL and the SDK's own token."""


class Token(NamedTuple):
    token: str
    expires_on: int


@lru_cache(1000)
def _signed(audience: str) -> Token:
    expires = EPOCH // 1000 + 10**6
    resource = quote_plus(audience)
    digest = hmac.new(KEY.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
    signature = quote_plus(base64.b64encode(digest))
    return Token(f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn={KEY_NAME}", expires)


class SimulatedCredential:
    """Signs tokens that last longer than any incident."""

    token_type = b"servicebus.windows.net:sastoken"

    def get_token(self, audience: str) -> Token:
        return _signed(audience)


class SimulatedConnection(Connection):
    """A connection whose socket was not opened by the SDK."""

    def __init__(self, opened: OpenSocket, host: str, process: SimulatedProcess) -> None:
        self.host = host
        self.wire = Wire(opened, host, process.clock.now)
        credential = SimulatedCredential()
        self.tokens = Tokens(self.wire, host, lambda: credential, process.clock.seconds)
        self._process = process

    def wait(self, seconds: float) -> None:
        self._process.runtime.wait([self.wire], seconds)


class Opening:
    """One opening of a connection in virtual time: the AMQP header and `open` both ways, within a time limit."""

    def __init__(self, process: SimulatedProcess, name: str, done: Callable[[], None], within: float) -> None:
        self.result: OpenSocket | SyphonError | None = None
        self._process = process
        self._owner: SimulatedThread = process.current()
        self._name = name
        self._done = done
        self._link: Link | None = None
        self._bytes = b""
        time = process.time
        self._limit = time.call_later(within, self._fail, f"no answer within {within:g} s")
        time.call_later(HANDSHAKE, self._connect)

    def _connect(self) -> None:
        if self.result is not None or self._process.is_dead:
            return
        if self._process.network.has_no(self._name):
            self._finish(NamespaceGone(f"{self._name}: no such host."))
            return
        self._link = self._process.network.connect(self._name)
        if self._link is None:
            self._fail("Connection refused")
            return
        self._process.links.append(self._link)
        self._link.socket.on_news = self._read
        greeting = AMQP_HEADER + frame(0, Open("syphon", self._name, 65536, 65535, IDLE_TIMEOUT * 1000).to_bytes())
        self._link.socket.send(memoryview(greeting))

    def _read(self) -> None:
        assert self._link is not None  # it has just been read from
        try:
            piece = self._link.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error.strerror)
            return
        if not piece:
            self._fail("closed by the peer")
            return
        self._bytes += piece
        if len(self._bytes) < 16:
            return
        size = 8 + int.from_bytes(self._bytes[8:12], "big")
        if len(self._bytes) < size:
            return
        performative, _ = read_performative(self._bytes[16:size])
        if not isinstance(performative, Open):
            self._fail(f"the peer answered {performative.NAME}")
            return
        idle = None if performative.idle_time_out is None else performative.idle_time_out / 1000
        self._link.socket.on_news = self._owner.wake
        self._finish(
            OpenSocket(
                self._link.socket, self._bytes[size:], performative.max_frame_size or 65536, idle, float(IDLE_TIMEOUT)
            )
        )

    def _fail(self, why: str | None) -> None:
        if self._link is not None:
            self._link.socket.close()
        self._finish(DestinationUnreachable(f"{self._name}: no connection: {why}"))

    def _finish(self, result: OpenSocket | SyphonError) -> None:
        if self.result is None and not self._process.is_dead:
            self._limit.cancel()
            self.result = result
            self._done()
            self._owner.wake()


def simulated_namespace(
    process: SimulatedProcess,
    name: str,
    longest_delay: float = LONGEST_RECONNECT_DELAY,
    open_within: float = OPEN_WITHIN,
) -> Namespace:
    """The product's namespace. It opens its connections in virtual time."""
    openings: list[Opening] = []

    def begin(open_connection: Callable[[], None], _: str) -> None:
        openings.append(Opening(process, name, open_connection, open_within))

    def connect() -> Connection:
        result = openings.pop().result
        if isinstance(result, OpenSocket):
            return SimulatedConnection(result, name, process)
        assert result is not None  # the opening is over
        raise result

    return Namespace(name, connect, process.clock.now, longest_delay=longest_delay, begin=begin)


def connect_and_wait(process: SimulatedProcess, name: str) -> Connection:
    """A new connection. Waits in virtual time until it is open; raises if it cannot be opened."""
    opened = process.runtime.event()
    opening = Opening(process, name, opened.set, OPEN_WITHIN)
    opened.wait()
    if isinstance(opening.result, OpenSocket):
        return SimulatedConnection(opening.result, name, process)
    assert opening.result is not None  # the opening is over
    raise opening.result
