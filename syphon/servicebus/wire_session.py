"""An AMQP session with a namespace, driven by its owner: one thread, one session, many links.

No call here blocks. The owner waits for the socket (`fileno`), then calls `read`, lets the links work and calls
`flush`; once in a while `tick` sends heartbeats and checks for silent peers. Two threads must never use
one wire.

We do not use the SDK's session, because one connection of ours carries links to many destinations (an attach costs one
round trip, a connection half a second), and because settlement, credit and batches are pipelined.
"""

from __future__ import annotations

import heapq
import itertools
import re
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
from syphon.model import Interrupted, SyphonError, Waits, connection_ended, link_ended
from syphon.time_budget import LATEST_ANSWER, WIRE_SILENCE

from .frame_socket import FrameSocket
from .sdk_sockets import OpenSocket

WINDOW = 65_535

# --- the usual frames ------------------------------------------------------------------------------------------------
#
# Each message costs a transfer, and a disposition `accepted`, each way. In their usual forms these two are matched and
# written without the codec. AMQP allows other forms of both; those are decoded in full, with the same result.

CHANNEL = 2
"""The channel of our session. The SDK uses channel 1."""

TRANSFER, DISPOSITION = b"\x00\x53\x14", b"\x00\x53\x15"

ACCEPTED = Described(ULong(0x24), [])
ACCEPTED_BYTES = encode(ACCEPTED)
COMPLETION_TAIL = b"\x40\x42" + ACCEPTED_BYTES
COMPLETION_HEAD = frame(CHANNEL, DISPOSITION + compound(0xC0, 5, b"\x41\x70" + bytes(4) + COMPLETION_TAIL))
COMPLETION_HEAD = COMPLETION_HEAD[: -len(COMPLETION_TAIL) - 4]
"""The frame that completes one delivery is this head, the delivery id in 4 bytes, and the tail. Every message needs
one."""

_UINT = rb"(\x43|\x52.|\x70.{4})"
_TRANSFER = re.compile(
    rb"\x00\x53\x14\xc0(.)(.)" + _UINT + _UINT + rb"\xa0\x10(.{16})(?:\x40|\x43|\x52.|\x70.{4})[\x40\x42][\x40\x42]"
    rb"([\x40\x42]{4}[\x40-\x42]|[\x40\x42]{0,4})",
    re.DOTALL,
).match
_DISPOSITION = re.compile(
    rb"\x00\x53\x15\xc0(.)(.)([\x41\x42])" + _UINT + rb"(?:\x40|\4)\x41\x00\x53\x24\x45([\x40-\x42]?)", re.DOTALL
).fullmatch


def match_transfer(data: bytes, start: int, end: int) -> tuple[int, int, bytes, int] | None:
    """Recognises a whole message in one frame, unsettled, with a lock token as its tag.

    Returns the link's handle, the delivery id, the lock token, and where the message begins.
    """
    found = _TRANSFER(data, start, end)
    if found is None:
        return None
    size, count, handle, delivery_id, token, rest = found.groups()
    payload = found.end()
    if payload != start + 5 + size[0] or count[0] != 6 + len(rest):
        return None
    return int.from_bytes(handle[1:], "big"), int.from_bytes(delivery_id[1:], "big"), token, payload


def match_disposition(data: bytes, start: int, end: int) -> tuple[bool, int] | None:
    """Recognises one delivery, accepted and settled. Returns the role of the peer that says so, and the delivery id."""
    found = _DISPOSITION(data, start, end)
    if found is None:
        return None
    size, count, role, delivery_id, rest = found.groups()
    if end != start + 5 + size[0] or count[0] != 5 + len(rest):
        return None
    return role == b"\x41", int.from_bytes(delivery_id[1:], "big")


# --- the session -----------------------------------------------------------------------------------------------------


class NoMoreLinks(Waits):
    """The connection has as many links as the service allows."""

    retry_after = 30.0


class WireLink(Protocol):
    """A link, as far as the wire knows it."""

    handle: int

    def on_attach(self, attach: Attach) -> None: ...

    def on_flow(self, flow: Flow) -> None: ...

    def on_message(self, delivery_id: int, tag: bytes, payload: bytes) -> None: ...

    def on_outcome(self, delivery_id: int, state: object) -> None:
        """The outcome of a delivery that this link sent, or that it received and asked to settle."""

    def lost(self, error: SyphonError) -> None:
        """The link has ended, or its wire has."""

    def awaits_answer_since(self) -> float | None:
        """The time since which the peer owes this link an answer; None if it owes none."""


