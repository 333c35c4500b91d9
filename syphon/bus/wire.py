"""An AMQP connection to a namespace, driven by whoever owns it: one thread, one session, many links.

Nothing here blocks. The owner waits on the socket (`fileno`), then calls `read`, lets the links work and `flush`es;
once in a while `tick` sends heartbeats and looks for peers that have gone silent. Two threads never meet on one wire.

Ours, because one connection carries links to many destinations (attaching costs one round trip instead of the half
second a connection takes), and because settlement, credit and batches are pipelined.
"""

from __future__ import annotations

import heapq
import itertools
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from syphon.amqp import Described, Malformed, UInt, ULong, Value, compound, decode, encode
from syphon.amqp.frames import (
    EMPTY_FRAME,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    End,
    Error,
    Flow,
    Transfer,
    frame,
    read_performative,
)
from syphon.model import Interrupted, SyphonError, connection_ended, link_ended

from .fast_frames import usual_disposition, usual_transfer
from .sdk_internals import OpenSocket

CHANNEL = 2
"""The SDK keeps channel 1 for itself."""
WINDOW = 65_535
CHUNK = 262_144
BYTES_A_TURN = 4 * CHUNK
"""How much is read before it is worked on: a fast peer must not fill our memory first."""
SILENCE = 60.0
"""Seconds without a byte after which a connection that owes us an answer counts as dead."""
PATIENCE = 120.0
"""Seconds an answer may take on a connection that is alive. Who wants to be quicker closes the link before."""

TRANSFER, DISPOSITION = b"\x00\x53\x14", b"\x00\x53\x15"
_FRAME_HEAD = struct.Struct(">IBxH").unpack_from

ACCEPTED = Described(ULong(0x24), [])
ACCEPTED_BYTES = encode(ACCEPTED)
_COMPLETE_TAIL = b"\x40\x42" + ACCEPTED_BYTES
_COMPLETE_HEAD = frame(CHANNEL, DISPOSITION + compound(0xC0, 5, b"\x41\x70" + bytes(4) + _COMPLETE_TAIL))
_COMPLETE_HEAD = _COMPLETE_HEAD[: -len(_COMPLETE_TAIL) - 4]
"""A disposition that completes one delivery, but for its number: every message needs one."""


class WireLink(Protocol):
    """A link, as its wire sees it."""

    handle: int

    def on_attach(self, attach: Attach) -> None: ...

    def on_flow(self, flow: Flow) -> None: ...

    def on_message(self, delivery_id: int, tag: bytes, payload: bytes) -> None: ...

    def on_outcome(self, delivery_id: int, state: object) -> None:
        """What became of a delivery: one this link sent, or one it received and asked to settle."""

    def lost(self, error: SyphonError) -> None:
        """The link is gone, or the wire under it."""

    def awaits_answer_since(self) -> float | None:
        """Since when the peer owes this link an answer, if it does."""


