"""Links to entities: a client's sender on a queue or topic, a client's receiver on a queue or subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from syphon.amqp import Malformed, Map, Value, batch_parts
from syphon.amqp.frames import (
    BATCH_FORMAT,
    Accepted,
    Attach,
    Composite,
    Flow,
    Modified,
    Rejected,
    TransactionalState,
)

from ..broker import (
    Action,
    BadArgument,
    BrokeredMessage,
    Claim,
    Fault,
    Kind,
    MessageQueue,
    MessageSession,
    MessageSizeExceeded,
    Operation,
    QueueEntity,
    Refusal,
    ServerBusy,
    SessionQueue,
    SessionWaiter,
    Settlement,
    SubscriptionEntity,
    TimedOut,
    TopicEntity,
)
from ..clock import Millis, Timer
from .links import IncomingLink, OutgoingLink

if TYPE_CHECKING:
    from .session import AmqpSession

SAME_POLL = 1_000
"""Milliseconds. Credit granted within this time belongs to the same receive: clients open a link with one credit and
grant more at once."""


class IncomingEntityLink(IncomingLink):
    """Receives messages from a client's sender for a queue or topic."""

    def __init__(self, session: AmqpSession, attach: Attach, entity: QueueEntity | TopicEntity, via: str) -> None:
        super().__init__(session, attach, entity.path)
        self._entity = entity
        self._via = via
        self.max_size = self.namespace.max_message_size(entity)
        self._max_batch = self.namespace.max_batch_size(entity)
        entity.links.add(self)

    def take(self, delivery_id: int, data: bytes, message_format: int, settled: bool, state: Composite | None) -> None:
        fault = self.strike(Operation.SEND, partial(self._message_ids, data, message_format))
        if fault is None or not self.apply_fault(fault):
            self.in_order(fault, partial(self._submit, delivery_id, data, message_format, settled, state, fault))

    def _submit(
        self,
        delivery_id: int,
        data: bytes,
        message_format: int,
        settled: bool,
        state: Composite | None,
        fault: Fault | None,
    ) -> None:
        outcome: Composite = Accepted()
        try:
            if fault is not None and fault.action in (Action.ERROR, Action.REFUSE):
                raise fault.refusal()
            messages = self._messages(data, message_format)
            self.namespace.faults.charge(len(messages))
            if isinstance(state, TransactionalState):
                transaction = self.session.connection.transactions.use(state.txn_id)
                transaction.send(self._via, self._entity.path, messages)
                outcome = TransactionalState(state.txn_id, outcome)
            else:
                self._entity.submit(messages)
        except Refusal as refusal:
            if not settled:
                self.session.refuse(True, delivery_id, refusal)
        else:
            self.namespace.counters.add(self.path, Kind.SEND, len(messages))
            if fault is not None and fault.action is Action.LOSE_REPLY_AND_DROP:
                self.namespace.journal.when_durable(self.session.connection.abort)
            elif not settled and not (fault is not None and fault.action is Action.LOSE_REPLY):
                accept = partial(self.session.answer, True, delivery_id, outcome)
                self.namespace.journal.when_durable(accept, partial(self.session.reject_unsaved, True, delivery_id))

    def _messages(self, data: bytes, message_format: int) -> list[BrokeredMessage]:
        if message_format != BATCH_FORMAT:
            self._check_size("message", len(data), self.max_size)
            return [BrokeredMessage.parse(data)]
        self._check_size("batch", len(data), self._max_batch)
        try:
            parts = batch_parts(data)
        except Malformed as error:
            raise BadArgument(f"The batch is not well-formed: {error}.", "amqp:decode-error") from None
        return [BrokeredMessage.parse(part) for part in parts]

    def _message_ids(self, data: bytes, message_format: int) -> list[object]:
        try:
            return [message.message_id for message in self._messages(data, message_format)]
        except Refusal:
            return []  # an unreadable message has no id

    def _check_size(self, what: str, size: int, limit: int) -> None:
        if size > limit:
            raise MessageSizeExceeded(
                f"The received {what} (size:{size} bytes) exceeds the limit ({limit} bytes) allowed on the link."
            )

    def recheck_rights(self) -> None:
        try:
            self.namespace.authorize(list(self.session.connection.grants.values()), self.path, Claim.SEND)
        except Refusal as refusal:
            self.detach(refusal)

    def recheck(self) -> None:
        try:
            self._entity.check_sends()
        except Refusal as refusal:
            self.detach(refusal)

    def closed(self) -> None:
        super().closed()
        self._entity.remove_link(self)


