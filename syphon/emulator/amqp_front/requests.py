"""Nodes that answer requests: $cbs and $management. A request comes in on one link, the reply goes out on its twin."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from syphon.amqp import Malformed, Map, Message, Properties, Section, Value, properties_bytes, section_bytes
from syphon.amqp.frames import Accepted, Attach, Target

from ..broker.faults import Action, Fault, Operation
from ..broker.refusals import BadArgument, QuotaExceeded, Refusal
from .links import Inlet, Outlet

if TYPE_CHECKING:
    from .session import AmqpSession


LARGEST_TOKEN = 256 * 1024
WAITING_REPLIES, WAITING_BYTES = 1000, 16 * 1024 * 1024
"""How much may wait for a client that asks and grants no credit for the answers."""


class Request:
    """A request, with its parts decoded once."""

    def __init__(self, data: bytes) -> None:
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


class Node(Protocol):
    """Answers requests."""

    def answer(self, request: Request) -> Reply: ...

    def failure(self, refusal: Refusal) -> Reply: ...

    def lose_locks(self, request: Request) -> None:
        """The locks that a request is about are lost just before it."""


class Reply:
    """What a node says: a body, and its status as application properties."""

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


class RequestInlet(Inlet):
    """Where requests come in."""

    def __init__(self, session: AmqpSession, attach: Attach, path: str, node: Node) -> None:
        super().__init__(session, attach, path)
        self._node = node
        if path == "$cbs":
            self.max_size = LARGEST_TOKEN

    def take(self, delivery_id: int, data: bytes, message_format: int, settled: bool) -> None:  # noqa: ARG002
        if not settled:
            self.session.answer(True, delivery_id, Accepted())
        try:
            request = Request(data)
        except Malformed as error:
            self.detach(BadArgument(f"The request is not well-formed: {error}.", "amqp:decode-error"))
            return
        entity = self.path.rpartition("/$management")[0]
        fault = self.namespace.faults.strike(Operation.MANAGE, entity) if entity else None
        if fault is not None and self.suffers(fault):
            return
        self.in_turn(fault, lambda: self._answer(request, fault))

    def _answer(self, request: Request, fault: Fault | None) -> None:
        action = fault.action if fault is not None else None
        try:
            if fault is not None and action in (Action.ERROR, Action.REFUSE):
                raise fault.refusal()
            if action is Action.LOSE_LOCK:
                self._node.lose_locks(request)
            reply = self._node.answer(request)
        except Refusal as why:
            reply = self._node.failure(why)
        if action is Action.LOSE_REPLY_AND_DROP:
            self.namespace.journal.when_durable(self.session.connection.abort)
        elif action is not Action.LOSE_REPLY:
            self.namespace.journal.when_durable(
                lambda: self._reply(request, reply), lambda why: self._reply(request, self._node.failure(Refusal(why)))
            )

    def _reply(self, request: Request, reply: Reply) -> None:
        twins = [link for link in self.session.outlets() if isinstance(link, ReplyOutlet) and link.path == self.path]
        for link in sorted(twins, key=lambda link: link.address != request.reply_to)[:1]:
            link.reply(reply.to_bytes(request.message_id))


class ReplyOutlet(Outlet):
    """Where replies go out, as soon as there is credit for them."""

    def __init__(self, session: AmqpSession, attach: Attach, path: str) -> None:
        super().__init__(session, attach, path)
        self.address = attach.target.address if isinstance(attach.target, Target) else None
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
