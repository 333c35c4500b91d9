"""The errors that a paired sender raises, and the class of each error that the SDK raises (F3).

All errors of a paired sender are errors of the SDK too: an application that catches `ServiceBusError` around its sends
catches them as before.

`classify` answers the sender's question: what does this error say about the entity? It reads the one table of AMQP
conditions (`syphon.model.errors.CONDITIONS`) and uses only the error class that the table gives. An error without a
known condition is classified by the exception class that the SDK raised. Everything else counts towards failover: the
service, or the network in between, did not do its work, and the client's own retries did not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from syphon.backlog import QueueName
from syphon.model import (
    CONDITIONS,
    DestinationBusy,
    LockLost,
    MessageTooLarge,
    NotAllowedByEntity,
    NotAuthorized,
    SyphonError,
    Waits,
)
from syphon.servicebus import condition_of

from .pair_state import PairState

# --- errors that a paired sender raises --------------------------------------------------------------------------


class BothSidesFailed(ServiceBusError):
    """Neither the primary nor a backlog queue accepted the messages. Nothing is kept: send them again."""

    def __init__(
        self,
        entity: str,
        primary: Exception,
        backlog: Mapping[QueueName, Exception],
        left: int,
        count: int,
        *,
        by_session: bool = False,
    ) -> None:
        """`by_session`: the messages of one session were sent after those of another."""
        tries = [f"{queue}: {brief(error)}" for queue, error in backlog.items()]
        told = "; ".join(tries or ["there was no time to try a queue"])
        which = "messages are in the backlog, session by session" if by_session else "messages are in the backlog"
        some = "" if left == count else f" The first {count - left} of {count} {which}."
        super().__init__(
            f"The messages for '{entity}' were not sent. The primary failed: {brief(primary)}. "
            f"The backlog failed: {told}.{some}"
        )
        self.primary = primary
        """Why the entity is failed over."""
        self.backlog = dict(backlog)
        """For each backlog queue that was tried: why it did not accept the messages."""


class TooLargeForBacklog(MessageSizeExceededError):
    """The message fits its entity, but does not fit a backlog queue, where it also carries its aliases (M7)."""

    def __init__(self, entity: str, queue: str, size: int, limit: int) -> None:
        super().__init__(
            message=f"A message for '{entity}' has {size} bytes together with its aliases, {size - limit} more "
            f"than the {limit} that {queue} accepts. '{entity}' is failed over: send a smaller message, or wait."
        )
        self.excess = size - limit


class UnfitForBacklog(ServiceBusError, ValueError):
    """The message cannot be put into a backlog queue, whatever its size."""


class SenderClosed(ServiceBusError, ValueError):
    """The sender or its pair was closed. A message that was being sent may have arrived or not."""

    def __init__(self, text: str | None = None) -> None:
        super().__init__(text or self.__doc__)


class PairFaulted(SenderClosed):
    """A side of the pair was closed or faulted, and the pair ends with it (C1). `state` shows both sides."""

    def __init__(self, state: PairState) -> None:
        super().__init__(
            f"The pair cannot send: its sides end together. {state} Close the pair and make a new one. "
            "A message that was being sent may have arrived or not."
        )
        self.state = state


class UsedAfterFork(SenderClosed):
    """The pair was made in another process. Its connections cannot be used in a child of that process."""

    def __init__(self, made_in: int, used_in: int) -> None:
        super().__init__(
            f"The pair was made in process {made_in} and is used in its child {used_in}: two processes cannot use one "
            "connection. Call pair() in the child, after the fork."
        )


def brief(error: BaseException) -> str:
    """An error in one line: the SDK's texts may have several."""
    text = " ".join(str(error).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# --- classes of the errors that the SDK raises -------------------------------------------------------------------


class FailureClass(Enum):
    """What an error says about the entity."""

    COUNTS = "counts"
    """The entity is not available. The error counts towards failover."""
    BUSY = "busy"
    """The entity demands ten seconds without requests (S5): wait, then send again."""
    DENIED = "denied"
    """The credentials or claims are wrong. That is a configuration error, so the caller gets it."""
    INVALID = "invalid"
    """This message, or this call, is wrong."""


BY_ERROR_CLASS: Mapping[type[SyphonError], FailureClass] = {
    DestinationBusy: FailureClass.BUSY,
    NotAuthorized: FailureClass.DENIED,
    MessageTooLarge: FailureClass.INVALID,
    NotAllowedByEntity: FailureClass.INVALID,
}
"""All other classes count, by the rule of Microsoft's articles: an entity that is missing, disabled or full is as
unavailable as one that cannot be reached. (The retired .NET SDK did otherwise: it counted timeouts and transient
errors, server busy included, and did not count missing, disabled or full.)"""

BY_SDK_ERROR: tuple[tuple[type[Exception], FailureClass], ...] = (
    (ServiceBusServerBusyError, FailureClass.BUSY),
    (ServiceBusAuthenticationError, FailureClass.DENIED),
    (ServiceBusAuthorizationError, FailureClass.DENIED),
    (ClientAuthenticationError, FailureClass.DENIED),
    (MessageSizeExceededError, FailureClass.INVALID),
    (TypeError, FailureClass.INVALID),
    (ValueError, FailureClass.INVALID),
)


def classify(error: Exception) -> FailureClass:
    """What an error of the SDK says about the entity it came from."""
    known = CONDITIONS.get(condition_of(error) or "")
    if known is not None:
        return BY_ERROR_CLASS.get(known, FailureClass.COUNTS)
    # The SDK wraps the error of a message that cannot be encoded, or of a credential that fails, in its base class.
    cause = getattr(error, "inner_exception", None) if type(error) is ServiceBusError else None
    for kind, failure_class in BY_SDK_ERROR:
        if isinstance(error, kind) or isinstance(cause, kind):
            return failure_class
    return FailureClass.COUNTS


def may_have_arrived(error: Exception) -> bool:
    """Whether the primary may have stored a message although its send ended with this error.

    If so, the copy in the backlog is a possible duplicate. The service answers a send that it refuses with a condition:
    then it has not stored the message. Without a condition (timeout, lost connection) the outcome is unknown (D10).

    Some conditions do not say that this message was refused: those the table does not know, those about a lock or a
    moved partition (`Waits` itself, `LockLost`), and a link that another client has taken over. The sender counts such
    a message: a possible duplicate too many does no harm, one too few hides a real duplicate from the operator.
    """
    condition = condition_of(error) or ""
    return condition == LINK_STOLEN or CONDITIONS.get(condition) in (None, Waits, LockLost)


LINK_STOLEN = "amqp:link:stolen"
"""The table gives it the same class as a forced detach. But a forced detach is the service's answer to the send."""
