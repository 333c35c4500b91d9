"""What a sender may raise beyond what the SDK's raises. All of them are errors of the SDK's kind, too: an application
that catches `ServiceBusError` around its sends goes on doing so."""

from __future__ import annotations

from collections.abc import Mapping

from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from syphon.backlog import QueueName


class BothSidesFailed(ServiceBusError):
    """Neither the primary nor a backlog queue took the messages. Nothing is kept: send them again."""

    def __init__(
        self, entity: str, primary: Exception, backlog: Mapping[QueueName, Exception], left: int, count: int
    ) -> None:
        tries = [f"{queue}: {brief(error)}" for queue, error in backlog.items()]
        told = "; ".join(tries or ["no queue could be tried in time"])
        some = "" if left == count else f" The first {count - left} of {count} messages are in the backlog."
        super().__init__(
            f"'{entity}' could not be sent to. The primary failed: {brief(primary)}. The backlog failed: {told}.{some}"
        )
        self.primary = primary
        """Why the entity is failed over."""
        self.backlog = dict(backlog)
        """Why each backlog queue that was tried did not take the messages."""


class TooLargeForBacklog(MessageSizeExceededError):
    """The message fits its entity, but not a backlog queue, where it has its aliases to carry as well (M7)."""

    def __init__(self, entity: str, queue: str, size: int, limit: int) -> None:
        super().__init__(
            message=f"A message for '{entity}' has {size} bytes with what the backlog adds to it, {size - limit} more "
            f"than the {limit} that {queue} takes. '{entity}' is failed over: send a smaller message, or wait."
        )
        self.excess = size - limit


class UnfitForBacklog(ServiceBusError, ValueError):
    """The message cannot be put into a backlog queue, whatever its size."""


class SenderClosed(ServiceBusError, ValueError):
    """The sender or its pair was closed. Whether a message that was under way has arrived is not known."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def brief(error: BaseException) -> str:
    """An error in a line: the SDK's texts may run over several."""
    text = " ".join(str(error).split())[:300].rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
