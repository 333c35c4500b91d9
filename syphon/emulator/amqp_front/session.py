"""One AMQP session: its links by handle, its windows, and its unsettled deliveries."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from syphon.amqp import Malformed, encode
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

from ..broker import Refusal
from .attach import open_link
from .coordinator import ViaEntity
from .fast_frames import DELIVERY_OVERHEAD, UNUSED_TRANSFER_FIELDS, accepted_frame, delivery_frame
from .links import AmqpLink, IncomingLink, OutgoingLink

if TYPE_CHECKING:
    from .connection import AmqpConnection

WINDOW = 0x7FFFFFFF
HANDLE_MAX = 255
_UINTS = struct.Struct(">II").pack


class AmqpSession:
    """A session on a channel of a connection."""

    def __init__(self, connection: AmqpConnection, channel: int, peer: Begin) -> None:
        self.connection = connection
        self.channel = channel
        self._links: dict[int, AmqpLink] = {}
        self._pending: dict[int, AmqpLink] = {}
        self._early: dict[int, Flow] = {}
        self._detached: set[int] = set()
        self._delayed: dict[int, Attach] = {}
        self._stalled: dict[OutgoingLink, None] = {}
        self.via = ViaEntity()
        self.is_over = False
        self._next_incoming_id = peer.next_outgoing_id
        self._next_outgoing_id = 0
        self._peer_window = peer.incoming_window
        self._waiting: deque[bytes] = deque()
        self._unsettled: dict[int, tuple[OutgoingLink, bytes]] = {}
        self._next_delivery_id = 0
        connection.send(channel, Begin(channel, 0, WINDOW, WINDOW, HANDLE_MAX))

    # --- frames in -------------------------------------------------------------------------------------------------

    def on(self, performative: Composite, payload: bytes) -> None:
        if self.is_over:
            return  # the frame was sent before the peer knew that the session ended
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
        if attach.handle in self._links or attach.handle in self._pending or attach.handle in self._delayed:
            self._fail("amqp:session:handle-in-use", f"Handle {attach.handle} is in use.")
            return
        if attach.handle > HANDLE_MAX:
            self.connection.close("amqp:connection:framing-error", f"Handle {attach.handle} is over {HANDLE_MAX}.")
            return
        self._detached.discard(attach.handle)
        open_link(self, attach)

    def _on_detach(self, detach: Detach) -> None:
        pending = self._pending.get(detach.handle)
        if pending is not None:
            # The peer stopped waiting. AMQP requires our attach first, also for a link that is closed at once.
            pending.closed()
            self._early.pop(detach.handle, None)
            self.send(Attach(pending.name, pending.handle, False, initial_delivery_count=0))
            self.send(Detach(detach.handle, detach.closed))
            return
        delayed = self._delayed.pop(detach.handle, None)
        if delayed is not None:
            count = 0 if delayed.role else None
            self.send(Attach(delayed.name, delayed.handle, not delayed.role, initial_delivery_count=count))
            self.send(Detach(detach.handle, detach.closed))
            return
        link = self._links.get(detach.handle)
        if link is None:
            if detach.handle not in self._detached:
                self._unattached(detach)
            self._detached.discard(detach.handle)  # the server detached the link first, and this is the peer's answer
            return
        self._drop(link)
        self.send(Detach(detach.handle, detach.closed))

    def _on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        self._next_incoming_id = (self._next_incoming_id + 1) & 0xFFFFFFFF
        link = self._links.get(transfer.handle)
        if link is None:
            if transfer.handle not in self._detached:  # otherwise it was sent before the peer knew of the detach
                self._unattached(transfer)
            return
        if not isinstance(link, IncomingLink):
            self._fail("amqp:not-allowed", "A transfer came in on a link that only sends.")
            return
        link.on_transfer(transfer, payload)

    def _on_flow(self, flow: Flow) -> None:
        # Frames that were sent after the peer wrote this count against its window.
        ahead = (self._next_outgoing_id - (flow.next_incoming_id or 0)) & 0xFFFFFFFF
        self._peer_window = max(0, flow.incoming_window - (ahead if ahead < 0x80000000 else 0))
        while self._waiting and self._peer_window > 0:
            self._transmit(self._waiting.popleft())
        self.go_on()
        if flow.handle is None:
            if flow.echo:
                self.send_flow()
            return
        link = self._links.get(flow.handle)
        if link is not None:
            link.on_flow(flow)
        elif flow.handle in self._pending or flow.handle in self._delayed:
            self._early[flow.handle] = flow  # a peer may grant credit before it has our attach
        elif flow.handle not in self._detached:
            self._unattached(flow)

    def _on_disposition(self, disposition: Disposition) -> None:
        if not disposition.role:
            return  # about a delivery from the peer: it was settled with its outcome
        if not disposition.settled and (disposition.state is None or isinstance(disposition.state, Received)):
            return  # this does not settle a delivery
        last = disposition.first if disposition.last is None else disposition.last
        deliveries: Iterable[int] = range(disposition.first, last + 1)
        if last - disposition.first > len(
            self._unsettled
        ):  # a peer may name four billion ids and have three deliveries
            deliveries = [each for each in self._unsettled if disposition.first <= each <= last]
        for delivery_id in deliveries:
            delivery = self._unsettled.pop(delivery_id, None)
            if delivery is not None:
                link, tag = delivery
                link.settle(tag, disposition.state, delivery_id, not disposition.settled)

    def complete(self, delivery_id: int, settled: bool) -> None:
        """Handles the most frequent disposition: it completes one delivery."""
        if not self.is_over and (delivery := self._unsettled.pop(delivery_id, None)) is not None:
            link, tag = delivery
            link.settle(tag, _ACCEPTED, delivery_id, not settled)

    # --- frames out ------------------------------------------------------------------------------------------------

    def send(self, performative: Composite) -> None:
        if not self.is_over:
            self.connection.send(self.channel, performative)

    def send_flow(
        self,
        handle: int | None = None,
        delivery_count: int | None = None,
        credit: int | None = None,
        available: int | None = None,
        drain: bool | None = None,
    ) -> None:
        window = self._next_incoming_id, WINDOW, self._next_outgoing_id, WINDOW
        self.send(Flow(*window, handle, delivery_count, credit, available, drain))

    def deliver(self, link: OutgoingLink, tag: bytes, payload: bytes, settled: bool) -> int:
        """Sends a message in one or more frames when the peer's window has room. Returns its delivery id."""
        if self.is_over:
            return 0
        delivery_id = self._next_delivery_id
        self._next_delivery_id = (delivery_id + 1) & 0xFFFFFFFF
        if not settled:
            self._unsettled[delivery_id] = (link, tag)
        if DELIVERY_OVERHEAD + len(tag) + len(payload) <= self.connection.peer_max_frame_size:
            self._queue(delivery_frame(self.channel, link.handle, delivery_id, tag, payload, settled))
            return delivery_id
        room = self.connection.peer_max_frame_size - 64 - len(tag)
        first = b"\x70" + _UINTS(link.handle, 0)[:4] + b"\x70" + _UINTS(delivery_id, 0)[:4] + encode(tag)
        first += b"\x43" + (b"\x41" if settled else b"\x42")
        sent = 0
        while True:
            piece = payload[sent : sent + room]
            sent += len(piece)
            fields = first + (b"\x42" if sent >= len(payload) else b"\x41") + UNUSED_TRANSFER_FIELDS
            body = b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 11)) + fields + piece
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
        self.connection.output.write(data)

    def answer(self, role: bool, delivery_id: int, outcome: Composite) -> None:
        """Sends the outcome of a delivery and settles it."""
        if self.is_over:
            return
        if type(outcome) is Accepted:
            self.connection.output.write(accepted_frame(self.channel, role, delivery_id))
            return
        state = outcome.to_bytes()
        fields = (b"\x41" if role else b"\x42") + b"\x70" + _UINTS(delivery_id, 0)[:4] + b"\x40\x41" + state + b"\x40"
        if len(fields) < 255:
            body = b"\x00\x53\x15\xc0" + bytes((len(fields) + 1, 6)) + fields
            self.connection.output.write(frame(self.channel, body))
        else:
            self.send(Disposition(role, delivery_id, None, True, outcome))

    def refuse(self, role: bool, delivery_id: int, refusal: Refusal) -> None:
        self.answer(role, delivery_id, Rejected(Error(refusal.condition, refusal.description)))

    def reject_unsaved(self, role: bool, delivery_id: int, why: str) -> None:
        """Rejects a delivery whose change could not be written to disk."""
        self.refuse(role, delivery_id, Refusal(why))

    # --- links -----------------------------------------------------------------------------------------------------

    def add(self, link: AmqpLink) -> None:
        self._links[link.handle] = link
        self.connection.link_count += 1

    def apply_early_flow(self, link: AmqpLink) -> None:
        """Applies a flow that the peer sent before it had our attach."""
        flow = self._early.pop(link.handle, None)
        if flow is not None and not link.is_closed:
            link.on_flow(flow)

    def delay(self, attach: Attach) -> None:
        """Remembers an attach that is answered later, unless the peer or the session ends first."""
        self._delayed[attach.handle] = attach

    def resume(self, attach: Attach) -> bool:
        """Whether a delayed attach still needs its answer."""
        return self._delayed.pop(attach.handle, None) is attach

    def ignore(self, handle: int) -> None:
        """Ignores frames on a handle without a link until the peer has detached too."""
        self._detached.add(handle)
        self._early.pop(handle, None)

    def _drop(self, link: AmqpLink) -> None:
        del self._links[link.handle]
        self.connection.link_count -= 1
        self._stalled.pop(link, None)  # type: ignore[call-overload]  # incoming links never stall
        self.forget(link)
        link.closed()

    def add_pending(self, link: AmqpLink) -> None:
        """Adds a link whose attach is not answered yet. It ends with the session."""
        self._pending[link.handle] = link

    def remove_pending(self, link: AmqpLink) -> None:
        if self._pending.get(link.handle) is link:
            del self._pending[link.handle]

    def detach(self, link: AmqpLink, error: Error | None) -> None:
        """Detaches a link from the server's side."""
        if self._links.get(link.handle) is link:
            self._drop(link)
            self.send(Detach(link.handle, True, error))
            self.ignore(link.handle)
        elif self._pending.get(link.handle) is link:
            link.closed()
            self.send(Attach(link.name, link.handle, False, initial_delivery_count=0))
            self.send(Detach(link.handle, True, error))
            self.ignore(link.handle)

    def forget(self, link: AmqpLink) -> None:
        for delivery_id in [key for key, (sender, _) in self._unsettled.items() if sender is link]:
            del self._unsettled[delivery_id]

    def detach_all(self, error: Error) -> None:
        for link in list(self._links.values()):
            self.detach(link, error)

    def outgoing_links(self) -> list[OutgoingLink]:
        return [link for link in self._links.values() if isinstance(link, OutgoingLink)]

    def recheck_rights(self) -> None:
        for link in [*self._links.values(), *self._pending.values()]:
            link.recheck_rights()

    # --- congestion ------------------------------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        """Whether a message would wait in memory, for the window of the peer or for the socket."""
        return self._peer_window <= 0 or self.connection.output.is_congested

    def stall(self, link: OutgoingLink) -> None:
        """Registers a link with messages that the peer cannot accept yet."""
        self._stalled[link] = None

    def is_stalled(self, link: OutgoingLink) -> bool:
        return link in self._stalled

    def go_on(self) -> None:
        if self._stalled and not self.is_congested:
            stalled, self._stalled = self._stalled, {}
            for link in stalled:
                link.go_on()

    # --- closing ---------------------------------------------------------------------------------------------------

    def stop_waiting(self) -> None:
        for link in list(self._pending.values()):
            link.closed()
        self._pending.clear()

    def end(self) -> None:
        """Ends the session and its links: the peer ended it, or the connection closed."""
        self.is_over = True
        self.stop_waiting()
        for link in list(self._links.values()):
            link.closed()
        self.connection.link_count -= len(self._links)
        self._links.clear()
        self._early.clear()
        self._delayed.clear()
        self._stalled.clear()
        self._unsettled.clear()
        self._waiting.clear()

    def _fail(self, condition: str, description: str) -> None:
        """Ends the session with an error. The channel stays in use until the peer has ended the session too."""
        self.end()
        self.connection.send(self.channel, End(Error(condition, description)))

    def _unattached(self, performative: Attach | Detach | Flow | Transfer) -> None:
        self._fail(
            "amqp:session:unattached-handle",
            f"{performative.NAME} on handle {performative.handle}, to which no link is attached.",
        )


_ACCEPTED = Accepted()