class OutgoingEntityLink(OutgoingLink):
    """Sends messages of a queue, a subscription or their dead letters to a client's receiver."""

    def __init__(
        self,
        session: AmqpSession,
        attach: Attach,
        path: str,
        entity: QueueEntity | SubscriptionEntity,
        queue: MessageQueue,
        via: str,
        deletes: bool,
    ) -> None:
        super().__init__(session, attach, path)
        self._via = via
        self.deletes = deletes
        self.owner: object = session.connection
        self._entity = entity
        self._queue = queue
        self._polling_since: int | None = None
        self._next_fault: Fault | None = None
        self._excused = False
        self._not_before: Millis = 0
        self._waiter: SessionWaiter | None = None
        self._wait_timer: Timer | None = None
        entity.links.add(self)

    # --- sessions --------------------------------------------------------------------------------------------------

    def wait_for_session(
        self, queue: SessionQueue, timeout: int, grant: Callable[[MessageSession], None], attach: Attach
    ) -> None:
        """Attaches the link when a session becomes free. Refuses the attach if that takes too long."""
        from .attach import refuse

        def granted(session: MessageSession) -> None:
            self._stop_waiting()
            grant(session)

        def give_up() -> None:
            self._stop_waiting()
            self.closed()
            refuse(self.session, attach, TimedOut(f"No session of '{self.path}' came free within {timeout} ms."))

        self._waiter = SessionWaiter(self, granted)
        self._wait_timer = self._clock.call_at(self._clock.now() + timeout, give_up)
        self.session.add_pending(self)
        queue.accept_next(self._waiter)

    def _stop_waiting(self) -> None:
        if self._wait_timer is not None:
            self._wait_timer.cancel()
        if self._waiter is not None and isinstance(self._queue, SessionQueue):
            self._queue.stop_waiting(self._waiter)
        self._waiter = self._wait_timer = None
        self.session.remove_pending(self)

    # --- delivering ------------------------------------------------------------------------------------------------

    def on_flow(self, flow: Flow) -> None:
        if flow.link_credit and not (flow.drain and self._polling_since is not None):
            self._begin_poll()
        super().on_flow(flow)
        if flow.drain or flow.link_credit == 0:
            self._end_poll()

    def granted(self, drain: bool) -> None:  # noqa: ARG002  messages are sent at once either way
        if self.credit > 0:
            self._queue.feed(self)

    def _begin_poll(self) -> None:
        now = self._clock.now()
        if self._polling_since is not None and now - self._polling_since >= SAME_POLL:
            self._end_poll()
        if self._polling_since is None:
            self._polling_since = now
            self._entity.touch()

    def _end_poll(self) -> None:
        """Counts a receive without a message: Service Bus bills it."""
        if self._polling_since is not None:
            self.namespace.counters.add(self.path, Kind.EMPTY_RECEIVE)
            self._polling_since = None

    def admits(self) -> bool:
        if self._clock.now() < self._not_before:
            return False  # a timer is set already, and asking again does not shorten the delay
        if self.session.is_congested:
            self.session.stall(self)
            return False
        fault = None if self._excused else self.strike(Operation.RECEIVE)
        self._excused = False
        if fault is not None:
            if self.apply_fault(fault):
                return False
            if fault.action in (Action.ERROR, Action.REFUSE):
                self.detach(fault.refusal())
                return False
            if fault.action is Action.DELAY:
                self._retry(round(fault.seconds * 1000), excused=True)
                return False
            self._next_fault = fault
        try:
            self.namespace.faults.charge(1)
        except ServerBusy:
            self._retry(1000 - self._clock.now() % 1000, excused=False)
            return False
        return True

    def _retry(self, delay: int, excused: bool) -> None:
        def again() -> None:
            self._excused = excused
            if not self.is_closed and self.credit > 0:
                self._queue.feed(self)

        self._not_before = self._clock.now() + delay
        self._clock.call_at(self._not_before, again)

    def deliver(self, message: BrokeredMessage) -> None:
        fault, self._next_fault = self._next_fault, None
        self._polling_since = None
        self.namespace.counters.add(self.path, Kind.RECEIVE)
        token = message.lock_token
        if fault is not None and fault.action in (Action.LOSE_REPLY, Action.LOSE_REPLY_AND_DROP):
            self.credit -= 1
            if fault.action is Action.LOSE_REPLY_AND_DROP:
                self.session.connection.abort()
            return
        self.give(token or b"", message.to_bytes(), self.deletes)
        if fault is not None and fault.action is Action.LOSE_LOCK and token is not None:
            # Not now: the queue is dispatching, and would deliver the same message again and again.
            asyncio.get_running_loop().call_soon(self._queue.lose_lock, token)

    # --- settling --------------------------------------------------------------------------------------------------

    def settle(self, tag: bytes, outcome: Composite | None, delivery_id: int, answer: bool) -> None:
        self.active()
        fault = self.strike(Operation.SETTLE)
        if fault is None and self.is_in_step:
            self._settle(tag, outcome, delivery_id, answer, None)
        elif fault is None or not self.apply_fault(fault):
            self.in_order(fault, partial(self._settle, tag, outcome, delivery_id, answer, fault))

    def _settle(
        self, tag: bytes, outcome: Composite | None, delivery_id: int, answer: bool, fault: Fault | None
    ) -> None:
        try:
            if fault is not None and fault.action in (Action.ERROR, Action.REFUSE):
                raise fault.refusal()
            if fault is not None and fault.action is Action.LOSE_LOCK:
                self._queue.lose_lock(tag)
            self.namespace.faults.charge(0)
            self._carry_out(tag, outcome)
        except Refusal as refusal:
            if answer:
                self.session.refuse(False, delivery_id, refusal)
        else:
            self.namespace.counters.add(self.path, Kind.SETTLE)
            if fault is not None and fault.action is Action.LOSE_REPLY_AND_DROP:
                self.namespace.journal.when_durable(self.session.connection.abort)
            elif answer and outcome is not None and not (fault is not None and fault.action is Action.LOSE_REPLY):
                echo = partial(self.session.answer, False, delivery_id, _bare(outcome))
                self.namespace.journal.when_durable(echo, partial(self.session.reject_unsaved, False, delivery_id))

    def _carry_out(self, tag: bytes, outcome: Composite | None) -> None:
        if type(outcome) is Accepted:
            self._queue.complete(tag)
        elif isinstance(outcome, TransactionalState):
            transaction = self.session.connection.transactions.use(outcome.txn_id)
            transaction.settle(self._via, self._queue, tag, *_settlement(outcome.outcome))
        else:
            self._queue.settle(tag, *_settlement(outcome))

    def recheck_rights(self) -> None:
        try:
            self.namespace.authorize(list(self.session.connection.grants.values()), self.path, Claim.LISTEN)
        except Refusal as refusal:
            self.detach(refusal)

    def recheck(self) -> None:
        try:
            self.namespace.source(self.path)  # refuses if the entity now forwards
            self._entity.check_receives()
        except Refusal as refusal:
            self.detach(refusal)

    def end(self, condition: str, description: str) -> None:
        self._polling_since = None  # the service ended this receive, so it is not billed
        super().end(condition, description)

    def closed(self) -> None:
        if not self.is_closed and not self.session.connection.ended_by_server:
            self._end_poll()
        super().closed()
        self._stop_waiting()
        self._queue.leave(self)
        self._entity.remove_link(self)


def _settlement(outcome: Composite | None) -> tuple[Settlement, dict[str, Value]]:
    if isinstance(outcome, Accepted):
        return Settlement.COMPLETE, {}
    if isinstance(outcome, Modified):
        settlement = Settlement.DEFER if outcome.undeliverable_here else Settlement.ABANDON
        return settlement, entries_of(outcome.message_annotations)
    if isinstance(outcome, Rejected):
        return Settlement.DEAD_LETTER, entries_of(outcome.error.info if outcome.error else None)
    return Settlement.RELEASE, {}


def _bare(outcome: Composite) -> Composite:
    """The same outcome without its fields: an error in a rejected outcome means that the settlement failed."""
    if isinstance(outcome, TransactionalState):
        return TransactionalState(outcome.txn_id, None if outcome.outcome is None else _bare(outcome.outcome))
    return outcome if type(outcome) is Accepted else type(outcome)()


def entries_of(changes: Map | None) -> dict[str, Value]:
    """The application properties that a receiver changes. A null value is no change."""
    return {str(key): value for key, value in changes or () if isinstance(key, str) and value is not None}
