"""One AMQP session: its links by handle, its windows, and what was delivered but not settled."""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Protocol

from syphon.amqp import Malformed
from syphon.amqp.codec import encode
from syphon.amqp.frames import (
    Accepted,
    Attach,
    Begin,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Received,
    Rejected,
    Transfer,
    frame,
)

from ..broker.refusals import Refusal
from .doors import open_link
from .links import Inlet, Link, Outlet

if TYPE_CHECKING:
    from .connection import AmqpConnection

WINDOW = 0x7FFFFFFF
HANDLE_MAX = 255
_UINTS = struct.Struct(">II").pack


class Settles(Protocol):
    """What a delivery leads back to."""

    def settle(self, tag: bytes, outcome: Composite | None, delivery_id: int, answer: bool) -> None: ...


class AmqpSession:
    """A session on a channel of a connection."""

    def __init__(self, connection: AmqpConnection, channel: int, peer: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self._links: dict[int, Link] = {}
        self._next_incoming_id = peer.next_outgoing_id
        self._next_outgoing_id = 0
        self._peer_window = peer.incoming_window
        self._waiting: deque[bytes] = deque()
        self._unsettled: dict[int, tuple[Outlet, bytes]] = {}
        self._next_delivery_id = 0
        connection.send(channel, Begin(channel, 0, WINDOW, WINDOW, HANDLE_MAX))

    # --- frames in -----------------------------------------------------------------------------------------------

    def on(self, performative: Composite, payload: bytes) -> None:
        if isinstance(performative, Transfer):
            self._on_transfer(performative, payload)
        elif isinstance(performative, Disposition):
            self._on_disposition(performative)
        elif isinstance(performative, Flow):
            self._on_flow(performative)
        elif isinstance(performative, Attach):
            self._on_attach(performative)
        elif isinstance(performative, Detach):
            self._on_detach(performative)
        else:
            raise Malformed(f"{performative.NAME} is nothing a session takes")

    def _on_attach(self, attach: Attach) -> None:
        if attach.handle in self._links:
            self._fail("amqp:session:handle-in-use", f"Handle {attach.handle} is in use.")
            return
        if attach.handle > HANDLE_MAX:
            self._fail("amqp:not-allowed", f"Handle {attach.handle} is over {HANDLE_MAX}.")
            return
        open_link(self, attach)

    def _on_detach(self, detach: Detach) -> None:
        link = self._links.pop(detach.handle, None)
        if link is None:
            return  # we detached it first, and this is the peer's answer
        link.closed()
        self.send(Detach(detach.handle, detach.closed))

    def _on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        self._next_incoming_id = (self._next_incoming_id + 1) & 0xFFFFFFFF
        link = self._links.get(transfer.handle)
        if link is None:
            return  # it was on its way when we detached the link
        if not isinstance(link, Inlet):
            self._fail("amqp:not-allowed", "A transfer came in on a link that only sends.")
            return
        link.on_transfer(transfer, payload)

    def _on_flow(self, flow: Flow) -> None:
        if flow.next_incoming_id is None:
            self._peer_window = flow.incoming_window
        else:
            self._peer_window = (flow.next_incoming_id + flow.incoming_window - self._next_outgoing_id) & 0xFFFFFFFF
            if self._peer_window > 0x7FFFFFFF:  # we are ahead of what the peer had seen when it wrote this
                self._peer_window = 0
        while self._waiting and self._peer_window > 0:
            self._transmit(self._waiting.popleft())
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
            return
        link = self._links.get(flow.handle)
        if link is not None:
            link.on_flow(flow)

    def _on_disposition(self, disposition: Disposition) -> None:
        if not disposition.role:
            return  # about what we received: we answered with the outcome and have forgotten it
        last = disposition.first if disposition.last is None else disposition.last
        if last - disposition.first > 1_000_000:
            self._fail("amqp:not-allowed", "A disposition spans more deliveries than there can be.")
            return
        if isinstance(disposition.state, Received) and not disposition.settled:
            return
        for delivery_id in range(disposition.first, last + 1):
            delivery = self._unsettled.pop(delivery_id, None)
            if delivery is not None:
                outlet, tag = delivery
                outlet.settle(tag, disposition.state, delivery_id, not disposition.settled)

    # --- frames out ----------------------------------------------------------------------------------------------

    def send(self, performative: Composite) -> None:
        self.connection.send(self.channel, performative)

    def send_flow(
        self, handle: int | None = None, delivery_count: int | None = None, credit: int | None = None,
        available: int | None = None, drain: bool | None = None,
    ) -> None:  # fmt: skip
        window = self._next_incoming_id, WINDOW, self._next_outgoing_id, WINDOW
        self.send(Flow(*window, handle, delivery_count, credit, available, drain))

    def deliver(self, outlet: Outlet, tag: bytes, payload: bytes, settled: bool, message_format: int = 0) -> int:
        """Sends a message, in as many frames as it takes, when the peer's window has room. Returns its delivery id."""
        delivery_id = self._next_delivery_id
        self._next_delivery_id = (delivery_id + 1) & 0xFFFFFFFF
        if not settled:
            self._unsettled[delivery_id] = (outlet, tag)
        room = self.connection.peer_max_frame_size - 64 - len(tag)
        first = b"\x70" + _UINTS(outlet.handle, 0)[:4] + b"\x70" + _UINTS(delivery_id, 0)[:4] + encode(tag)
        first += b"\x70" + _UINTS(message_format, 0)[:4] + (b"\x41" if settled else b"\x42")
        sent = 0
        while True:
            piece = payload[sent : sent + room]
            sent += len(piece)
            fields = first + (b"\x42" if sent >= len(payload) else b"\x41")
            body = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 6)) + fields + piece
            self._queue(frame(self.channel, body))
            if sent >= len(payload):
                return delivery_id

    def _queue(self, data: bytes) -> None:
        if self._peer_window > 0 and not self._waiting:
            self._transmit(data)
        else:
            self._waiting.append(data)

    def _transmit(self, data: bytes) -> None:
        self._peer_window -= 1
        self._next_outgoing_id = (self._next_outgoing_id + 1) & 0xFFFFFFFF
        self.connection.write(data)

    def answer(self, role: bool, delivery_id: int, outcome: Composite) -> None:
        """Tells the outcome of a delivery, and that it is settled."""
        state = _ACCEPTED if isinstance(outcome, Accepted) else outcome.to_bytes()
        fields = (b"\x41" if role else b"\x42") + b"\x70" + _UINTS(delivery_id, 0)[:4] + b"\x40\x41" + state
        if len(fields) < 255:
            self.connection.write(frame(self.channel, b"\x00\x53\x15\xc0" + bytes((len(fields) + 1, 5)) + fields))
        else:
            self.send(Disposition(role, delivery_id, None, True, outcome))

    def refuse(self, role: bool, delivery_id: int, refusal: Refusal) -> None:
        self.answer(role, delivery_id, Rejected(Error(refusal.condition, refusal.description)))

    # --- links ---------------------------------------------------------------------------------------------------

    def add(self, link: Link) -> None:
        self._links[link.handle] = link

    def detach(self, link: Link, error: Error | None) -> None:
        """Ends a link from our side."""
        if self._links.get(link.handle) is link:
            del self._links[link.handle]
            self.forget(link)
            link.closed()
            self.send(Detach(link.handle, True, error))

    def forget(self, link: Link) -> None:
        for delivery_id in [key for key, (outlet, _) in self._unsettled.items() if outlet is link]:
            del self._unsettled[delivery_id]

    def outlets(self) -> list[Outlet]:
        return [link for link in self._links.values() if isinstance(link, Outlet)]

    def recheck_rights(self) -> None:
        for link in list(self._links.values()):
            link.recheck_rights()

    def end(self) -> None:
        """The session is over, by the peer's will or with the connection."""
        for link in list(self._links.values()):
            link.closed()
        self._links.clear()
        self._unsettled.clear()
        self._waiting.clear()

    def _fail(self, condition: str, description: str) -> None:
        self.end()
        self.send(End(Error(condition, description)))


_ACCEPTED = Accepted().to_bytes()
