"""The properties of a message as rules read them, and the values that rules write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property

from syphon.amqp import Described, Long, Message, Properties, Symbol, Timestamp, ULong, Value
from syphon.sql import of_section, plain, utc

from ..clock import FOREVER
from .message import BrokeredMessage


class MessageProperties:
    """System and application properties of one message, decoded at the first use."""

    def __init__(self, message: BrokeredMessage) -> None:
        self._message = message

    @cached_property
    def _system(self) -> dict[str, object]:
        properties: Properties = Message(self._message.bare).properties()
        message = self._message
        return of_section(properties) | {
            "timetolive": timedelta(milliseconds=message.ttl) if message.ttl < FOREVER else None,
            "enqueuedtimeutc": utc(message.enqueued_at),
            "sequencenumber": message.sequence,
            "deliverycount": message.delivery_count,
            "partitionkey": message.partition_key,
            "scheduledenqueuetimeutc": utc(message.due) if message.due else None,
        }

    @cached_property
    def _user(self) -> dict[str, object]:
        pairs = self._message.application_properties()
        return {key.lower(): plain(value) for key, value in pairs if isinstance(key, str)}

    def system(self, name: str) -> object | None:
        return self._system.get(name)

    def user(self, name: str) -> object | None:
        return self._user.get(name.lower())

    def has_user(self, name: str) -> bool:
        return name.lower() in self._user


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def amqp_value(value: object) -> Value:
    """The AMQP value for the result of an expression. A number without an AMQP type of its own becomes a long."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return Timestamp((moment - _EPOCH) // timedelta(milliseconds=1))
    if isinstance(value, timedelta):
        return Described(Symbol("com.microsoft:timespan"), Long(value // timedelta(microseconds=1) * 10))
    if type(value) is int:
        return Long(value) if value < 2**63 else ULong(value)
    return value  # type: ignore[return-value]  # all other values of expressions came from AMQP or are strings and floats
