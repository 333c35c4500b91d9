"""One AMQP connection: from the first bytes to the last, frame by frame.

Everything happens in the event loop and nothing waits: a frame comes in, the broker is asked, answers are collected and
written together. A peer that breaks the protocol is told so and cut off; the server and everybody else go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from syphon.amqp import Array, Malformed, Symbol
from syphon.amqp.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_AMQP,
    FRAME_SASL,
    MIN_MAX_FRAME_SIZE,
    SASL_HEADER,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Open,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    frame,
    read_performative,
)

from ..broker.access import Grant
from ..broker.faults import Action, Fault, Operation, Outage
from ..broker.namespace import Namespace
from ..broker.refusals import Refusal, Unauthorized
from ..clock import Millis
from .session import AmqpSession

log = logging.getLogger(__name__)

MAX_FRAME_SIZE = 65536
CHANNEL_MAX = 4999
SHORTEST_IDLE_TIMEOUT = 100
"""In milliseconds: a peer that wants to hear from us more often than this would keep us busy with nothing else."""
PILE = 1024 * 1024
"""How many bytes may wait to be written before links that deliver must wait as well."""
FAREWELL_WITHIN = 5.0
"""How many seconds a peer has to take our last words and close its end."""
SASL_MECHANISMS = Array(0xA3, (Symbol("ANONYMOUS"), Symbol("PLAIN"), Symbol("MSSBCBS")))
SASL_OK, SASL_AUTH = 0, 1


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """How patient the front is, in milliseconds."""

    link_idle_timeout: Millis = 600_000
    connection_idle_timeout: Millis = 240_000
    handshake_timeout: Millis = 30_000


class ProtocolError(Exception):
    """The peer did what AMQP does not allow."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class AmqpConnection(asyncio.Protocol):
    """A client's connection to a namespace."""

    def __init__(self, namespace: Namespace, settings: FrontSettings, gone: Callable[[AmqpConnection], None]) -> None:
        self.namespace = namespace
        self.settings = settings
        self.grants: dict[str, Grant] = {}
        self.peer_max_frame_size = MIN_MAX_FRAME_SIZE
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._read: Callable[[bytes, int], int] = self._read_header
        self._secured = False
        self._opened = False
        self._closing = False
        self._hung = False
        self.broken_off = False
        """Whether it ends by our doing: what the peer was waiting for then did not end by the peer's."""
        self._said_all = False
        self._peer_closed = False
        self._held_up = False
        self._out: list[bytes] = []
        self._piled = 0
        self._writable = True
        self._flushing = False
        self._sessions: dict[int, AmqpSession] = {}
        self.link_count = 0
        self.unfinished = 0
        self._rights_timer: asyncio.TimerHandle | None = None
        self._heard_at = self._wrote_at = self._loop.time()
        self._timers: set[asyncio.TimerHandle] = set()

    # --- the socket ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not asyncio's by type
        self._after(self.settings.handshake_timeout / 1000, self._give_up_handshake)
        if self.namespace.faults.outage in (Outage.REFUSE, Outage.DROP):
            self.abort()
        elif self.namespace.faults.outage is Outage.HANG:
            self.hang()
        elif self.namespace.journal.trouble is not None:
            self._refusal = Error("amqp:internal-error", self.namespace.journal.trouble)
        elif (fault := self.namespace.faults.strike(Operation.CONNECT, "")) is not None:
            self._suffer(fault)

    def _suffer(self, fault: Fault) -> None:
        if fault.action is Action.HANG:
            self.hang()
        elif fault.action is Action.DELAY:
            assert self._transport is not None  # it was just given
            self._transport.pause_reading()
            self._held_up = True
            clock = self.namespace.clock
            clock.call_at(clock.now() + round(fault.seconds * 1000), self._let_through)
        elif fault.action is Action.ERROR:
            refusal = fault.refusal()
            self._refusal = Error(refusal.condition, refusal.description)
        else:
            self.abort()

    _refusal: Error | None = None

    def _let_through(self) -> None:
        self._held_up = False
        self._resume()
        self.data_received(b"")  # what came with the connection itself

    def _resume(self) -> None:
        if self._transport is not None and self._writable and not self._held_up:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  why a peer went does not matter here
        self._transport = None
        self._said_all = True
        for timer in self._timers:
            timer.cancel()
        if self._rights_timer is not None:
            self._rights_timer.cancel()
        self._end_sessions()
        self._gone(self)

    def pause_writing(self) -> None:
        # A peer that does not read gets no more to read: what it asks for must wait.
        self._writable = False
        if self._transport is not None and not self._closing:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._writable = True
        self._resume()
        self._go_on()

    @property
    def is_congested(self) -> bool:
        """Whether enough is on its way to the peer: a link that delivered on would fill our memory, not the wire."""
        return self._piled > PILE or not self._writable

    def _go_on(self) -> None:
        if not self.is_congested:
            for session in list(self._sessions.values()):
                session.go_on()

    def data_received(self, data: bytes) -> None:
        if self._hung or self._closing:
            return
        self._heard_at = self._loop.time()
        if self._rest:
            data = self._rest + data
        if self._held_up:
            self._rest = data
            return
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
        except Exception:  # one connection's trouble must not be another's
            log.exception("a connection of namespace %s failed", self.namespace.name)
            self.close("amqp:internal-error", "The emulator failed on this connection; its log says how.")
        self._rest = data[pos:]

    def write(self, data: bytes) -> None:
        """Sends bytes, with all else that is written in this turn of the loop. Nothing after the last words."""
        if self._said_all:
            return
        self._out.append(data)
        self._piled += len(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def send(self, channel: int, performative: Composite) -> None:
        body = performative.to_bytes()
        if len(body) + 8 > self.peer_max_frame_size:
            body = _shortened(performative, self.peer_max_frame_size - 8)
            if len(body) + 8 > self.peer_max_frame_size:
                room = f"a frame of {self.peer_max_frame_size} bytes"
                self.close("amqp:frame-size-too-small", f"{performative.NAME} does not fit into {room}.")
                return
        self.write(frame(channel, body))

    def _flush(self) -> None:
        """What is said is true on disk first: not only acknowledgements, but deliveries with their locks as well."""
        self._flushing = False
        data, self._out = b"".join(self._out), []
        put = partial(self._put, data, self._closing)
        if self.namespace.journal.trouble is None:
            self.namespace.journal.when_durable(put)
        else:
            put()  # there is nothing left to say but why the connection ends: see fail

    def _put(self, data: bytes, last: bool) -> None:
        self._piled -= len(data)
        if self._transport is not None and not self._hung:
            self._transport.write(data)
            self._wrote_at = self._loop.time()
            if last:
                self._part()
        self._go_on()

    def _part(self) -> None:
        """All is said. The peer may still be sending: cutting it off now could destroy our last words on their way."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._peer_closed or not transport.can_write_eof():
            transport.close()
        else:
            with contextlib.suppress(OSError):  # the peer may have gone while we were speaking
                transport.write_eof()
            transport.resume_reading()  # to nowhere, until the peer closes its end as well
        self._after(FAREWELL_WITHIN, self.abort)

    def hush(self) -> None:
        """Drops what was about to be said: it speaks of things that could not be kept."""
        self._piled -= sum(map(len, self._out))
        self._out.clear()

    def fail(self, why: str) -> None:
        """Ends the connection because what happened on it cannot be kept."""
        for session in list(self._sessions.values()):
            session.detach_all(Error("amqp:internal-error", why))  # clients look for the reason on their links
        self.close("amqp:internal-error", why)

    def hang(self) -> None:
        """Not one byte more, in either direction."""
        self._hung = self.broken_off = True

    @property
    def is_hung(self) -> bool:
        return self._hung

    def abort(self) -> None:
        """Cuts the connection without a word."""
        self.broken_off = self._closing = self._said_all = True
        if self._transport is not None:
            self._transport.abort()

    def close(self, condition: str | None = None, description: str = "") -> None:
        """Closes in the way of the protocol, with an error if there is one."""
        if self._closing:
            return
        self._closing = True
        self.broken_off = self.broken_off or condition is not None
        self._end_sessions()
        if self._opened:
            error = Error(condition, description) if condition else None
            self.send(0, Close(error))
        elif condition and self._read != self._read_header and self._secured:
            # AMQP wants an open before a close, even if all it says is goodbye.
            self.send(0, Open(self.namespace.name))
            self.send(0, Close(Error(condition, description)))
        else:
            self.write(b"")
        self._said_all = True

    # --- what comes in -------------------------------------------------------------------------------------------

    def _read_header(self, data: bytes, pos: int) -> int:
        if len(data) - pos < 8:
            if not AMQP_HEADER.startswith(data[pos : pos + 4]):
                self.write(AMQP_HEADER)
                raise ProtocolError("amqp:connection:framing-error", "That is not AMQP.")
            return pos
        header = data[pos : pos + 8]
        if header == SASL_HEADER and not self._secured:
            self.write(SASL_HEADER)
            self.write(frame(0, SaslMechanisms(SASL_MECHANISMS).to_bytes(), FRAME_SASL))
            self._read = self._read_sasl
        elif header == AMQP_HEADER:
            self.write(AMQP_HEADER)
            self._secured = True
            self._read = self._read_frame
        else:
            self.write(SASL_HEADER)
            raise ProtocolError("amqp:connection:framing-error", "Only AMQP 1.0 is spoken here.")
        return pos + 8

    def _read_sasl(self, data: bytes, pos: int) -> int:
        cut = self._cut(data, pos, FRAME_SASL)
        if cut is None:
            return pos
        _, body, after = cut
        performative, _ = read_performative(body)
        if not isinstance(performative, SaslInit):
            raise ProtocolError("amqp:not-allowed", f"sasl-init was expected, not {performative.NAME}")
        try:
            self._authenticate(performative)
        except Unauthorized as refusal:
            log.info("namespace %s refused a connection: %s", self.namespace.name, refusal.description)
            self.write(frame(0, SaslOutcome(SASL_AUTH).to_bytes(), FRAME_SASL))
            self.close()
            return len(data)
        self.write(frame(0, SaslOutcome(SASL_OK).to_bytes(), FRAME_SASL))
        self._secured = True
        self._read = self._read_header
        return after

    def _authenticate(self, init: SaslInit) -> None:
        if init.mechanism == "PLAIN":
            parts = (init.initial_response or b"").split(b"\0")
            if len(parts) != 3:
                raise Unauthorized("SASL PLAIN wants an authorization id, a policy's name and its key.")
            name, key = (part.decode("utf-8", "replace") for part in parts[1:])
            self.grants[""] = self.namespace.access.plain(name, key)
        elif init.mechanism not in ("ANONYMOUS", "MSSBCBS"):
            raise Unauthorized(f"SASL {init.mechanism} is not offered.")

    def _read_frame(self, data: bytes, pos: int) -> int:
        cut = self._cut(data, pos, FRAME_AMQP)
        if cut is None:
            return pos
        channel, body, after = cut
        if not body:
            return after  # a heartbeat
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

    def _cut(self, data: bytes, pos: int, kind: int) -> tuple[int, bytes, int] | None:
        """The next whole frame: its channel, its body and where it ends. None until all of it is there."""
        if len(data) - pos < 8:
            return None
        size = int.from_bytes(data[pos : pos + 4], "big")
        offset = data[pos + 4] * 4
        if size > MAX_FRAME_SIZE:
            raise ProtocolError(
                "amqp:connection:framing-error", f"A frame of {size} bytes exceeds the limit of {MAX_FRAME_SIZE}."
            )
        if offset < 8 or size < offset or data[pos + 5] != kind:
            raise ProtocolError("amqp:connection:framing-error", "A frame's header is not valid.")
        after = pos + size
        if after > len(data):
            return None
        return int.from_bytes(data[pos + 6 : pos + 8], "big"), data[pos + offset : after], after

    # --- open, begin, time ---------------------------------------------------------------------------------------

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
        idle = self.settings.connection_idle_timeout
        self.send(0, Open(self.namespace.name, None, MAX_FRAME_SIZE, CHANNEL_MAX, idle))
        if self._refusal is not None:
            self.close(self._refusal.condition, self._refusal.description or "")
            return
        if peer.idle_time_out:
            self._keep_alive(peer.idle_time_out / 1000)
        self._watch_peer(2 * idle / 1000)

    def _on_begin(self, channel: int, peer: Begin) -> None:
        if channel > CHANNEL_MAX:
            raise ProtocolError("amqp:connection:framing-error", f"Channel {channel} is over {CHANNEL_MAX}.")
        if channel in self._sessions:
            raise ProtocolError("amqp:not-allowed", f"Channel {channel} has a session already.")
        self._sessions[channel] = AmqpSession(self, channel, peer)

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        def ring() -> None:
            self._timers.discard(timer)
            callback()

        timer = self._loop.call_later(seconds, ring)
        self._timers.add(timer)

    def _keep_alive(self, timeout: float) -> None:
        """The peer wants to hear from us at least so often: a heartbeat goes out well before that."""
        if self._transport is None or self._closing:
            return
        if self._loop.time() - self._wrote_at >= timeout / 3:
            self.write(EMPTY_FRAME)
        self._after(timeout / 3, lambda: self._keep_alive(timeout))

    def _watch_peer(self, patience: float) -> None:
        if self._transport is None or self._closing:
            return
        silent = self._loop.time() - self._heard_at
        if silent >= patience:
            self.close("amqp:resource-limit-exceeded", f"Nothing was heard from the peer for {silent:.0f} seconds.")
        else:
            self._after(patience - silent, lambda: self._watch_peer(patience))

    def _give_up_handshake(self) -> None:
        if not self._opened and not self._hung:
            self.abort()

    # --- rights --------------------------------------------------------------------------------------------------

    def grant(self, grant: Grant) -> None:
        """A token was put: it stands for its path until it expires, and then the links that lived on it end."""
        self.grants[grant.path] = grant
        self._watch_rights()

    def _watch_rights(self) -> None:
        """One timer for the next token to expire. Those that have are forgotten."""
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

    def _end_sessions(self) -> None:
        # First those that wait: what the others give up must not go to a link that is about to end too.
        for session in self._sessions.values():
            session.stop_waiting()
        for session in self._sessions.values():
            session.end()
        self._sessions.clear()

    def refuse(self, refusal: Refusal) -> None:
        self.close(refusal.condition, refusal.description)


def _shortened(performative: Composite, room: int) -> bytes:
    """A performative whose error tells as much as fits into a frame; without an error nothing can be left out."""
    holder = performative.state if isinstance(performative, Disposition) else performative
    error = holder.error if isinstance(holder, Close | End | Detach | Rejected) else None
    body = performative.to_bytes()
    while error is not None and error.description and len(body) > room:
        error.description = error.description[: -(len(body) - room)]
        body = performative.to_bytes()
    return body
