"""Refusals of the broker, each with the AMQP condition and the HTTP status that a client sees.

The front that received the request turns a `Refusal` into an answer of its protocol: a rejected delivery, a detached
link, a management reply or an HTTP error. The broker does not know the protocol.
"""

from __future__ import annotations

KNOW_MORE = "To know more visit https://aka.ms/sbResourceMgrExceptions."
"""The end of the service's texts about entities."""


class Refusal(Exception):
    """The service refuses a request."""

    condition = "amqp:internal-error"
    status = 500

    def __init__(self, description: str, condition: str | None = None, status: int | None = None) -> None:
        super().__init__(description)
        self.description = description
        if condition is not None:
            self.condition = condition
        if status is not None:
            self.status = status


class EntityNotFound(Refusal):
    """No entity has that path."""

    condition = "amqp:not-found"
    status = 404


class EntityExists(Refusal):
    """An entity with that path exists already."""

    condition = "com.microsoft:entity-already-exists"
    status = 409


class BadArgument(Refusal):
    """The request has a value that the service does not accept."""

    condition = "com.microsoft:argument-error"
    status = 400


class OutOfRange(Refusal):
    """A number or a size is outside the range that the service accepts."""

    condition = "com.microsoft:argument-out-of-range"
    status = 400


class NotAllowed(Refusal):
    """The settings of the entity do not allow the operation."""

    condition = "amqp:not-allowed"
    status = 400


class NotImplementedHere(Refusal):
    """Service Bus supports the operation; this emulator does not."""

    condition = "amqp:not-implemented"
    status = 501


class Unauthorized(Refusal):
    """The client has no valid token, or the token lacks the claim."""

    condition = "amqp:unauthorized-access"
    status = 401


class EntityDisabled(Refusal):
    """The status of the entity does not allow the operation."""

    condition = "com.microsoft:entity-disabled"
    status = 403


class QuotaExceeded(Refusal):
    """The entity has reached its size quota."""

    condition = "amqp:resource-limit-exceeded"
    status = 403


class MessageSizeExceeded(Refusal):
    """The message or batch is larger than the link allows."""

    condition = "amqp:link:message-size-exceeded"
    status = 413


class ServerBusy(Refusal):
    """The namespace is throttled: wait ten seconds."""

    condition = "com.microsoft:server-busy"
    status = 503


class TimedOut(Refusal):
    """The service did not finish the operation in time."""

    condition = "com.microsoft:timeout"
    status = 408


class MessageLockLost(Refusal):
    """The lock on the message has expired or was never held."""

    condition = "com.microsoft:message-lock-lost"
    status = 410


class SessionLockLost(Refusal):
    """The lock on the session has expired or was never held."""

    condition = "com.microsoft:session-lock-lost"
    status = 410


class SessionCannotBeLocked(Refusal):
    """Another receiver holds the session."""

    condition = "com.microsoft:session-cannot-be-locked"
    status = 409


class MessageNotFound(Refusal):
    """No message has that sequence number, or none in that state."""

    condition = "com.microsoft:message-not-found"
    status = 404


class TransactionUnknown(Refusal):
    """The transaction was never declared on this connection, or it is over."""

    condition = "amqp:transaction:unknown-id"
    status = 404


class TransactionRolledBack(Refusal):
    """The transaction cannot be committed, and none of its operations took effect."""

    condition = "amqp:transaction:rollback"
    status = 409


_STATUSES = {kind.condition: kind.status for kind in Refusal.__subclasses__()} | {"amqp:link:detach-forced": 503}


def status_of(condition: str) -> int:
    """The HTTP status for an AMQP condition."""
    return _STATUSES.get(condition, Refusal.status)
