"""The messages of one call, prepared so that they can be sent twice: to the primary, and to the backlog."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from syphon.servicebus import PING_TYPE, payloads_of

Messages: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage | list[Any] | ServiceBusMessageBatch

NOT_CANCELLABLE = -1
"""The sequence number of a message that was scheduled by way of the backlog: there is nothing to cancel it by."""

_SCHEDULED = b"x-opt-scheduled-enqueue-time"


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
    return ServiceBusMessage(b"", content_type=PING_TYPE, time_to_live=second, session_id=str(uuid.uuid4()))


def check_cancellable(numbers: int | list[int]) -> None:
    """Raises ValueError for a message that was scheduled by way of the backlog."""
    if NOT_CANCELLABLE in (numbers if isinstance(numbers, list) else [numbers]):
        raise ValueError(
            "The message was scheduled by way of the backlog and cannot be cancelled: it has no number at the primary. "
            "Cancel it at the primary after the syphon has moved it there."
        )
