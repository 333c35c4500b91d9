"""Frames in and out: cutting them from the bytes of a socket, collecting output, and heartbeats."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial

from syphon.amqp.frames import Close, Composite, Detach, Disposition, End, Rejected

from ..broker import Journal

MAX_FRAME_SIZE = 65536
HEADER_SIZE = 8


_HEAD = struct.Struct(">IBBH").unpack_from


class ProtocolError(Exception):
    """The peer violated the AMQP protocol."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


def cut(data: bytes, pos: int, kind: int) -> tuple[int, bytes, int] | None:
    """Returns the channel, body and end of the next whole frame, or None until all of it has arrived."""
    if len(data) - pos < HEADER_SIZE:
        return None
    size, words, found_kind, channel = _HEAD(data, pos)
    offset = words * 4
    if size > MAX_FRAME_SIZE:
        raise ProtocolError(
            "amqp:connection:framing-error", f"A frame of {size} bytes exceeds the limit of {MAX_FRAME_SIZE}."
        )
    if offset < HEADER_SIZE or size < offset or found_kind != kind:
        raise ProtocolError("amqp:connection:framing-error", "A frame's header is not valid.")
    after = pos + size
    if after > len(data):
        return None
    return channel, data[pos + offset : after], after


def fitted(performative: Composite, frame_size: int) -> bytes | None:
    """Encodes a performative for a frame of this size. The description of an error is shortened to fit. None if the
    performative is still too large."""
    room = frame_size - HEADER_SIZE
    body = performative.to_bytes()
    if len(body) > room:
        holder = performative.state if isinstance(performative, Disposition) else performative
        error = holder.error if isinstance(holder, Close | End | Detach | Rejected) else None
        while error is not None and error.description and len(body) > room:
            error.description = error.description[: -(len(body) - room)]
            body = performative.to_bytes()
    return body if len(body) <= room else None


CONGESTION_LIMIT = 1024 * 1024
"""Bytes that may wait for the socket. Beyond that, links stop delivering messages."""


class OutputBuffer:
    """Collects the bytes of one turn of the event loop and holds them until the journal has written their changes.

    Then it passes them to `put`, with a flag for the last bytes of the connection.
    """

    def __init__(self, journal: Journal, put: Callable[[bytes, bool], None]) -> None:
        self.is_blocked = False
        """Whether the socket accepts no more bytes."""
        self._journal = journal
        self._put = put
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._pending_bytes = 0
        self._flushing = False
        self._ended = False

    @property
    def is_congested(self) -> bool:
        """Whether enough bytes wait for the peer. More deliveries would fill memory and reach the peer no sooner."""
        return self._pending_bytes > CONGESTION_LIMIT or self.is_blocked

    def write(self, data: bytes) -> None:
        """Sends bytes together with all others of this turn of the loop. Ignores bytes after `end`."""
        if self._ended:
            return
        self._out.append(data)
        self._pending_bytes += len(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def begin_turn(self) -> bool:
        """Sends what is written from now on in `end_turn`, and not in a turn of its own: that would cost a poll.

        Returns whether a turn has begun. Then the caller must end it.
        """
        is_first, self._flushing = not self._flushing, True
        return is_first

    def end_turn(self) -> None:
        if self._out:
            self._flush()
        else:
            self._flushing = False

    def end(self) -> None:
        """Marks the bytes written so far as the last ones."""
        self._ended = True

    def discard_output(self) -> None:
        """Drops output that has not been sent: it reports changes that could not be written to disk."""
        self._pending_bytes -= sum(map(len, self._out))
        self._out.clear()

    def _flush(self) -> None:
        """Sends after the changes are on disk. This holds for acknowledgements and for deliveries with their locks."""
        self._flushing = False
        data, self._out = b"".join(self._out), []
        release = partial(self._release, data, self._ended)
        if self._journal.write_error is None:
            self._journal.when_durable(release)
        else:
            release()  # the output only says why the connection ends

    def _release(self, data: bytes, last: bool) -> None:
        self._pending_bytes -= len(data)
        self._put(data, last)


class Heartbeat:
    """Sends a heartbeat when the connection was quiet for long, and disconnects a peer that sends nothing."""

    def __init__(self, beat: Callable[[], None], give_up: Callable[[float], None]) -> None:
        self._beat = beat
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._spoke_at = self._loop.time()
        self._beating: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._stopped = False

    def heard(self) -> None:
        self._heard_at = self._loop.time()

    def spoke(self) -> None:
        self._spoke_at = self._loop.time()

    def keep_alive(self, timeout: float) -> None:
        """Sends heartbeats at a third of the peer's idle timeout."""
        if self._stopped:
            return
        if self._loop.time() - self._spoke_at >= timeout / 3:
            self._beat()
        self._beating = self._loop.call_later(timeout / 3, self.keep_alive, timeout)

    def watch(self, patience: float) -> None:
        """Disconnects the peer when it was silent for this long."""
        if self._stopped:
            return
        silent = self._loop.time() - self._heard_at
        if silent >= patience:
            self._give_up(silent)
        else:
            self._watching = self._loop.call_later(patience - silent, self.watch, patience)

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._beating, self._watching):
            if timer is not None:
                timer.cancel()
