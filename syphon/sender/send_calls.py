"""The calls of a paired sender, one class for each, the same for the sync API and the asyncio API.

A call prepares its messages so that they can be sent twice: to the primary, and to the backlog. It knows what to ask of
the SDK's sender for the primary, and which flow handles a failure. The two sender classes of the SDK have the same
methods, and those for asyncio return an awaitable. So a call does not need to know which of the two it uses: the API
that runs it takes the result or awaits it.
"""

from __future__ import annotations

import copy
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from syphon import servicebus
from syphon.servicebus import payloads_of

from .send_flow import Deadline, SendFlow, Steps

T = TypeVar("T")
Messages: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage | list[Any] | ServiceBusMessageBatch

NOT_CANCELLABLE = -1
"""The sequence number of a message that was scheduled through the backlog: there is nothing to cancel it by."""

_SCHEDULED = b"x-opt-scheduled-enqueue-time"


class SenderCall(ABC, Generic[T]):
    """What the application asks a paired sender for."""

    count = 0
    """How many messages the call sends at once. If it sends some, a healthy entity gets them without a flow
    (`SendFlow.can_skip_steps`)."""

    @abstractmethod
    def use_primary(self, sender: Any, timeout: float) -> Any:
        """Does the call with the SDK's sender for the primary."""

    @abstractmethod
    def steps(self, flow: SendFlow, deadline: Deadline, begins_at_primary: bool = False) -> Steps[T]:
        """The steps of the call. `begins_at_primary`: see `SendFlow.send`."""


class SendMessages(SenderCall[None]):
    """`send_messages`."""

    def __init__(self, message: Any) -> None:
        self.messages = prepare(message)
        self.count = count_of(self.messages)

    def use_primary(self, sender: Any, timeout: float) -> Any:
        return sender.send_messages(self.messages, timeout=timeout)

    def steps(self, flow: SendFlow, deadline: Deadline, begins_at_primary: bool = False) -> Steps[None]:
        return flow.send(lambda: encode(self.messages), self.count, deadline, begins_at_primary=begins_at_primary)


class ScheduleMessages(SenderCall[list[int]]):
    """`schedule_messages`."""

    def __init__(self, messages: Any, when: datetime) -> None:
        self.copies = scheduled_copies(prepare(messages), when)
        self.when = when

    def use_primary(self, sender: Any, timeout: float) -> Any:
        return sender.schedule_messages(self.copies, self.when, timeout=timeout)

    def steps(self, flow: SendFlow, deadline: Deadline, begins_at_primary: bool = False) -> Steps[list[int]]:  # noqa: ARG002
        numbers = [NOT_CANCELLABLE] * len(self.copies)
        return flow.send(lambda: encode(self.copies), len(self.copies), deadline, backlog_result=numbers)


class CancelMessages(SenderCall[None]):
    """`cancel_scheduled_messages`."""

    def __init__(self, sequence_numbers: int | list[int]) -> None:
        check_cancellable(sequence_numbers)
        self.sequence_numbers = sequence_numbers

    def use_primary(self, sender: Any, timeout: float) -> Any:
        return sender.cancel_scheduled_messages(self.sequence_numbers, timeout=timeout)

    def steps(self, flow: SendFlow, deadline: Deadline, begins_at_primary: bool = False) -> Steps[None]:  # noqa: ARG002
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
        begins_at_primary: bool = False,  # noqa: ARG002
    ) -> Steps[ServiceBusMessageBatch]:
        return flow.create_batch(deadline)


# --- the messages of a call ------------------------------------------------------------------------------------------


def prepare(given: Any) -> Messages:
    """What the application gave, in a form that can be read twice and has the same message ids each time.

    A generator can be read only once. From a mapping the SDK makes a new message, with a new id, at each send.
    """
    if isinstance(given, ServiceBusMessage | ServiceBusMessageBatch | AmqpAnnotatedMessage):
        return given
    if isinstance(given, Mapping):
        return ServiceBusMessage(**given)
    if isinstance(given, Iterable):
        return [ServiceBusMessage(**item) if isinstance(item, Mapping) else item for item in given]
    raise TypeError(
        "Only messages (ServiceBusMessage, AmqpAnnotatedMessage or mappings), lists of them, and batches can be sent. "
        f"Received instead: {type(given).__name__}"
    )


def count_of(messages: Messages) -> int:
    return len(messages) if isinstance(messages, list | ServiceBusMessageBatch) else 1


def encode(messages: Messages) -> list[bytes]:
    """Each message as the bytes that the SDK would send to the primary."""
    return payloads_of(messages if isinstance(messages, list | ServiceBusMessageBatch) else [messages])


def scheduled_copies(messages: Messages, when: datetime) -> list[Any]:
    """Copies of the messages, due at `when`. (The SDK would write the time into the caller's own messages.)"""
    if isinstance(messages, ServiceBusMessageBatch):
        raise TypeError("A batch cannot be scheduled: schedule a list of messages.")
    copies = []
    for message in messages if isinstance(messages, list) else [messages]:
        message = copy.deepcopy(message)
        annotated = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
        annotated.annotations = {**(annotated.annotations or {}), _SCHEDULED: when}
        copies.append(message)
    return copies


def ping_message() -> ServiceBusMessage:
    """An empty message that shows whether an entity takes messages (F5).

    The service never delivers it to a receiver. It has a session id because an entity with sessions requires one.
    """
    second = timedelta(seconds=1)
    return ServiceBusMessage(b"", content_type=servicebus.PING_TYPE, time_to_live=second, session_id=str(uuid.uuid4()))


def check_cancellable(numbers: int | list[int]) -> None:
    """Raises ValueError for a message that was scheduled through the backlog."""
    if NOT_CANCELLABLE in (numbers if isinstance(numbers, list) else [numbers]):
        raise ValueError(
            "The message was scheduled through the backlog and cannot be cancelled: it has no number at the primary. "
            "Cancel it at the primary after the syphon has moved it there."
        )