class Wire:
    """A session on a connection."""

    def __init__(self, opened: OpenSocket, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.now = now
        self.max_frame_size = opened.max_frame_size
        self.failure: SyphonError | None = None
        self._socket = opened.socket
        self._idle_timeout = opened.idle_timeout
        self._heartbeat = opened.heartbeat
        self._rest = opened.unread
        self._out: deque[bytes | memoryview] = deque()
        self._unsent = memoryview(b"")
        """Of the piece that is being written."""
        self._links: dict[int, WireLink] = {}
        self._by_remote: dict[int, WireLink] = {}
        self._by_name: dict[str, WireLink] = {}
        self._pieces: dict[int, tuple[Transfer, list[bytes]]] = {}
        self._sent_by: dict[int, WireLink] = {}
        self._settled_by: dict[int, WireLink] = {}
        self._new_handles = itertools.count()
        self._free_handles: list[int] = []
        self._delivery_ids = itertools.count()
        self._remote_channel: int | None = None
        self._next_outgoing_id = 0
        self._next_incoming_id = 0
        self._peer_window = 0
        self._held_back: deque[tuple[WireLink, bytes, memoryview]] = deque()
        self._heard_at = self._wrote_at = now()
        self.send(Begin(None, 0, WINDOW, WINDOW, 65535))

    # --- the socket ----------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._socket.fileno()

    def wants_to_write(self) -> bool:
        return bool(self._out or self._unsent)

    def has_unread(self) -> bool:
        """TLS may have decrypted more than was asked for: the socket then looks quiet and is not."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def read(self) -> None:
        """Takes in what has arrived, up to a limit, and hands each frame to the link it is for."""
        pieces = [self._rest] if self._rest else []
        known, room = len(pieces), BYTES_A_TURN
        try:
            while room > 0:
                piece = self._socket.recv(CHUNK)
                if not piece:
                    self.fail(Interrupted(f"{self.name} closed the connection."))
                    break
                pieces.append(piece)
                room -= len(piece)
                if len(piece) < CHUNK and not isinstance(self._socket, ssl.SSLSocket):
                    break  # that was all; TLS hands out a record at a time, and may have more
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self.fail(Interrupted(f"The connection to {self.name} broke: {error.strerror or error}."))
        if len(pieces) > known:
            self._heard_at = self.now()
        if pieces:
            self._take(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _take(self, data: bytes) -> None:
        pos, end = 0, len(data)
        try:
            while end - pos >= 8:
                size, offset, channel = _FRAME_HEAD(data, pos)
                if size < 8 or size > 0x7FFFFFFF:
                    raise Malformed(f"a frame of {size} bytes")
                after = pos + size
                if after > end:
                    break
                start = pos + 4 * offset
                if start < after:
                    self._on_frame(channel, data, start, after)
                pos = after
        except Malformed as error:
            self.fail(Interrupted(f"{self.name} sent what is not AMQP: {error}."))
            pos = end
        self._rest = data[pos:]

    def write(self, data: bytes) -> None:
        self._out.append(data)

    def send(self, performative: Composite) -> None:
        self._out.append(frame(CHANNEL, performative.to_bytes()))

    def flush(self) -> None:
        """Writes what the socket takes; the rest waits for the next time."""
        if not self.wants_to_write() or self.failure is not None:
            return
        try:
            while self.wants_to_write():
                # A piece is written to its end before the next one is made: TLS takes a record at a time.
                self._unsent = self._unsent or memoryview(self._next_piece())
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            self.fail(Interrupted(f"The connection to {self.name} broke: {error.strerror or error}."))
        self._wrote_at = self.now()

    def _next_piece(self) -> bytes | memoryview:
        """As many frames as make one good write."""
        piece = self._out.popleft()
        if len(piece) >= CHUNK or not self._out:
            return piece
        pieces, size = [piece], len(piece)
        while self._out and size < CHUNK:
            size += len(self._out[0])
            pieces.append(self._out.popleft())
        return b"".join(pieces)

    def tick(self) -> None:
        """What must happen even when nothing does."""
        now = self.now()
        if self._idle_timeout and now - self._wrote_at > self._idle_timeout / 3:
            self.write(EMPTY_FRAME)
        owed = [since for link in self._links.values() if (since := link.awaits_answer_since()) is not None]
        if owed and now - max(min(owed), self._heard_at) > SILENCE:
            self.fail(Interrupted(f"{self.name} has not answered for {SILENCE:.0f} seconds."))
        elif owed and now - min(owed) > PATIENCE:
            self.fail(Interrupted(f"{self.name} is alive, and has not answered for {PATIENCE:.0f} seconds."))
        elif now - self._heard_at > 2 * self._heartbeat:
            # A peer that is gone without a word: a poll that waits for a quarter of an hour would never notice.
            self.fail(Interrupted(f"{self.name} has been silent for {2 * self._heartbeat:.0f} seconds."))

    def fail(self, error: SyphonError) -> None:
        """The wire is dead, and so are its links."""
        if self.failure is not None:
            return
        self.failure = error
        self._socket.close()
        for link in list(self._links.values()):
            link.lost(error)
        self._links.clear()

    def close(self) -> None:
        """Says goodbye if the peer listens, and leaves."""
        if self.failure is None:
            self.write(frame(0, Close().to_bytes()))
            self.flush()
            self.fail(Interrupted(f"The connection to {self.name} was closed."))

    # --- links ---------------------------------------------------------------------------------------------------

    def add(self, link: WireLink, name: str) -> int:
        """Gives a link its handle."""
        # Peers allow only so many handles at a time: those of links that are gone are used again.
        handle = heapq.heappop(self._free_handles) if self._free_handles else next(self._new_handles)
        self._links[handle] = link
        self._by_name[name] = link
        return handle

    def drop(self, link: WireLink) -> None:
        """The link is no longer wanted."""
        if self._links.get(link.handle) is link:
            self._forget(link)
            if self.failure is None:
                self.send(Detach(link.handle, True))

    def _forget(self, link: WireLink) -> None:
        del self._links[link.handle]
        heapq.heappush(self._free_handles, link.handle)
        # The next link gets the same handle: what has not gone out yet must not go to where that one leads.
        self._held_back = deque(held for held in self._held_back if held[0] is not link)
        for owners in (self._sent_by, self._settled_by):
            for delivery_id in [key for key, owner in owners.items() if owner is link]:
                del owners[delivery_id]

    def grant(self, handle: int, delivery_count: int, credit: int, drain: bool | None = None) -> None:
        """How many messages may come. With `drain` the peer answers, after all that was under way already."""
        window = self._next_incoming_id, WINDOW, self._next_outgoing_id, WINDOW
        self.send(Flow(*window, handle, delivery_count, credit, None, drain, drain))

    def transfer(self, link: WireLink, message_format: int, payload: bytes) -> int:
        """Sends a message in as many frames as it takes, as far as the peer's window allows. Returns its id."""
        delivery_id = next(self._delivery_ids) & 0xFFFFFFFF
        self._sent_by[delivery_id] = link
        head = b"\x70" + link.handle.to_bytes(4, "big") + b"\x70" + delivery_id.to_bytes(4, "big")
        head += b"\xa0\x04" + delivery_id.to_bytes(4, "big") + b"\x70" + message_format.to_bytes(4, "big") + b"\x42"
        head = TRANSFER + b"\xc0" + bytes((len(head) + 2, 6)) + head
        room = self.max_frame_size - 64
        view = memoryview(payload)
        for start in range(0, len(payload) or 1, room):
            piece = view[start : start + room]
            more = b"\x41" if start + room < len(payload) else b"\x42"
            self._held_back.append((link, frame(CHANNEL, head + more, following=len(piece)), piece))
        self._let_out()
        return delivery_id

    def settle(self, link: WireLink, delivery_id: int, state: bytes) -> None:
        """Tells the peer what became of a delivery, unsettled: the peer's echo is the proof (`on_outcome`)."""
        self._settled_by[delivery_id] = link
        if state is ACCEPTED_BYTES:
            self._out.append(_COMPLETE_HEAD + delivery_id.to_bytes(4, "big") + _COMPLETE_TAIL)
            return
        fields = b"\x41\x70" + delivery_id.to_bytes(4, "big") + b"\x40\x42" + state
        self._out.append(frame(CHANNEL, DISPOSITION + compound(0xC0, 5, fields)))

    def _let_out(self) -> None:
        while self._held_back and self._peer_window > 0:
            self._peer_window -= 1
            self._next_outgoing_id = (self._next_outgoing_id + 1) & 0xFFFFFFFF
            self._out += self._held_back.popleft()[1:]

    # --- frames in -----------------------------------------------------------------------------------------------

    def _on_frame(self, channel: int, data: bytes, start: int, end: int) -> None:
        if channel == self._remote_channel:
            if data.startswith(TRANSFER, start):
                self._on_transfer(data, start, end)
                return
            if data.startswith(DISPOSITION, start):
                usual = usual_disposition(data, start, end)
                if usual is not None:
                    self._on_settled(*usual, ACCEPTED)
                else:
                    self._on_disposition(decode(data, start + 3, end)[0])
                return
        performative, _ = read_performative(data[start:end])
        if isinstance(performative, Begin) and performative.remote_channel == CHANNEL:
            self._remote_channel = channel
            self._next_incoming_id = performative.next_outgoing_id
            self._peer_window = performative.incoming_window
            self._let_out()
        elif isinstance(performative, Close):
            self._on_close(performative.error)
        elif channel == self._remote_channel:
            self._on_session_frame(performative)

    def _on_transfer(self, data: bytes, start: int, end: int) -> None:
        self._next_incoming_id = (self._next_incoming_id + 1) & 0xFFFFFFFF
        usual = usual_transfer(data, start, end)
        if usual is not None and usual[0] not in self._pieces:
            handle, delivery_id, tag, payload = usual
            link = self._by_remote.get(handle)
            if link is not None:
                link.on_message(delivery_id, tag, data[payload:end])
            return
        fields, payload = decode(data, start + len(TRANSFER), end)
        if not isinstance(fields, list):
            raise Malformed("transfer is no list")
        self._on_piece(Transfer.of(fields), data[payload:end])

    def _on_piece(self, transfer: Transfer, payload: bytes) -> None:
        """A message may come in several frames, and only the first one must say which message it is."""
        link = self._by_remote.get(transfer.handle)
        if link is None:
            return
        first, pieces = self._pieces.setdefault(transfer.handle, (transfer, []))
        pieces.append(payload)
        if transfer.more and not transfer.aborted:
            return
        del self._pieces[transfer.handle]
        if transfer.aborted:
            return
        if first.delivery_id is None or first.delivery_tag is None:
            raise Malformed("a message without a delivery id or tag")
        link.on_message(first.delivery_id, first.delivery_tag, b"".join(pieces))

    def _on_session_frame(self, performative: Composite) -> None:
        if isinstance(performative, Flow):
            self._on_flow(performative)
        elif isinstance(performative, Attach):
            link = self._by_name.pop(performative.name, None)
            if link is not None and self._links.get(link.handle) is link:  # and not given up meanwhile
                self._by_remote[performative.handle] = link
                link.on_attach(performative)
        elif isinstance(performative, Detach):
            self._on_detach(performative)
        elif isinstance(performative, End):
            self._on_close(performative.error)

    def _on_disposition(self, fields: object) -> None:
        if not isinstance(fields, list):
            raise Malformed("disposition is no list")
        role, first, last, settled, state = (*fields, None, None, None, None, None)[:5]
        if not settled or not isinstance(first, UInt):
            return
        for delivery_id in range(first, (last if isinstance(last, UInt) else first) + 1):
            self._on_settled(bool(role), delivery_id, state)

    def _on_settled(self, role: bool, delivery_id: int, state: Value) -> None:
        # The receiver of a delivery speaks of what we sent, its sender of what we asked to settle.
        link = (self._sent_by if role else self._settled_by).pop(delivery_id, None)
        if link is not None:
            link.on_outcome(delivery_id, state)

    def _on_flow(self, flow: Flow) -> None:
        start = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        window = (start + flow.incoming_window - self._next_outgoing_id) & 0xFFFFFFFF
        self._peer_window = window if window < 0x80000000 else 0
        self._let_out()
        link = self._by_remote.get(flow.handle) if flow.handle is not None else None
        if link is not None:
            link.on_flow(flow)

    def _on_detach(self, detach: Detach) -> None:
        self._pieces.pop(detach.handle, None)
        link = self._by_remote.pop(detach.handle, None)
        if link is not None and self._links.get(link.handle) is link:
            self._forget(link)
            self.send(Detach(link.handle, True))
            said = detach.error
            link.lost(
                link_ended(said.condition, said.description or "")
                if said is not None
                else Interrupted(f"{self.name} detached the link.")
            )

    def _on_close(self, said: Error | None) -> None:
        self.fail(
            connection_ended(said.condition, said.description or "")
            if said is not None
            else Interrupted(f"{self.name} closed the connection.")
        )
