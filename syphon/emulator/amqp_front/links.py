"""Links: an incoming link receives messages from a client, an outgoing link sends messages to a client.

This module has what all links share: credit, the parts of a large message, idleness, and faults that delay an
operation. The node behind the link decides what a message means.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from syphon.amqp.frames import Attach, Composite, Error, Flow, Transfer

from ..broker import Action, EntityNotFound, Fault, MessageIds, MessageSizeExceeded, Operation, QuotaExceeded, Refusal
from ..clock import Millis, Timer

if TYPE_CHECKING:
    from .session import AmqpSession

CREDIT = 1000
LARGEST_MESSAGE = 128 * 1024 * 1024
UNFINISHED = 2 * LARGEST_MESSAGE
UNFINISHED_OF_STRANGERS = 1024 * 1024
"""The most bytes of unfinished messages on a connection: with a valid token, and before it has one."""


class AmqpLink:
    """The server's end of a link."""

    def __init__(self, session: AmqpSession, attach: Attach, path: str) -> None:
        self.session = session
        self.namespace = session.connection.namespace
        self.handle = attach.handle
        self.name = attach.name
        self.path = path
        self.is_closed = False
        self.is_temporary = False
        """Whether the link is to a temporary queue, which is deleted with it."""
        self._clock = self.namespace.clock
        self._active_at = self._clock.now()
        self._idle_timer: Timer | None = None
        self._held_back: deque[tuple[Millis, Callable[[], None]]] = deque()

    def watch_idleness(self) -> None:
        """Detaches the link when it was idle for too long, as Service Bus does."""
        if self.is_closed:
            return
        limit = self.session.connection.settings.link_idle_timeout
        due = self._active_at + limit
        if self._clock.now() >= due:
            self.end(
                "amqp:link:detach-forced",
                f"The link '{self.name}' is force detached by the broker: it was idle for {limit // 1000} seconds.",
            )
        else:
            self._idle_timer = self._clock.call_at(due, self.watch_idleness)

    def active(self) -> None:
        self._active_at = self._clock.now()

    def on_flow(self, flow: Flow) -> None:
        raise NotImplementedError

    def recheck_rights(self) -> None:
        """Detaches the link if its token is no longer valid."""

    def recheck(self) -> None:
        """Detaches the link if the changed entity does not allow it."""

    def detach(self, why: Refusal) -> None:
        self.end(why.condition, why.description)

    def end(self, condition: str, description: str) -> None:
        self.session.detach(self, Error(condition, description))

    def closed(self) -> None:
        """Releases what the link holds, after either side has ended it."""
        if self.is_temporary and not self.is_closed:
            # Not now: the subclasses have yet to release what they hold.
            asyncio.get_running_loop().call_soon(self._delete_temporary_queue)
        self.is_closed = True
        self._held_back.clear()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _delete_temporary_queue(self) -> None:
        with contextlib.suppress(EntityNotFound):  # somebody else has deleted it
            self.namespace.delete(self.path)

    # --- faults ----------------------------------------------------------------------------------------------------

    def strike(self, operation: Operation, message_ids: MessageIds = tuple) -> Fault | None:
        return self.namespace.faults.strike(operation, self.path, message_ids)

    def apply_fault(self, fault: Fault) -> bool:
        """Applies a fault that affects the whole link. Returns False if the operation itself must apply it."""
        if fault.action is Action.DROP:
            self.session.connection.abort()
        elif fault.action is Action.DETACH:
            self.detach(fault.refusal())
        elif fault.action is not Action.HANG:
            return False
        return True

    @property
    def is_in_step(self) -> bool:
        """Whether no earlier step waits."""
        return not self._held_back

    def in_order(self, fault: Fault | None, step: Callable[[], None]) -> None:
        """Runs a step now, or later if a fault delays it or an earlier step still waits. Steps keep their order."""
        delay = round(fault.seconds * 1000) if fault is not None and fault.action is Action.DELAY else 0
        if not delay and not self._held_back:
            step()
            return
        ready_at = self._clock.now() + delay
        if self._held_back:
            ready_at = max(ready_at, self._held_back[-1][0])
        self._held_back.append((ready_at, step))
        self._clock.call_at(ready_at, self._go_on)

    def _go_on(self) -> None:
        while self._held_back and self._held_back[0][0] <= self._clock.now():
            self._held_back.popleft()[1]()


