"""The $management node of an entity: peek, locks, deferred and scheduled messages, sessions, rules."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from syphon.amqp import Array, Int, Long, Map, Symbol, Timestamp, Value

from ..broker import (
    MANAGEMENT_CREDITS,
    BadArgument,
    BrokeredMessage,
    Claim,
    EntityNotFound,
    Kind,
    MessageNotFound,
    MessageQueue,
    MessageSizeExceeded,
    NotAllowed,
    NotImplementedHere,
    Refusal,
    SessionQueue,
    Settlement,
)
from .entity_links import entries_of
from .nodes import NodeReply, NodeRequest, Settle
from .rules import described_rule, read_rule

if TYPE_CHECKING:
    from .connection import AmqpConnection

PREFIX = "com.microsoft:"
LONGS, TIMESTAMPS, STRINGS = 0x81, 0x83, 0xB1
PEEK_LIMIT = 250
DELETE_LIMIT = 4000
_LIKE_ON_LINKS = frozenset(
    {
        "peek-message",
        "update-disposition",
        "receive-by-sequence-number",
        "schedule-message",
        "batch-delete-messages",
    }
)
"""Operations on messages. They are counted and charged per message, as on links, and not as management."""
_SETTLEMENTS = {
    "completed": Settlement.COMPLETE,
    "abandoned": Settlement.ABANDON,
    "defered": Settlement.DEFER,  # Service Bus spells it like this
    "suspended": Settlement.DEAD_LETTER,
}
NEVER_UPDATED = 253_402_300_800_000
"""The time (year 10000) with which a client asks for all sessions, and not for those with a newer state."""

T = TypeVar("T")


class ManagementNode:
    """Answers the management requests of one connection for one entity."""

    def __init__(self, connection: AmqpConnection, path: str) -> None:
        self._connection = connection
        self._namespace = connection.namespace
        self.path = path
        self._operations: dict[str, tuple[Claim, Callable[[Map], NodeReply]]] = {
            "peek-message": (Claim.LISTEN, self._peek),
            "renew-lock": (Claim.LISTEN, self._renew_locks),
            "update-disposition": (Claim.LISTEN, self._settle_at_once),
            "receive-by-sequence-number": (Claim.LISTEN, self._receive_deferred),
            "batch-delete-messages": (Claim.LISTEN, self._delete),
            "schedule-message": (Claim.SEND, self._schedule),
            "cancel-scheduled-message": (Claim.SEND, self._cancel),
            "get-session-state": (Claim.LISTEN, self._get_session_state),
            "set-session-state": (Claim.LISTEN, self._set_session_state),
            "renew-session-lock": (Claim.LISTEN, self._renew_session),
            "get-message-sessions": (Claim.LISTEN, self._list_sessions),
            # Over AMQP a receiver may change its own rules. Only the administration API requires Manage.
            "add-rule": (Claim.LISTEN, self._add_rule),
            "remove-rule": (Claim.LISTEN, self._remove_rule),
            "enumerate-rules": (Claim.LISTEN, self._list_rules),
        }

    def answer(self, request: NodeRequest) -> NodeReply:
        name = request.operation.removeprefix(PREFIX)
        if name not in self._operations:
            raise NotImplementedHere(f"The operation '{request.operation}' is not known.")
        if not isinstance(request.body, Map):
            raise BadArgument(f"{name} wants a map as its body.")
        claim, operation = self._operations[name]
        if request.in_transaction:
            operation = self._in_transaction(name, request.settle)
        self._namespace.authorize(list(self._connection.grants.values()), f"{self.path}/$management", claim)
        if name not in _LIKE_ON_LINKS:
            self._namespace.faults.charge(MANAGEMENT_CREDITS)
            self._namespace.counters.add(self.path, Kind.MANAGE)
        return operation(request.body)

    def _in_transaction(self, name: str, settle: Settle) -> Callable[[Map], NodeReply]:
        if name == "update-disposition":
            return lambda body: self._update_disposition(body, settle)
        if name == "renew-lock":
            return self._renew_locks  # it is never undone
        raise NotAllowed(f"{name} cannot be part of a transaction here.")

    def lose_locks(self, request: NodeRequest) -> None:
        queue, body = self._queue(), request.body
        if not isinstance(body, Map):
            return
        if "lock-tokens" in body:
            for token in _tokens(body):
                queue.lose_lock(token)
        elif isinstance(queue, SessionQueue) and (session_id := _optional(body, "session-id", str)) is not None:
            queue.lose_session(session_id)

    def failure(self, refusal: Refusal) -> NodeReply:
        return NodeReply(
            {
                "statusCode": Int(refusal.status),
                "statusDescription": refusal.description,
                "errorCondition": Symbol(refusal.condition),
            }
        )

    # --- messages --------------------------------------------------------------------------------------------------

    def _peek(self, body: Map) -> NodeReply:
        start = _get(body, "from-sequence-number", int)
        count = min(_get(body, "message-count", int), PEEK_LIMIT)
        if count < 1:
            raise BadArgument(f"message-count must be at least 1, not {count}.")
        with_body = not _optional(body, "omit-message-body", bool)
        self._namespace.source(self.path)[0].touch()
        found = self._queue().peek_page(start, count, _optional(body, "session-id", str))
        self._namespace.faults.charge(max(1, len(found)))
        self._namespace.counters.add(self.path, Kind.PEEK, max(1, len(found)))
        if not found:
            return _done(204, "No messages.")
        return _ok({"messages": [Map.of({"message": message.peeked(with_body)}) for message in found]})

    def _renew_locks(self, body: Map) -> NodeReply:
        queue = self._queue()
        return _ok({"expirations": Array(TIMESTAMPS, tuple(Timestamp(queue.renew(token)) for token in _tokens(body)))})

    def _settle_at_once(self, body: Map) -> NodeReply:
        return self._update_disposition(body, MessageQueue.settle)

    def _update_disposition(self, body: Map, settle: Settle) -> NodeReply:
        status = _get(body, "disposition-status", str)
        queue = self._queue()
        self._namespace.faults.charge(0)
        properties = body.get("properties-to-modify")
        changes = entries_of(properties) if isinstance(properties, Map) else {}
        if status not in _SETTLEMENTS:
            raise BadArgument(f"'{status}' is no disposition: completed, abandoned, defered or suspended.")
        if status == "suspended":
            reasons = {
                "DeadLetterReason": body.get("deadletter-reason"),
                "DeadLetterErrorDescription": body.get("deadletter-description"),
            }
            changes |= {key: value for key, value in reasons.items() if value is not None}
        for token in _tokens(body):
            settle(queue, token, _SETTLEMENTS[status], changes)
            self._namespace.counters.add(self.path, Kind.SETTLE)
        return _ok({})

    def _receive_deferred(self, body: Map) -> NodeReply:
        deletes = _get(body, "receiver-settle-mode", int) == 0
        numbers = _numbers(body)
        self._namespace.faults.charge(len(numbers))
        entity, queue = self._namespace.source(self.path)
        entity.check_receives()
        if isinstance(queue, SessionQueue):
            session_id = _optional(body, "session-id", str)
            found = queue.receive_deferred_of(session_id, self._connection, numbers, deletes)
        else:
            found = queue.receive_deferred(numbers, deletes)
        self._namespace.counters.add(self.path, Kind.RECEIVE, len(found))
        return _ok({"messages": [_with_lock(message) for message in found]})

    def _delete(self, body: Map) -> NodeReply:
        count = _get(body, "message-count", int)
        if not 1 <= count <= DELETE_LIMIT:
            raise BadArgument(f"message-count must be 1 to {DELETE_LIMIT}, not {count}.")
        before = _get(body, "enqueued-time-utc", Timestamp)
        entity, queue = self._namespace.source(self.path)
        entity.check_receives()
        entity.touch()
        deleted = queue.delete(count, before, _optional(body, "session-id", str))
        self._namespace.faults.charge(max(1, deleted))
        self._namespace.counters.add(self.path, Kind.RECEIVE, deleted)
        if deleted == 0:
            return _none_found("No message was enqueued before that time.")
        return _ok({"message-count": Int(deleted)})

    def _schedule(self, body: Map) -> NodeReply:
        entity = self._namespace.target(self.path)
        limit = self._namespace.max_message_size(entity)
        wanted = body.get("messages")
        if not isinstance(wanted, list) or not wanted:
            raise BadArgument("schedule-message wants a list of messages.")
        messages = []
        for entry in wanted:
            payload = entry.get("message") if isinstance(entry, Map) else None
            if not isinstance(payload, bytes):
                raise BadArgument("schedule-message wants each message as binary.")
            if len(payload) > limit:
                raise MessageSizeExceeded(
                    f"A message to be scheduled (size:{len(payload)} bytes) exceeds the entity's limit ({limit} bytes)."
                )
            message = BrokeredMessage.parse(payload)
            message.due = message.due or self._namespace.clock.now()
            messages.append(message)
        self._namespace.faults.charge(len(messages))
        entity.submit(messages)
        self._namespace.counters.add(self.path, Kind.SEND, len(messages))
        return _ok({"sequence-numbers": Array(LONGS, tuple(Long(message.sequence) for message in messages))})

    def _cancel(self, body: Map) -> NodeReply:
        entity = self._namespace.target(self.path)
        for number in _numbers(body):
            entity.main.cancel(number)
        return _ok({})

    # --- sessions --------------------------------------------------------------------------------------------------

    def _get_session_state(self, body: Map) -> NodeReply:
        return _ok({"session-state": self._sessions().state_of(_get(body, "session-id", str), self._connection)})

    def _set_session_state(self, body: Map) -> NodeReply:
        state = _optional(body, "session-state", bytes)
        self._sessions().set_state(_get(body, "session-id", str), state, self._connection)
        return _ok({})

    def _renew_session(self, body: Map) -> NodeReply:
        until = self._sessions().renew_session(_get(body, "session-id", str), self._connection)
        return _ok({"expiration": Timestamp(until)})

    def _list_sessions(self, body: Map) -> NodeReply:
        after = _optional(body, "last-updated-time", int)
        skip, top = _get(body, "skip", int), _get(body, "top", int)
        ids = self._sessions().session_ids(None if after is None or after >= NEVER_UPDATED else after)
        page = ids[max(0, skip) : max(0, skip) + max(0, top)]
        if not page:
            return _done(204, "No sessions.")
        return _ok({"skip": Int(skip + len(page)), "sessions-ids": Array(STRINGS, tuple(page))})

    # --- rules -----------------------------------------------------------------------------------------------------

    def _add_rule(self, body: Map) -> NodeReply:
        topic, subscription = self._subscription()
        rule = read_rule(_get(body, "rule-name", str), _get(body, "rule-description", Map))
        self._namespace.create_rule(topic, subscription, rule)
        return _ok({})

    def _remove_rule(self, body: Map) -> NodeReply:
        topic, subscription = self._subscription()
        self._namespace.delete_rule(topic, subscription, _get(body, "rule-name", str))
        return _ok({})

    def _list_rules(self, body: Map) -> NodeReply:
        topic, subscription = self._subscription()
        skip, top = _get(body, "skip", int), _get(body, "top", int)
        page = self._namespace.rules(topic, subscription)[max(0, skip) : max(0, skip) + max(0, top)]
        if not page:
            return _done(204, "No rules.")
        now = self._namespace.clock.now()
        return _ok({"rules": [Map.of({"rule-description": described_rule(rule, now)}) for rule in page]})

    # --- the entity ------------------------------------------------------------------------------------------------

    def _queue(self) -> MessageQueue:
        return self._namespace.source(self.path)[1]

    def _sessions(self) -> SessionQueue:
        queue = self._queue()
        if not isinstance(queue, SessionQueue):
            raise NotAllowed(f"'{self.path}' does not require sessions.")
        return queue

    def _subscription(self) -> tuple[str, str]:
        topic, found, name = self.path.lower().partition("/subscriptions/")
        if not found:
            raise EntityNotFound(f"'{self.path}' is no subscription: only those have rules.")
        return topic, name


def _with_lock(message: BrokeredMessage) -> Map:
    entry: dict[str, Value] = {"message": message.received_by_number()}
    if message.lock_token is not None:
        entry["lock-token"] = uuid.UUID(bytes_le=message.lock_token)
    return Map.of(entry)


def _ok(body: dict[str, Value]) -> NodeReply:
    return NodeReply({"statusCode": Int(200), "statusDescription": "OK"}, Map.of(body))


def _done(code: int, description: str) -> NodeReply:
    return NodeReply({"statusCode": Int(code), "statusDescription": description}, Map())


def _none_found(description: str) -> NodeReply:
    reply = _done(204, description)
    reply.status["errorCondition"] = Symbol(MessageNotFound.condition)
    return reply


def _get(body: Map, name: str, kind: type[T]) -> T:
    value = body.get(name)
    if not isinstance(value, kind):
        raise BadArgument(f"'{name}' is {type(value).__name__}, expected {kind.__name__}.")
    return value


def _optional(body: Map, name: str, kind: type[T]) -> T | None:
    return None if body.get(name) is None else _get(body, name, kind)


def _items(body: Map, name: str) -> list[Value]:
    value = body.get(name)
    if isinstance(value, Array):
        return list(value.items)
    if isinstance(value, list):
        return value
    raise BadArgument(f"'{name}' is {type(value).__name__}, expected an array.")


def _tokens(body: Map) -> list[bytes]:
    tokens = _items(body, "lock-tokens")
    if not all(isinstance(token, uuid.UUID) for token in tokens):
        raise BadArgument("lock-tokens are uuids.")
    return [token.bytes_le for token in tokens if isinstance(token, uuid.UUID)]


def _numbers(body: Map) -> list[int]:
    numbers = _items(body, "sequence-numbers")
    if not all(isinstance(number, int) for number in numbers):
        raise BadArgument("sequence-numbers are longs.")
    return [number for number in numbers if isinstance(number, int)]
