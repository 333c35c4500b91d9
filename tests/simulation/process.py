"""A simulated process of the syphon: the product's pump, namespaces, wires and tokens, on virtual time.

The pump runs turn by turn. Where a real one would wait for its sockets, it returns to the scheduler, which runs the
next turn when bytes arrive or the wait is over. A crash drops the pump with all it knows.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote_plus

from syphon.amqp.frames import AMQP_HEADER, Open, frame, read_performative
from syphon.bus import Connection, Namespace
from syphon.bus.sdk_internals import IDLE_TIMEOUT, OpenSocket
from syphon.bus.tokens import Tokens
from syphon.bus.wire import Wire
from syphon.model import DestinationUnreachable, Outcome, SyphonError
from syphon.transfer import Pump, PumpOptions

from .network import Link, Network
from .scheduler import EPOCH, Event, ProcessClock, VirtualTime

KEY_NAME, KEY = "RootManageSharedAccessKey", "a key of the simulation"
OPEN_WITHIN = 30.0
HANDSHAKE = 0.05
"""Seconds for what is not simulated of an opening: TCP, TLS, SASL and the SDK's own token."""
SHORTEST_WAIT = 0.2
"""Seconds between two turns without traffic. A pump looks more often while it opens a connection; here the end of the
opening wakes it."""
REACTION = 0.0005
"""Seconds from the arrival of bytes to the turn that reads them: several arrivals are read together."""


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

    def __init__(self, opened: OpenSocket, host: str, clock: ProcessClock) -> None:
        self.host = host
        self.wire = Wire(opened, host, clock.now)
        credential = SimulatedCredential()
        self.tokens = Tokens(self.wire, host, lambda: credential, clock.seconds)


class Opening:
    """One opening of a connection in virtual time: the AMQP header and `open` both ways, within a time limit."""

    def __init__(self, process: PumpProcess, name: str, done: Callable[[], None]) -> None:
        self.result: OpenSocket | SyphonError | None = None
        self._process = process
        self._name = name
        self._done = done
        self._link: Link | None = None
        self._bytes = b""
        time = process.time
        self._limit = time.call_later(OPEN_WITHIN, self._fail, "no answer within 30 s")
        time.call_later(HANDSHAKE, self._connect)

    def _connect(self) -> None:
        if self.result is not None or self._process.is_dead:
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
        self._link.socket.on_news = self._process.wake
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
            self._process.wake()


class PumpProcess:
    """One run of a pump, from its start to its end or to its crash."""

    def __init__(
        self,
        time: VirtualTime,
        network: Network,
        rng: random.Random,
        clock: ProcessClock,
        on_end: Callable[[PumpProcess, SyphonError | None], None],
    ) -> None:
        self.time = time
        self.network = network
        self.clock = clock
        self.links: list[Link] = []
        self.is_dead = False
        self.turn_delay = REACTION
        self.outcomes: list[Outcome] = []
        self._rng = rng
        self._on_end = on_end
        self._openings: dict[str, Opening] = {}
        self._wait = 0.0
        self._next: Event | None = None
        self._next_at = 0.0
        self._turns: Iterator[None] | None = None
        self.secondary = self._namespace("contoso-dr")
        self.primary = self._namespace("contoso")
        self.pump: Pump
        self.on_turn: Callable[[PumpProcess], None] = lambda _: None
        self._still_until = 0.0

    def _namespace(self, name: str) -> Namespace:
        def begin(open_connection: Callable[[], None], _: str) -> None:
            self._openings[name] = Opening(self, name, open_connection)

        def connect() -> Connection:
            result = self._openings.pop(name).result
            if isinstance(result, OpenSocket):
                return SimulatedConnection(result, name, self.clock)
            assert result is not None  # the opening is over
            raise result

        return Namespace(name, connect, self.clock.now, begin=begin)

    def start(self, queue: str, options: PumpOptions) -> None:
        self.pump = Pump(
            self.secondary,
            self.primary,
            self.outcomes.append,
            options,
            self.clock.now,
            wait=self._note_wait,
            wall=self.clock.wall,
        )
        self.serve(queue)
        self._turns = self.pump.turns()
        self._turn_at(self.time.now)

    def serve(self, queue: str) -> None:
        """Hands the pump a queue that has messages, as the driver does when a doorbell rings."""
        self.pump.serve(queue)

    def is_serving(self, queue: str) -> bool:
        return self.pump.queues[queue].is_served

    # --- turns ---------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Runs a turn soon: bytes have arrived, or a connection has been opened."""
        if not self.is_dead:
            self._turn_at(self.time.now + self.turn_delay)

    def _turn_at(self, when: float) -> None:
        if self._next is not None:
            if self._next_at <= when:
                return
            self._next.cancel()
        self._next_at = when
        self._next = self.time.call_at(when, self._turn)

    def _note_wait(self, _: Iterable[Wire], seconds: float) -> None:
        """Notes how long the pump would wait. The wait itself comes after its turn."""
        self._wait = seconds

    def _turn(self) -> None:
        if self.is_dead:
            return
        self._next = None
        if self.time.now < self._still_until:
            self._turn_at(self._still_until)
            return
        assert self._turns is not None  # started
        try:
            next(self._turns)
        except StopIteration:
            self._end(None)
            return
        except SyphonError as error:
            self._end(error)
            return
        failed = False
        for namespace in (self.secondary, self.primary):
            connection = namespace._connection
            if connection is not None:
                connection.wire.flush()
                failed = failed or connection.wire.failure is not None
        wait = self.turn_delay if failed else max(self._wait, SHORTEST_WAIT)
        self._turn_at(self.time.now + wait / self.clock.rate)
        self.on_turn(self)

    def stand_still(self, seconds: float) -> None:
        """The process gets no processor for so many seconds."""
        self._still_until = self.time.now + seconds

    def _end(self, error: SyphonError | None) -> None:
        self.is_dead = True
        for namespace in (self.secondary, self.primary):
            namespace.close()
        self._on_end(self, error)

    def crash(self, silently: bool) -> None:
        """Kills the process. Its machine closes the sockets, unless it was lost too."""
        self.is_dead = True
        for link in self.links:
            if silently:
                link.vanish()
            else:
                link.socket.forget()
                link.closed_by_client()