class IncomingLink(AmqpLink):
    """Receives messages from a client."""

    def __init__(self, session: AmqpSession, attach: Attach, path: str) -> None:
        super().__init__(session, attach, path)
        self._delivery_count = attach.initial_delivery_count or 0
        self._credit = 0
        self._pieces = bytearray()
        self._first: Transfer | None = None
        self.max_size = LARGEST_MESSAGE

    def give_credit(self) -> None:
        self._credit = CREDIT
        self.session.send_flow(self.handle, self._delivery_count, CREDIT)

    def on_flow(self, flow: Flow) -> None:
        if flow.echo:
            self.give_credit()

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        self.active()
        first = self._first = self._first or transfer
        if first.delivery_id is None or transfer.delivery_id not in (None, first.delivery_id):
            which = f"{transfer.delivery_id} within {first.delivery_id}"
            self.end("amqp:invalid-field", f"transfer.delivery-id is not that of the delivery: {which}.")
            return
        if transfer.aborted:
            self._count()
            return
        if (size := len(self._pieces) + len(payload)) > self.max_size + 1024:
            self.detach(
                MessageSizeExceeded(
                    f"The received message (delivery-id:{first.delivery_id}, size:{size} bytes) exceeds the limit "
                    f"({self.max_size} bytes) currently allowed on the link."
                )
            )
            return
        if transfer.more:
            self._keep(payload)
            return
        data = bytes(self._pieces) + payload if self._pieces else payload
        self._count()
        settled = bool(first.settled or transfer.settled)
        self.take(first.delivery_id, data, first.message_format or 0, settled, first.state)
        if self._credit <= CREDIT // 2 and not self.is_closed:
            self.give_credit()

    def _keep(self, piece: bytes) -> None:
        """Stores a part of a message until the rest arrives. All links of a connection share the limit."""
        connection = self.session.connection
        limit = UNFINISHED if connection.grants else UNFINISHED_OF_STRANGERS
        if connection.unfinished + len(piece) > limit:
            self.detach(QuotaExceeded(f"The unfinished messages of this connection exceed {limit} bytes."))
            return
        connection.unfinished += len(piece)
        self._pieces += piece

    def _start_over(self) -> None:
        self.session.connection.unfinished -= len(self._pieces)
        self._first, self._pieces = None, bytearray()

    def _count(self) -> None:
        """Counts a delivery that is complete or aborted."""
        self._start_over()
        self._delivery_count = (self._delivery_count + 1) & 0xFFFFFFFF
        self._credit -= 1

    def closed(self) -> None:
        super().closed()
        self._start_over()

    def take(self, delivery_id: int, data: bytes, message_format: int, settled: bool, state: Composite | None) -> None:
        """Handles a complete message. The state names the transaction that it belongs to, if there is one."""
        raise NotImplementedError


class OutgoingLink(AmqpLink):
    """Sends messages to a client, up to the credit it has granted."""

    def __init__(self, session: AmqpSession, attach: Attach, path: str) -> None:
        super().__init__(session, attach, path)
        self.credit = 0
        self._delivery_count = 0
        self._draining = False

    def on_flow(self, flow: Flow) -> None:
        if flow.link_credit is not None:
            self.active()  # a question alone does not keep a link alive
            # The peer counts from the deliveries it had seen. Those sent since then reduce its credit.
            seen = self._delivery_count if flow.delivery_count is None else flow.delivery_count
            ahead = (self._delivery_count - seen) & 0xFFFFFFFF
            self.credit = max(0, flow.link_credit - (ahead if ahead < 0x80000000 else 0))
        self._draining = bool(flow.drain)
        self.granted(self._draining)
        if self._draining:
            self._drain()
        elif flow.echo and not self.is_closed:
            self.session.send_flow(self.handle, self._delivery_count, self.credit)

    def go_on(self) -> None:
        """Continues after the peer can accept more."""
        if not self.is_closed and self.credit > 0:
            self.granted(self._draining)
        if self._draining:
            self._drain()

    def _drain(self) -> None:
        """Returns the credit for which there are no messages."""
        if self.is_closed or (self.credit > 0 and self.session.is_stalled(self)):
            return  # there are messages, and they go out when the peer can accept them
        self._draining = False
        self._delivery_count = (self._delivery_count + self.credit) & 0xFFFFFFFF
        self.credit = 0
        self.session.send_flow(self.handle, self._delivery_count, 0, 0, True)

    def granted(self, drain: bool) -> None:
        """Called when the client has granted credit."""

    def give(self, tag: bytes, payload: bytes, settled: bool) -> int:
        """Sends one message and reduces the credit."""
        self.active()
        self.credit -= 1
        self._delivery_count = (self._delivery_count + 1) & 0xFFFFFFFF
        return self.session.deliver(self, tag, payload, settled)

    def settle(self, tag: bytes, outcome: Composite | None, delivery_id: int, answer: bool) -> None:
        """Called when the client has settled a message."""
