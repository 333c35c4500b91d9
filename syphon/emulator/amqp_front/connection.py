"""One AMQP connection, from its first bytes to its last.

Everything happens in the event loop without waiting: a frame arrives, the broker is called, and the answers of one turn
are written together. A peer that violates the protocol gets an error and is disconnected. The server and all other
connections continue.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from syphon.amqp import Malformed
from syphon.amqp.frames import (
    EMPTY_FRAME,
    FRAME_AMQP,
    MIN_MAX_FRAME_SIZE,
    Begin,
    Close,
    Composite,
    End,
    Error,
    Open,
    frame,
    read_performative,
)

from ..broker import (
    Action,
    BrokerNamespace,
    Fault,
    Grant,
    OpenTransactions,
    Operation,
    Outage,
    Unauthorized,
    VirtualHosts,
)
from ..clock import Millis
from .fast_frames import match_completion
from .frame_io import MAX_FRAME_SIZE, Heartbeat, OutputBuffer, ProtocolError, cut, fitted
from .handshake import Handshake
from .session import AmqpSession

log = logging.getLogger(__name__)

CHANNEL_MAX = 4999
SHORTEST_IDLE_TIMEOUT = 100
"""Milliseconds. A peer with a shorter idle timeout would keep the server busy with heartbeats."""
CLOSE_TIMEOUT = 5.0
"""Seconds that a peer has to read the last frames and close its end."""


@dataclass(frozen=True, slots=True)
class AmqpTimeouts:
    """Timeouts of the AMQP front, in milliseconds."""

    link_idle_timeout: Millis = 600_000
    connection_idle_timeout: Millis = 240_000
    handshake_timeout: Millis = 30_000


class AmqpConnection(asyncio.Protocol):
    """A client's connection to a namespace."""

    def __init__(self, hosts: VirtualHosts, settings: AmqpTimeouts, gone: Callable[[AmqpConnection], None]) -> None:
        self.hosts = hosts
        self.namespace = namespace = hosts.first
        """The namespace that the client has named with its first key, and the first of the port until then."""
        self.host: str | None = None
        """The host that the client has opened."""
        self.settings = settings
        self.output = OutputBuffer(namespace.journal, self._put)
        self.grants: dict[str, Grant] = {}
        self.transactions = OpenTransactions(namespace.clock, namespace.target)
        self.peer_max_frame_size = MIN_MAX_FRAME_SIZE
        self.link_count = 0
        self.unfinished = 0
        self.is_hung = False
        self.ended_by_server = False
        """Whether the server ended the connection. A pending receive then does not count as an empty receive."""
        self._on_closed = gone
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._handshake = Handshake(hosts, self.output)
        self._heartbeat = Heartbeat(lambda: self.output.write(EMPTY_FRAME), self._give_up_peer)
        self._rest = b""
        self._read: Callable[[bytes, int], int] = self._read_handshake
        self._refusal: Error | None = None
        self._delayed_by_fault = False
        self._opened = False
        self._closing = False
        self._peer_closed = False
        self._sessions: dict[int, AmqpSession] = {}
        self._rights_timer: asyncio.TimerHandle | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    # --- the socket ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio's by type
        self._after(self.settings.handshake_timeout / 1000, self._give_up_handshake)
        self._meet_faults()

    def join(self, namespace: BrokerNamespace) -> None:
        """Moves the connection to the namespace that its client has named. Its first key decides."""
        if namespace is not self.namespace:
            if self.grants:
                raise Unauthorized(f"This connection belongs to namespace {self.namespace.name}: open another one.")
            self.namespace = namespace
            self.transactions = OpenTransactions(namespace.clock, namespace.target)
            self._meet_faults()
        self.hosts.keep(namespace)

    def _meet_faults(self) -> None:
        if self.namespace.faults.outage in (Outage.REFUSE, Outage.DROP):
            self.abort()
        elif self.namespace.faults.outage is Outage.HANG:
            self.hang()
        elif self.namespace.journal.write_error is not None:
            self._refusal = Error("amqp:internal-error", self.namespace.journal.write_error)
        elif (fault := self.namespace.faults.strike(Operation.CONNECT, "")) is not None:
            self._apply_fault(fault)

    def _apply_fault(self, fault: Fault) -> None:
        if fault.action is Action.HANG:
            self.hang()
        elif fault.action is Action.DELAY:
            assert self._transport is not None  # set in connection_made
            self._transport.pause_reading()
            self._delayed_by_fault = True
            clock = self.namespace.clock
            clock.call_at(clock.now() + round(fault.seconds * 1000), self._end_delay)
        elif fault.action is Action.ERROR:
            refusal = fault.refusal()
            self._refusal = Error(refusal.condition, refusal.description)
        else:
            self.abort()

    def _end_delay(self) -> None:
        self._delayed_by_fault = False
        self._resume()
        self.data_received(b"")  # reads the bytes that arrived during the delay

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the reason does not matter here
        self._transport = None
        self.output.end()
        self._heartbeat.stop()
        for timer in self._timers:
            timer.cancel()
        if self._rights_timer is not None:
            self._rights_timer.cancel()
        self._end_sessions()
        self._on_closed(self)

    def pause_writing(self) -> None:
        # The server reads no more requests from a peer that does not read its answers.
        self.output.is_blocked = True
        if self._transport is not None and not self._closing:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.output.is_blocked = False
        self._resume()
        self._go_on()

    def _resume(self) -> None:
        if self._transport is not None and not self.output.is_blocked and not self._delayed_by_fault:
            self._transport.resume_reading()

    def _go_on(self) -> None:
        if not self.output.is_congested:
            for session in list(self._sessions.values()):
                session.go_on()

    # --- input -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self.is_hung or self._closing:
            return
        self._heartbeat.heard()
        if self._rest:
            data = self._rest + data
        if self._delayed_by_fault:
            self._rest = data
            return
        is_turn = self.output.begin_turn()
        try:
            self._rest = data[self._read_all(data) :]
        finally:
            if is_turn:
                self.output.end_turn()

    def _read_all(self, data: bytes) -> int:
        """Reads all frames that have arrived whole, and returns where the rest begins."""
        pos = 0
        try:
            while True:
                after = self._read(data, pos)
                if after == pos:
                    break
                pos = after
        except ProtocolError as error:
            self.close(error.condition, error.description)
        except Malformed as error:
            self.close("amqp:decode-error", str(error))
        except Exception:  # an error on one connection must not affect another
            log.exception("a connection of namespace %s failed", self.namespace.name)
            self.close("amqp:internal-error", "The emulator failed on this connection; its log says how.")
        return pos

    def _read_handshake(self, data: bytes, pos: int) -> int:
        try:
            after = self._handshake.read(data, pos)
        except Unauthorized as refusal:
            log.info("namespace %s refused a connection: %s", self.namespace.name, refusal.description)
            self.close()
            return len(data)
        if self._handshake.is_over:
            if self._handshake.grant is not None:
                self.join(self._handshake.namespace)
                self.grants[""] = self._handshake.grant
            self._read = self._read_frame
        return after

    def _read_frame(self, data: bytes, pos: int) -> int:
        found = cut(data, pos, FRAME_AMQP)
        if found is None:
            return pos
        channel, body, after = found
        if not body:
            return after  # a heartbeat
        if (completed := match_completion(body)) is not None and (session := self._sessions.get(channel)) is not None:
            session.complete(*completed)
            return after if not self._closing else len(data)
        performative, payload = read_performative(body)
        if isinstance(performative, Open):
            self._on_open(performative)
        elif not self._opened:
            raise ProtocolError("amqp:illegal-state", f"open was expected, not {performative.NAME}")
        elif isinstance(performative, Begin):
            self._on_begin(channel, performative)
        elif isinstance(performative, Close):
            self._peer_closed = True
            self.close()
        elif (session := self._sessions.get(channel)) is None:
            raise ProtocolError("amqp:not-allowed", f"{performative.NAME} on channel {channel}, which has no session")
        elif isinstance(performative, End):
            del self._sessions[channel]
            if not session.is_over:
                session.end()
                self.send(channel, End())
        else:
            session.on(performative, body[payload:])
        return after if not self._closing else len(data)

    def _on_open(self, peer: Open) -> None:
        if self._opened:
            raise ProtocolError("amqp:illegal-state", "The connection is open already.")
        if peer.idle_time_out is not None and 0 < peer.idle_time_out < SHORTEST_IDLE_TIMEOUT:
            raise ProtocolError("amqp:not-allowed", f"open.idle-time-out is under {SHORTEST_IDLE_TIMEOUT} ms.")
        if peer.max_frame_size is not None:
            if peer.max_frame_size < MIN_MAX_FRAME_SIZE:
                raise ProtocolError("amqp:invalid-field", f"open.max-frame-size is under {MIN_MAX_FRAME_SIZE}.")
            self.peer_max_frame_size = min(peer.max_frame_size, MAX_FRAME_SIZE)
        else:
            self.peer_max_frame_size = MAX_FRAME_SIZE
        self._opened = True
        self.host = peer.hostname
        idle = self.settings.connection_idle_timeout
        self.send(0, Open(self.namespace.name, None, MAX_FRAME_SIZE, CHANNEL_MAX, idle))
        if self._refusal is not None:
            self.close(self._refusal.condition, self._refusal.description or "")
            return
        if peer.idle_time_out:
            self._heartbeat.keep_alive(peer.idle_time_out / 1000)
        self._heartbeat.watch(2 * idle / 1000)

    def _on_begin(self, channel: int, peer: Begin) -> None:
        if channel > CHANNEL_MAX:
            raise ProtocolError("amqp:connection:framing-error", f"Channel {channel} is over {CHANNEL_MAX}.")
        if channel in self._sessions:
            raise ProtocolError("amqp:not-allowed", f"Channel {channel} has a session already.")
        self._sessions[channel] = AmqpSession(self, channel, peer)

    # --- output ----------------------------------------------------------------------------------------------------

    def send(self, channel: int, performative: Composite) -> None:
        body = fitted(performative, self.peer_max_frame_size)
        if body is not None:
            self.output.write(frame(channel, body))
        else:
            room = f"a frame of {self.peer_max_frame_size} bytes"
            self.close("amqp:frame-size-too-small", f"{performative.NAME} does not fit into {room}.")

    def _put(self, data: bytes, last: bool) -> None:
        if self._transport is not None and not self.is_hung:
            self._transport.write(data)
            self._heartbeat.spoke()
            if last:
                self._finish_closing()
        self._go_on()

    def discard_output(self) -> None:
        """Drops output that has not been sent: it reports changes that could not be written to disk."""
        self.output.discard_output()

    # --- closing ---------------------------------------------------------------------------------------------------

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Closes the connection with an AMQP close, and with an error if there is one."""
        if self._closing:
            return
        self._closing = True
        self._heartbeat.stop()
        self.ended_by_server = self.ended_by_server or condition is not None
        self._end_sessions()
        if self._opened:
            error = Error(condition, description) if condition else None
            self.send(0, Close(error))
        elif condition and self._handshake.is_over:
            # AMQP requires an open before a close.
            self.send(0, Open(self.namespace.name))
            self.send(0, Close(Error(condition, description)))
        else:
            self.output.write(b"")
        self.output.end()

    def fail(self, why: str) -> None:
        """Ends the connection because its changes cannot be written to disk."""
        for session in list(self._sessions.values()):
            session.detach_all(Error("amqp:internal-error", why))  # clients read the reason from their links
        self.close("amqp:internal-error", why)

    def abort(self) -> None:
        """Cuts the connection without an AMQP close."""
        self.ended_by_server = self._closing = True
        self.output.end()
        if self._transport is not None:
            self._transport.abort()

    def hang(self) -> None:
        """Stops reading and writing, and keeps the connection open."""
        self.is_hung = self.ended_by_server = True

    def _finish_closing(self) -> None:
        """Closes our direction after the last bytes.

        The peer may still be sending: a full close now could destroy the last frames on their way.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._peer_closed or not transport.can_write_eof():
            transport.close()
        else:
            with contextlib.suppress(OSError):  # the peer may have disconnected meanwhile
                transport.write_eof()
            transport.resume_reading()  # input is ignored until the peer closes its end
        self._after(CLOSE_TIMEOUT, self.abort)

    def _end_sessions(self) -> None:
        # Pending links first: a session that another link releases must not go to a link that ends too.
        for session in self._sessions.values():
            session.stop_waiting()
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()

    # --- timers ----------------------------------------------------------------------------------------------------

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            callback()

        timer = self._loop.call_later(seconds, run)
        self._timers.add(timer)

    def _give_up_handshake(self) -> None:
        if not self._opened and not self.is_hung:
            self.abort()

    def _give_up_peer(self, silent: float) -> None:
        self.close("amqp:resource-limit-exceeded", f"Nothing was heard from the peer for {silent:.0f} seconds.")

    # --- rights ----------------------------------------------------------------------------------------------------

    def grant(self, grant: Grant) -> None:
        """Stores the rights of a token for its path. When the token expires, the links that need it end."""
        self.grants[grant.path] = grant
        self._watch_rights()

    def _watch_rights(self) -> None:
        """Sets one timer for the next token that expires, and removes expired tokens."""
        now = self.namespace.access.seconds()
        self.grants = {path: grant for path, grant in self.grants.items() if grant.expires_at > now}
        if self._rights_timer is not None:
            self._rights_timer.cancel()
            self._rights_timer = None
        expiries = [grant.expires_at for grant in self.grants.values() if grant.expires_at < float("inf")]
        if expiries:
            remaining = min(min(expiries) - now, 86_400.0)
            self._rights_timer = self._loop.call_later(remaining + 0.01, self._recheck_links)

    def _recheck_links(self) -> None:
        self._watch_rights()
        for session in list(self._sessions.values()):
            session.recheck_rights()
