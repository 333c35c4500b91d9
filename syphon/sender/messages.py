"""What an application hands to a sender, made ready to be sent more than once: to the primary, and to the backlog."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from syphon.bus import payloads_of

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
Load: TypeAlias = Message | list[Any] | ServiceBusMessageBatch

NOT_CANCELLABLE = -1
"""The sequence number of a message that was scheduled by way of the backlog: it has none that could be cancelled."""

_SCHEDULED = b"x-opt-scheduled-enqueue-time"


def load_of(given: Any) -> Load:
    """What was given, so that it can be read twice and has the same message ids each time.

    A generator can be read once; and of a mapping the SDK makes a new message, with a new id, at each send.
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


def count_of(load: Load) -> int:
    return len(load) if isinstance(load, list | ServiceBusMessageBatch) else 1


def encoded(load: Load) -> list[bytes]:
    """The load as the primary would have been sent it."""
    return payloads_of(load if isinstance(load, list | ServiceBusMessageBatch) else [load])


def scheduled(load: Load, when: datetime) -> list[Any]:
    """Copies of the messages, due then. (The SDK would write the time onto the caller's own.)"""
    if isinstance(load, ServiceBusMessageBatch):
        raise TypeError("A batch cannot be scheduled: schedule a list of messages.")
    copies = []
    for message in load if isinstance(load, list) else [load]:
        message = copy.deepcopy(message)
        annotated = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
        annotated.annotations = {**(annotated.annotations or {}), _SCHEDULED: when}
        copies.append(message)
    return copies


PING_TYPE = "application/vnd.ms-servicebus-ping"


def ping() -> ServiceBusMessage:
    """What asks an entity whether it is there (F5). No receiver ever sees it; session entities want a session id."""
    second = timedelta(seconds=1)
    return ServiceBusMessage(b"", content_type=PING_TYPE, time_to_live=second, session_id=str(uuid.uuid4()))


def check_cancellable(numbers: int | list[int]) -> None:
    """Raises ValueError for a message that went by way of the backlog."""
    if NOT_CANCELLABLE in (numbers if isinstance(numbers, list) else [numbers]):
        raise ValueError(
            "The message was scheduled by way of the backlog and cannot be cancelled: it has no number at the primary. "
            "Cancel it there once the syphon has carried it home."
        )
