"""The calls of a paired sender, one class for each, the same for the sync API and the asyncio API.

A call knows what to ask of the SDK's sender for the primary, and which flow handles a failure. The two sender classes
of the SDK have the same methods, and those for asyncio return an awaitable. So a call does not need to know which of
the two it uses: the API that runs it takes the result or awaits it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from typing import Any, Generic, TypeVar

from azure.servicebus import ServiceBusMessageBatch

from .messages import NOT_CANCELLABLE, check_cancellable, count_of, encode, prepare, scheduled_copies
from .send_flow import SendFlow, Steps
from .timeouts import Deadline

T = TypeVar("T")


class SenderCall(ABC, Generic[T]):
    """What the application asks a paired sender for."""

    count = 0
    """How many messages the call sends now. If it sends some, a healthy entity gets them without a flow
    (`SendFlow.can_skip_steps`)."""

    @abstractmethod
    def use_primary(self, sender: Any, timeout: float) -> Any:
        """Does the call with the SDK's sender for the primary."""

    @abstractmethod
    def steps(self, flow: SendFlow, deadline: Deadline, first_failure: Exception | None) -> Steps[T]:
        """The steps of the call."""


class SendMessages(SenderCall[None]):
    """`send_messages`."""

    def __init__(self, message: Any) -> None:
        self.messages = prepare(message)
        self.count = count_of(self.messages)

    def use_primary(self, sender: Any, timeout: float) -> Any:
        return sender.send_messages(self.messages, timeout=timeout)

    def steps(self, flow: SendFlow, deadline: Deadline, first_failure: Exception | None) -> Steps[None]:
        return flow.send(lambda: encode(self.messages), self.count, deadline, first_failure)


class ScheduleMessages(SenderCall[list[int]]):
    """`schedule_messages`."""

    def __init__(self, messages: Any, when: datetime) -> None:
        self.copies = scheduled_copies(prepare(messages), when)
        self.when = when

    def use_primary(self, sender: Any, timeout: float) -> Any:
        return sender.schedule_messages(self.copies, self.when, timeout=timeout)

    def steps(self, flow: SendFlow, deadline: Deadline, first_failure: Exception | None) -> Steps[list[int]]:
        numbers = [NOT_CANCELLABLE] * len(self.copies)
        return flow.send(lambda: encode(self.copies), len(self.copies), deadline, first_failure, numbers)


class CancelMessages(SenderCall[None]):
    """`cancel_scheduled_messages`."""

    def __init__(self, sequence_numbers: int | list[int]) -> None:
        check_cancellable(sequence_numbers)
        self.sequence_numbers = sequence_numbers

    def use_primary(self, sender: Any, timeout: float) -> Any:
        return sender.cancel_scheduled_messages(self.sequence_numbers, timeout=timeout)

    def steps(self, flow: SendFlow, deadline: Deadline, first_failure: Exception | None) -> Steps[None]:  # noqa: ARG002
        return flow.use_primary_only(deadline)


class CreateBatch(SenderCall[ServiceBusMessageBatch]):
    """`create_message_batch`."""

    def __init__(self, max_size_in_bytes: int | None) -> None:
        self.max_size_in_bytes = max_size_in_bytes

    def use_primary(self, sender: Any, timeout: float) -> Any:  # noqa: ARG002  the SDK has no timeout for it
        return sender.create_message_batch(self.max_size_in_bytes)

    def steps(
        self,
        flow: SendFlow,
        deadline: Deadline,
        first_failure: Exception | None,  # noqa: ARG002
    ) -> Steps[ServiceBusMessageBatch]:
        return flow.create_batch(deadline)
