"""Errors, sorted by what happens next. An error's text is for the operator: what happened, where, and what to do.

- `Waits`: the destination does not accept the message at the moment. The message stays in the backlog, and the
  transfer retries after `retry_after`.
- `Impossible`: the destination does not accept this message as things are. If the operator counts the error as
  permanent, the message is dead-lettered with the reason; otherwise it waits (S4). By default a message that is too
  large or not allowed is dead-lettered, and one for a missing or disabled destination waits.
- `Faulted`: a namespace can no longer be used. The pair ends (C3). A worker sets it up again later; a worker without
  another pair ends.
- `InvalidSettings`, `InvalidOption`: the caller's settings or options are wrong. A retry does not help.
- `Interrupted`: the connection or link was lost. It is reopened; deliveries in flight have unknown outcomes (D10).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class SyphonError(Exception):
    """An error that the operator should know about."""

    condition: str | None = None
    """The AMQP error condition that caused it, if there is one."""

    def __init__(self, text: str | None = None, condition: str | None = None) -> None:
        super().__init__(text or (type(self).__doc__ or "").strip())
        if condition is not None:
            self.condition = condition


class Waits(SyphonError):
    """The destination accepts no messages at the moment."""

    retry_after = 1.0
    """Seconds until the first retry. Each retry that fails doubles them (S9)."""


class DestinationBusy(Waits):
    """The namespace is throttled: Service Bus asks for ten seconds of quiet (S5)."""

    retry_after = 10.0


class DestinationFull(Waits):
    """The destination has reached its size quota."""

    retry_after = 30.0


class DestinationSilent(Waits):
    """The destination did not answer in time."""


class DestinationFailed(Waits):
    """The destination failed and did not say why. One message may be the cause."""


class DestinationUnreachable(Waits):
    """No connection to the destination."""


class PausedByOperator(Waits):
    """The destination is paused by the operator."""


class Impossible(SyphonError):
    """The destination will never accept this message."""

    reason = "Refused"
    """The DeadLetterReason of the dead letter."""


class DestinationMissing(Impossible):
    """No queue or topic of that name in the namespace."""

    reason = "DestinationMissing"


class DestinationDisabled(Impossible):
    """The destination is disabled."""

    reason = "DestinationDisabled"


class MessageTooLarge(Impossible):
    """The message is larger than the destination accepts."""

    reason = "MessageTooLarge"


class NotAllowedByEntity(Impossible):
    """The destination refuses the message as it is."""

    reason = "NotAllowedByEntity"


class Interrupted(SyphonError):
    """The link or connection was lost."""


class LockLost(SyphonError):
    """The lock expired before the message was settled: it may be redelivered."""


class Faulted(SyphonError):
    """The namespace can no longer be used."""


class NotAuthorized(Faulted):
    """The credentials were refused, or lack a claim."""


class NamespaceGone(Faulted):
    """The namespace no longer exists."""


class InvalidSettings(SyphonError):
    """The settings cannot be used."""


class InvalidOption(SyphonError):
    """An option has a value that cannot be used."""


CONDITIONS: Mapping[str, type[SyphonError]] = MappingProxyType(
    {
        "com.microsoft:server-busy": DestinationBusy,
        "com.microsoft:timeout": DestinationSilent,
        "com.microsoft:operation-cancelled": DestinationSilent,
        "amqp:internal-error": DestinationFailed,
        "amqp:resource-locked": Waits,
        "com.microsoft:store-lock-lost": Waits,
        "com.microsoft:partition-not-owned": Waits,
        "amqp:resource-limit-exceeded": DestinationFull,
        "amqp:not-found": DestinationMissing,
        "com.microsoft:entity-disabled": DestinationDisabled,
        "amqp:link:message-size-exceeded": MessageTooLarge,
        "com.microsoft:message-lock-lost": LockLost,
        "com.microsoft:session-lock-lost": LockLost,
        "amqp:unauthorized-access": NotAuthorized,
        "com.microsoft:auth-failed": NotAuthorized,
        "amqp:link:detach-forced": Interrupted,
        "amqp:link:stolen": Interrupted,
        "amqp:connection:forced": Interrupted,
        "amqp:resource-deleted": DestinationMissing,
        "amqp:not-allowed": NotAllowedByEntity,
        "amqp:not-implemented": NotAllowedByEntity,
        "amqp:precondition-failed": NotAllowedByEntity,
        "amqp:invalid-field": NotAllowedByEntity,
        "amqp:decode-error": NotAllowedByEntity,
        "com.microsoft:argument-error": NotAllowedByEntity,
        "com.microsoft:argument-out-of-range": NotAllowedByEntity,
    }
)
"""The one table of AMQP error conditions. The transfer reads what to do with a message, the sender whether an entity is
available; both use the same class."""


def from_condition(condition: str, description: str) -> SyphonError:
    """The error that an AMQP condition means. The condition decides, not the class the SDK would raise.

    An unknown condition means that the entity refuses the message: the service rejected this message and gave a reason,
    and the operator can decide otherwise (`permanent_errors`).
    """
    return CONDITIONS.get(condition, NotAllowedByEntity)(f"{condition}: {description}", condition)


class DestinationError(StrEnum):
    """The class of a destination's error, by its name: what processes and programs read where people read the text."""

    NONE = ""
    WAITS = "Waits"
    BUSY = "DestinationBusy"
    FULL = "DestinationFull"
    SILENT = "DestinationSilent"
    FAILED = "DestinationFailed"
    UNREACHABLE = "DestinationUnreachable"
    PAUSED = "PausedByOperator"
    MISSING = "DestinationMissing"
    DISABLED = "DestinationDisabled"
    TOO_LARGE = "MessageTooLarge"
    NOT_ALLOWED = "NotAllowedByEntity"
    INTERRUPTED = "Interrupted"
    LOCK_LOST = "LockLost"
    NOT_AUTHORIZED = "NotAuthorized"

    @classmethod
    def _missing_(cls, value: object) -> DestinationError:  # noqa: ARG003
        """A class that has no name here waits."""
        return cls.WAITS

    @classmethod
    def of(cls, error: SyphonError) -> DestinationError:
        return cls(type(error).__name__)

    def error(self, text: str) -> SyphonError:
        """The error that another process has named, with its text."""
        return _BY_NAME.get(self, Waits)(text)


_BY_NAME: Mapping[DestinationError, type[SyphonError]] = {
    DestinationError(kind.__name__): kind for kind in (*CONDITIONS.values(), DestinationUnreachable)
}


def link_ended(condition: str, description: str) -> SyphonError:
    """The same for a link that the service has ended. An unknown condition says nothing about a message: reattach."""
    return CONDITIONS.get(condition, Interrupted)(f"{condition}: {description}", condition)


def connection_ended(condition: str, description: str) -> SyphonError:
    """The same for a whole connection. The reason of its end never says anything about one entity."""
    error = link_ended(condition, description)
    return Interrupted(str(error), condition) if isinstance(error, Impossible) else error
