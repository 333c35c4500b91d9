"""What an error of a send says about its entity (F3): the one table of what counts.

The condition decides where there is one, else the class the SDK raises. What is not in the table counts: the service,
or the way to it, did not do what it should, and the client's own retries did not help.
"""

from __future__ import annotations

from enum import Enum

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from syphon.bus import condition_of


class Verdict(Enum):
    """What to make of an error."""

    COUNTS = "counts"
    """The entity is not available: towards failing over."""
    BUSY = "busy"
    """It is there and asks for ten seconds of quiet (S5): wait and send again."""
    DENIED = "denied"
    """Credentials or claims: a mistake in the configuration, and the caller's to know."""
    INVALID = "invalid"
    """This message, or the call, is not as it should be."""


BY_CONDITION: dict[str, Verdict] = {
    "com.microsoft:server-busy": Verdict.BUSY,
    "amqp:unauthorized-access": Verdict.DENIED,
    "com.microsoft:auth-failed": Verdict.DENIED,
    "amqp:link:message-size-exceeded": Verdict.INVALID,
    "amqp:not-allowed": Verdict.INVALID,
    "amqp:not-implemented": Verdict.INVALID,
    "amqp:precondition-failed": Verdict.INVALID,
    "amqp:invalid-field": Verdict.INVALID,
    "amqp:decode-error": Verdict.INVALID,
    "com.microsoft:argument-error": Verdict.INVALID,
    "com.microsoft:argument-out-of-range": Verdict.INVALID,
    # As the paired namespaces of old had it: an entity that is gone, disabled or full is as good as away.
    "amqp:not-found": Verdict.COUNTS,
    "amqp:resource-deleted": Verdict.COUNTS,
    "com.microsoft:entity-disabled": Verdict.COUNTS,
    "amqp:resource-limit-exceeded": Verdict.COUNTS,
    "com.microsoft:timeout": Verdict.COUNTS,
    "com.microsoft:operation-cancelled": Verdict.COUNTS,
    "amqp:internal-error": Verdict.COUNTS,
    "amqp:link:detach-forced": Verdict.COUNTS,
    "amqp:connection:forced": Verdict.COUNTS,
}

BY_CLASS: tuple[tuple[type[Exception], Verdict], ...] = (
    (ServiceBusServerBusyError, Verdict.BUSY),
    (ServiceBusAuthenticationError, Verdict.DENIED),
    (ServiceBusAuthorizationError, Verdict.DENIED),
    (ClientAuthenticationError, Verdict.DENIED),
    (MessageSizeExceededError, Verdict.INVALID),
    (TypeError, Verdict.INVALID),
    (ValueError, Verdict.INVALID),
)


def judge(error: Exception) -> Verdict:
    """What an error of the SDK's says about the entity it came from."""
    condition = condition_of(error)
    if condition in BY_CONDITION:
        return BY_CONDITION[condition]
    # A message that cannot be encoded, or a credential that fails, comes wrapped in an error of no kind.
    cause = getattr(error, "inner_exception", None) if type(error) is ServiceBusError else None
    for kind, verdict in BY_CLASS:
        if isinstance(error, kind) or isinstance(cause, kind):
            return verdict
    return Verdict.COUNTS