class Wire(FrameSocket):
    """A session on a connection, and its links."""

    def __init__(self, opened: OpenSocket, name: str, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(opened, name, now)
        self.max_frame_size = opened.max_frame_size
        self._idle_timeout = opened.idle_timeout
        self._heartbeat = opened.heartbeat
        self._links: dict[int, WireLink] = {}
        self._by_remote: dict[int, WireLink] = {}
        self._by_name: dict[str, WireLink] = {}
        self._pieces: dict[int, tuple[Transfer, list[bytes]]] = {}
        self._sent_by: dict[int, WireLink] = {}
        self._settled_by: dict[int, WireLink] = {}
        self._new_handles = itertools.count()
        self._handle_max = 0xFFFFFFFF
        """The highest handle that the peer allows. It says so in its Begin, before any entity's token is accepted."""
        self._free_handles: list[int] = []
        self._delivery_ids = itertools.count()
        self._remote_channel: int | None = None
        self._next_outgoing_id = 0
        self._next_incoming_id = 0
        self._peer_window = 0
        self._held_back: deque[tuple[WireLink, bytes, memoryview]] = deque()
        self.send(Begin(None, 0, WINDOW, WINDOW, 65535))

    def send(self, performative: Composite) -> None:
        self._out.append(frame(CHANNEL, performative.to_bytes()))

    def tick(self) -> None:
        """Does what depends on time alone: sends heartbeats, and fails the wire of a silent peer."""
        now = self.now()
        if self._idle_timeout and now - self._wrote_at > self._idle_timeout / 3:
            self.write(EMPTY_FRAME)
        owed = [since for link in self._links.values() if (since := link.awaits_answer_since()) is not None]
        if owed and now - max(min(owed), self._heard_at) > WIRE_SILENCE:
            self.fail(Interrupted(f"{self.name} has not answered for {WIRE_SILENCE:.0f} seconds."))
        elif owed and now - min(owed) > LATEST_ANSWER:
            self.fail(Interrupted(f"{self.name} is alive but has not answered for {LATEST_ANSWER:.0f} seconds."))
        elif now - self._heard_at > 2 * self._heartbeat:
            # The peer vanished without closing: a poll that waits for a quarter of an hour would never notice.
            self.fail(Interrupted(f"{self.name} has been silent for {2 * self._heartbeat:.0f} seconds."))

    def fail(self, error: SyphonError) -> None:
        """Ends the wire and all its links."""
        if self.failure is not None:
            return
        super().fail(error)
        for link in list(self._links.values()):
            link.lost(error)
        self._links.clear()

    def close(self) -> None:
        """Sends a Close without waiting, and closes the connection."""
        if self.failure is None:
            self.write(frame(0, Close().to_bytes()))
            self.flush()
            self.end_websocket()
            self.fail(Interrupted(f"The connection to {self.name} was closed."))

    # --- links ---------------------------------------------------------------------------------------------------

    def add(self, link: WireLink, name: str) -> int:
        """Gives a link its handle. Raises `NoMoreLinks`: a peer ends the whole connection over one that is too high."""
        if not self._free_handles and len(self._links) > self._handle_max:
            raise NoMoreLinks(f"{self.name} allows {self._handle_max + 1} links on a connection, and all are in use.")
        # The handle of a link that has ended is used again.
        handle = heapq.heappop(self._free_handles) if self._free_handles else next(self._new_handles)
        self._links[handle] = link
        self._by_name[name] = link
        return handle

    def drop(self, link: WireLink) -> None:
        """Detaches a link that its owner no longer needs."""
        if self._links.get(link.handle) is link:
            self._forget(link)
            if self.failure is None:
                self.send(Detach(link.handle, True))

    def _forget(self, link: WireLink) -> None:
        del self._links[link.handle]
        heapq.heappush(self._free_handles, link.handle)
        # The next link gets the same handle: unsent frames of this link must not go to that link's entity.
        self._held_back = deque(held for held in self._held_back if held[0] is not link)
        for owners in (self._sent_by, self._settled_by):
            for delivery_id in [key for key, owner in owners.items() if owner is link]:
                del owners[delivery_id]

    def grant(self, handle: int, delivery_count: int, credit: int, drain: bool | None = None) -> None:
        """Sets how many messages may come. With `drain` the peer answers, after all messages already in flight."""
        window = self._next_incoming_id, WINDOW, self._next_outgoing_id, WINDOW
        self.send(Flow(*window, handle, delivery_count, credit, None, drain, drain))

    def ask_for_flow(self, handle: int, delivery_count: int) -> None:
        """Asks the peer how much of the credit is left (`on_flow`). Grants none: that might count as a receive."""
        window = self._next_incoming_id, WINDOW, self._next_outgoing_id, WINDOW
        self.send(Flow(*window, handle, delivery_count, None, None, None, True))

    def transfer(self, link: WireLink, message_format: int, payload: bytes) -> int:
        """Sends a message in as many frames as it needs, as far as the peer's window allows. Returns its id."""
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
        self._send_held_back()
        return delivery_id

    def settle(self, link: WireLink, delivery_id: int, state: bytes) -> None:
        """Sends the outcome of a delivery, unsettled: the peer's echo proves that it took effect (`on_outcome`)."""
        self._settled_by[delivery_id] = link
        if state is ACCEPTED_BYTES:
            self._out.append(COMPLETION_HEAD + delivery_id.to_bytes(4, "big") + COMPLETION_TAIL)
            return
        fields = b"\x41\x70" + delivery_id.to_bytes(4, "big") + b"\x40\x42" + state
        self._out.append(frame(CHANNEL, DISPOSITION + compound(0xC0, 5, fields)))

    def _send_held_back(self) -> None:
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
                matched = match_disposition(data, start, end)
                if matched is not None:
                    self._on_settled(*matched, ACCEPTED)
                else:
                    self._on_disposition(decode(data, start + 3, end)[0])
                return
        performative, _ = read_performative(data[start:end])
        if isinstance(performative, Begin) and performative.remote_channel == CHANNEL:
            self._remote_channel = channel
            self._next_incoming_id = performative.next_outgoing_id
            self._peer_window = performative.incoming_window
            if performative.handle_max is not None:
                self._handle_max = performative.handle_max
            self._send_held_back()
        elif isinstance(performative, Close):
            self._on_close(performative.error)
        elif channel == self._remote_channel:
            self._on_session_frame(performative)

    def _on_transfer(self, data: bytes, start: int, end: int) -> None:
        self._next_incoming_id = (self._next_incoming_id + 1) & 0xFFFFFFFF
        matched = match_transfer(data, start, end)
        if matched is not None and matched[0] not in self._pieces:
            handle, delivery_id, tag, payload = matched
            link = self._by_remote.get(handle)
            if link is not None:
                link.on_message(delivery_id, tag, data[payload:end])
            return
        fields, payload = decode(data, start + len(TRANSFER), end)
        if not isinstance(fields, list):
            raise Malformed("transfer is not a list")
        self._on_piece(Transfer.of(fields), data[payload:end])

    def _on_piece(self, transfer: Transfer, payload: bytes) -> None:
        """Collects a message that comes in several frames. Only the first frame must name the delivery."""
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
            if (
                link is not None and self._links.get(link.handle) is link
            ):  # its owner has not dropped it in the meantime
                self._by_remote[performative.handle] = link
                link.on_attach(performative)
        elif isinstance(performative, Detach):
            self._on_detach(performative)
        elif isinstance(performative, End):
            self._on_close(performative.error)

    def _on_disposition(self, fields: object) -> None:
        if not isinstance(fields, list):
            raise Malformed("disposition is not a list")
        role, first, last, settled, state = (*fields, None, None, None, None, None)[:5]
        if not settled or not isinstance(first, UInt):
            return
        for delivery_id in range(first, (last if isinstance(last, UInt) else first) + 1):
            self._on_settled(bool(role), delivery_id, state)

    def _on_settled(self, role: bool, delivery_id: int, state: Value) -> None:
        # A receiver speaks of deliveries that we sent, a sender of deliveries that we asked to settle.
        link = (self._sent_by if role else self._settled_by).pop(delivery_id, None)
        if link is not None:
            link.on_outcome(delivery_id, state)

    def _on_flow(self, flow: Flow) -> None:
        start = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        window = (start + flow.incoming_window - self._next_outgoing_id) & 0xFFFFFFFF
        self._peer_window = window if window < 0x80000000 else 0
        self._send_held_back()
        link = self._by_remote.get(flow.handle) if flow.handle is not None else None
        if link is not None:
            link.on_flow(flow)

    def _on_detach(self, detach: Detach) -> None:
        self._pieces.pop(detach.handle, None)
        link = self._by_remote.pop(detach.handle, None)
        if link is not None and self._links.get(link.handle) is link:
            self._forget(link)
            self.send(Detach(link.handle, True))
            reason = detach.error
            link.lost(
                link_ended(reason.condition, reason.description or "")
                if reason is not None
                else Interrupted(f"{self.name} detached the link.")
            )

    def _on_close(self, reason: Error | None) -> None:
        self.fail(
            connection_ended(reason.condition, reason.description or "")
            if reason is not None
            else Interrupted(f"{self.name} closed the connection.")
        )
