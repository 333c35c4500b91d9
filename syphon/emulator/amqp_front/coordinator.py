"""The coordinator, to which clients declare and discharge transactions, and the rule of the first entity."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from syphon.amqp import Described, Malformed, Message, Section
from syphon.amqp.frames import Accepted, Attach, Composite, Declare, Declared, Discharge, composite_of

from ..broker import Action, BadArgument, Fault, NotAllowed, NotImplementedHere, Operation, Refusal
from .links import IncomingLink

if TYPE_CHECKING:
    from .session import AmqpSession


class ViaEntity:
    """The entity that transactions of a session belong to, if the session has a coordinator: that of its first link.

    Clients put a coordinator and all their links into one session for transactions across entities. Their receivers
    must belong to that first entity. Messages for other entities are sent through it.
    """

    def __init__(self) -> None:
        self.has_coordinator = False
        self._first: str | None = None

    def enter(self, entity: str, receives: bool) -> str:
        """Adds a link to a top-level entity. Returns the entity that its transactions belong to."""
        if not self.has_coordinator:
            return entity
        if self._first is None:
            self._first = entity
        if receives and entity != self._first:
            raise NotAllowed("Local transactions cannot span multiple top-level entities such as queue or topic.")
        return self._first


class CoordinatorLink(IncomingLink):
    """Receives declarations and discharges. The transactions that it declared are rolled back when it ends."""

    def __init__(self, session: AmqpSession, attach: Attach) -> None:
        super().__init__(session, attach, "$coordinator")
        self._transactions = session.connection.transactions
        self._declared: set[bytes] = set()
        session.via.has_coordinator = True

    def take(
        self,
        delivery_id: int,
        data: bytes,
        message_format: int,  # noqa: ARG002  there is one only
        settled: bool,
        state: Composite | None,  # noqa: ARG002
    ) -> None:
        if settled:
            self.detach(NotAllowed("A message to the coordinator must not be settled by its sender."))
            return
        try:
            request = _read(data)
            if isinstance(request, Declare):
                self._declare(delivery_id, request)
                return
        except Refusal as refusal:
            self.session.refuse(True, delivery_id, refusal)
            return
        entity = self._transactions.entity_of(request.txn_id)
        fault = self.namespace.faults.strike(Operation.DISCHARGE, entity)
        if fault is None or not self.apply_fault(fault):
            self.in_order(fault, partial(self._discharge, delivery_id, request, fault))

    def _declare(self, delivery_id: int, request: Declare) -> None:
        if request.global_id is not None:
            raise NotImplementedHere("Distributed transactions are not supported: leave global-id out.")
        self.namespace.faults.charge(0)
        transaction = self._transactions.declare()
        self._declared.add(transaction)
        self.session.answer(True, delivery_id, Declared(transaction))

    def _discharge(self, delivery_id: int, request: Discharge, fault: Fault | None) -> None:
        action = fault.action if fault is not None else None
        try:
            if fault is not None and action in (Action.ERROR, Action.REFUSE):
                self._transactions.roll_back(request.txn_id)
                raise fault.refusal()
            if action is Action.LOSE_LOCK:
                self._transactions.lose_locks(request.txn_id)
            self.namespace.faults.charge(0)
            self._declared.discard(request.txn_id)
            self._transactions.discharge(request.txn_id, bool(request.fail))
        except Refusal as refusal:
            self.session.refuse(True, delivery_id, refusal)
        else:
            if action is Action.LOSE_REPLY_AND_DROP:
                self.namespace.journal.when_durable(self.session.connection.abort)
            elif action is not Action.LOSE_REPLY:
                accept = partial(self.session.answer, True, delivery_id, Accepted())
                self.namespace.journal.when_durable(accept, partial(self.session.reject_unsaved, True, delivery_id))

    def closed(self) -> None:
        super().closed()
        for transaction in self._declared:
            self._transactions.roll_back(transaction)
        self._declared.clear()


def _read(data: bytes) -> Declare | Discharge:
    try:
        value = Message(data).read(Section.VALUE)
        request = composite_of(value) if isinstance(value, Described) else None
    except Malformed as error:
        raise BadArgument(f"The request to the coordinator is not well-formed: {error}.", "amqp:decode-error") from None
    if not isinstance(request, Declare | Discharge):
        raise BadArgument("The coordinator takes declare and discharge only.", "amqp:not-implemented")
    return request
