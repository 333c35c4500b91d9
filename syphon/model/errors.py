"""What can go wrong, sorted by what happens next. An error's text is for the operator: what, where, and what to do.

- `Waits`: the destination cannot take the message now. It stays in the backlog, and is tried again after `retry_after`.
- `Impossible`: this message will never be taken as it is. It goes to the dead letters, with the reason.
- `Faulted`: a namespace cannot be used any more. The pair ends (C3), and the worker with it.
- `Interrupted`: the connection or link went. Open it again; what was under way has an unknown outcome (D10).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


class SyphonError(Exception):
    """Something the operator should know of."""

    condition: str | None = None
    """The AMQP error condition that stands behind it, if one does."""

    def __init__(self, text: str | None = None, condition: str | None = None) -> None:
        super().__init__(text or (type(self).__doc__ or "").strip())
        if condition is not None:
            self.condition = condition


class Waits(SyphonError):
    """The destination cannot take messages right now."""

    retry_after = 1.0
    """Seconds until the first try; each that fails doubles them (S9)."""


class DestinationBusy(Waits):
    """The namespace is throttled: Service Bus asks for ten seconds of quiet (S5)."""

    retry_after = 10.0


class DestinationFull(Waits):
    """The destination has reached its size quota."""

    retry_after = 30.0


class DestinationSilent(Waits):
    """The destination did not answer in time."""


class DestinationFailed(Waits):
    """The destination failed and does not say over what: over one message, perhaps."""


class DestinationUnreachable(Waits):
    """No connection to the destination."""


class PausedByOperator(Waits):
    """The destination is paused by the operator."""


class Impossible(SyphonError):
    """The destination will never take this message."""

    reason = "Refused"
    """What the dead letter gives as its DeadLetterReason."""


class DestinationMissing(Impossible):
    """No queue or topic of that name in the primary namespace."""

    reason = "DestinationMissing"


class DestinationDisabled(Impossible):
    """The destination is disabled."""

    reason = "DestinationDisabled"


class MessageTooLarge(Impossible):
    """The message is larger than the destination takes."""

    reason = "MessageTooLarge"


class NotAllowedByEntity(Impossible):
    """The destination refuses the message as it is."""

    reason = "NotAllowedByEntity"


class Interrupted(SyphonError):
    """The link or connection went away."""


class LockLost(SyphonError):
    """The lock ran out before the message was settled: it may be delivered again."""


class Faulted(SyphonError):
    """The namespace cannot be used any more."""


class NotAuthorized(Faulted):
    """The credentials were refused, or lack a claim."""


class NamespaceGone(Faulted):
    """The namespace does not exist any more."""


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
"""The one table of AMQP error conditions. The transfer asks it what to do with a message, the sender whether an entity
is available; both read the same class."""


def from_condition(condition: str, description: str) -> SyphonError:
    """The error that an AMQP condition means. The condition decides, not the class the SDK would raise.

    What is not known is taken as refused by the entity: the service said no to this message and gave a reason, and the
    operator can say otherwise (`permanent_errors`).
    """
    return CONDITIONS.get(condition, NotAllowedByEntity)(f"{condition}: {description}", condition)


def link_ended(condition: str, description: str) -> SyphonError:
    """The same of a link that the service has ended. What is not known is no word about any message: open another."""
    return CONDITIONS.get(condition, Interrupted)(f"{condition}: {description}", condition)


def connection_ended(condition: str, description: str) -> SyphonError:
    """The same of a whole connection: whatever the reason, it is no word about one entity."""
    error = link_ended(condition, description)
    return Interrupted(str(error), condition) if isinstance(error, Impossible) else error
