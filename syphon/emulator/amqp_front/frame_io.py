"""Between the socket and the frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from syphon.amqp.frames import Close, Composite, Detach, Disposition, End, Rejected

from ..broker import Journal

MAX_FRAME_SIZE = 65536
HEADER_SIZE = 8


class ProtocolError(Exception):
    """The peer did what AMQP does not allow."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


def cut(data: bytes, pos: int, kind: int) -> tuple[int, bytes, int] | None:
    """The next whole frame: its channel, its body and where it ends. None until all of it is there."""
    if len(data) - pos < HEADER_SIZE:
        return None
    size = int.from_bytes(data[pos : pos + 4], "big")
    offset = data[pos + 4] * 4
    if size > MAX_FRAME_SIZE:
        raise ProtocolError(
            "amqp:connection:framing-error", f"A frame of {size} bytes exceeds the limit of {MAX_FRAME_SIZE}."
        )
    if offset < HEADER_SIZE or size < offset or data[pos + 5] != kind:
        raise ProtocolError("amqp:connection:framing-error", "A frame's header is not valid.")
    after = pos + size
    if after > len(data):
        return None
    return int.from_bytes(data[pos + 6 : pos + 8], "big"), data[pos + offset : after], after


def fitted(performative: Composite, frame_size: int) -> bytes | None:
    """A performative's bytes for a frame of this size. An error tells as much as fits; None if that is not enough."""
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
"""How many bytes may wait to be written before links that deliver must wait as well."""


class OutputBuffer:
    """Bytes on their way to the socket. `put` gets them when they may leave, and hears which are the last."""

    def __init__(self, journal: Journal, put: Callable[[bytes, bool], None]) -> None:
        self.is_blocked = False
        """Whether the socket has as much as it takes."""
        self._journal = journal
        self._put = put
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._pending_bytes = 0
        self._flushing = False
        self._ended = False

    @property
    def is_congested(self) -> bool:
        """Whether enough is on its way to the peer: a link that delivered on would fill our memory, not the wire."""
        return self._pending_bytes > CONGESTION_LIMIT or self.is_blocked

    def write(self, data: bytes) -> None:
        """Sends bytes, with all else that is written in this turn of the loop. Nothing after the last words."""
        if self._ended:
            return
        self._out.append(data)
        self._pending_bytes += len(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def end(self) -> None:
        """All is said: what was written up to here are the last words."""
        self._ended = True

    def discard_output(self) -> None:
        """Drops what was about to be said: it speaks of things that could not be kept."""
        self._pending_bytes -= sum(map(len, self._out))
        self._out.clear()

    def _flush(self) -> None:
        """What is said is true on disk first: not only acknowledgements, but deliveries with their locks as well."""
        self._flushing = False
        data, self._out = b"".join(self._out), []
        release = partial(self._release, data, self._ended)
        if self._journal.write_error is None:
            self._journal.when_durable(release)
        else:
            release()  # there is nothing left to say but why the connection ends

    def _release(self, data: bytes, last: bool) -> None:
        self._pending_bytes -= len(data)
        self._put(data, last)


class Heartbeat:
    """Beats when we have said nothing for long, and gives up a peer from which nothing is heard."""

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
        """The peer wants to hear from us at least so often: a heartbeat goes out well before that."""
        if self._stopped:
            return
        if self._loop.time() - self._spoke_at >= timeout / 3:
            self._beat()
        self._beating = self._loop.call_later(timeout / 3, self.keep_alive, timeout)

    def watch(self, patience: float) -> None:
        """The peer may be silent for so long, and then no longer."""
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
