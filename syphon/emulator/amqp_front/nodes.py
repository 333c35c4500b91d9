"""Nodes that answer requests ($cbs, $management): a request comes on one link, the reply goes out on another."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from syphon.amqp import Int, Malformed, Map, Message, Properties, Section, Value, properties_bytes, section_bytes
from syphon.amqp.frames import Accepted, Attach, Composite, Source, Target, TransactionalState

from ..broker import Action, BadArgument, Fault, MessageQueue, Operation, QuotaExceeded, Refusal, Settlement, key_name
from .links import IncomingLink, OutgoingLink

if TYPE_CHECKING:
    from .connection import AmqpConnection
    from .session import AmqpSession

log = logging.getLogger(__name__)

LARGEST_TOKEN = 256 * 1024
WAITING_REPLIES, WAITING_BYTES = 1000, 16 * 1024 * 1024
"""The most replies and bytes that wait for a client that grants no credit for replies."""

Settle = Callable[[MessageQueue, bytes, Settlement, dict[str, Value]], None]
"""Settles the message of a queue that a token has locked: at once, or at the commit of a transaction."""


class NodeRequest:
    """A request to a node, decoded once."""

    def __init__(self, data: bytes) -> None:
        self.in_transaction = False
        self.settle: Settle = MessageQueue.settle
        message = Message(data)
        properties = message.properties()
        self.message_id = properties.message_id
        self.reply_to = properties.reply_to
        self.application_properties = message.application_properties()
        self.body = message.read(Section.VALUE)

    @property
    def operation(self) -> str:
        operation = self.application_properties.get("operation")
        return operation if isinstance(operation, str) else ""


class RequestNode(Protocol):
    """A node that answers requests."""

    def answer(self, request: NodeRequest) -> NodeReply: ...

    def failure(self, refusal: Refusal) -> NodeReply: ...

    def lose_locks(self, request: NodeRequest) -> None:
        """Ends the locks that a request names, just before the request."""


class NodeReply:
    """A reply of a node: a body, and a status as application properties."""

    def __init__(self, status: dict[str, Value], body: Value = None) -> None:
        self.status = status
        self.body = body

    def to_bytes(self, correlation_id: Value) -> bytes:
        return b"".join(
            (
                properties_bytes(Properties(correlation_id=correlation_id)),
                section_bytes(Section.APPLICATION_PROPERTIES, Map.of(self.status)),
                section_bytes(Section.VALUE, self.body),
            )
        )


class IncomingRequestLink(IncomingLink):
    """The link on which requests arrive."""

    def __init__(self, session: AmqpSession, attach: Attach, path: str, node: RequestNode, via: str) -> None:
        super().__init__(session, attach, path)
        self._node = node
        self._via = via
        if path == "$cbs":
            self.max_size = LARGEST_TOKEN

    def take(
        self,
        delivery_id: int,
        data: bytes,
        message_format: int,  # noqa: ARG002
        settled: bool,
        state: Composite | None,
    ) -> None:
        if not settled:
            self.session.answer(True, delivery_id, Accepted())
        try:
            request = NodeRequest(data)
        except Malformed as error:
            self.detach(BadArgument(f"The request is not well-formed: {error}.", "amqp:decode-error"))
            return
        entity = self.path.rpartition("/$management")[0]
        fault = self.namespace.faults.strike(Operation.MANAGE, entity) if entity else None
        if fault is not None and self.apply_fault(fault):
            return
        self.in_order(fault, lambda: self._answer(request, state, fault))

    def _answer(self, request: NodeRequest, state: Composite | None, fault: Fault | None) -> None:
        action = fault.action if fault is not None else None
        try:
            if fault is not None and action in (Action.ERROR, Action.REFUSE):
                raise fault.refusal()
            if action is Action.LOSE_LOCK:
                self._node.lose_locks(request)
            if isinstance(state, TransactionalState):
                request.in_transaction = True
                request.settle = partial(self.session.connection.transactions.use(state.txn_id).settle, self._via)
            reply = self._node.answer(request)
        except Refusal as why:
            reply = self._node.failure(why)
        if action is Action.LOSE_REPLY_AND_DROP:
            self.namespace.journal.when_durable(self.session.connection.abort)
        elif action is not Action.LOSE_REPLY:
            self.namespace.journal.when_durable(
                lambda: self._reply(request, reply), lambda why: self._reply(request, self._node.failure(Refusal(why)))
            )

    def _reply(self, request: NodeRequest, reply: NodeReply) -> None:
        twins = [
            link
            for link in self.session.outgoing_links()
            if isinstance(link, OutgoingReplyLink) and link.path == self.path
        ]
        for link in sorted(twins, key=lambda link: request.reply_to not in link.addresses)[:1]:
            link.reply(reply.to_bytes(request.message_id))


class OutgoingReplyLink(OutgoingLink):
    """The link on which replies go out as soon as there is credit for them."""

    def __init__(self, session: AmqpSession, attach: Attach, path: str) -> None:
        super().__init__(session, attach, path)
        self.addresses = [end.address for end in (attach.source, attach.target) if isinstance(end, Source | Target)]
        self._waiting: deque[bytes] = deque()
        self._count = 0

    def reply(self, payload: bytes) -> None:
        if len(self._waiting) >= WAITING_REPLIES or sum(map(len, self._waiting)) > WAITING_BYTES:
            self.detach(QuotaExceeded("Replies are waiting for credit, and there is no room for more of them."))
            return
        self._waiting.append(payload)
        self.granted(drain=False)

    def granted(self, drain: bool) -> None:  # noqa: ARG002
        while self._waiting and self.credit > 0:
            self._count += 1
            self.give(self._count.to_bytes(4, "big"), self._waiting.popleft(), True)


class CbsNode:
    """The $cbs node (claims-based security) of one connection: clients put their tokens here."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection

    def answer(self, request: NodeRequest) -> NodeReply:
        if request.operation != "put-token":
            raise BadArgument(f"$cbs knows put-token, not '{request.operation}'.")
        address = request.application_properties.get("name")
        if not isinstance(request.body, str) or not isinstance(address, str):
            raise BadArgument("put-token wants the token as its body and the address as 'name'.")
        namespace = self._connection.hosts.find(key_name(request.body), self._connection.host)
        grant = namespace.access.token(request.body, address)
        namespace.check_exists(grant.path, address)
        self._connection.join(namespace)
        self._connection.grant(grant)
        return _cbs_reply(202, "Accepted")

    def lose_locks(self, request: NodeRequest) -> None:
        """Does nothing: a token has no lock."""

    def failure(self, refusal: Refusal) -> NodeReply:
        log.info("namespace %s refused a token: %s", self._connection.namespace.name, refusal.description)
        return _cbs_reply(refusal.status, refusal.description)


def _cbs_reply(code: int, description: str) -> NodeReply:
    return NodeReply({"status-code": Int(code), "status-description": description})
