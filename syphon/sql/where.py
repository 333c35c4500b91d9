"""`--where`: a filter over messages as they lie in a queue (D23)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, reduce

from syphon.amqp import Header, Malformed, Map, Message, Section, Value, decode

from .expressions import Condition
from .language import MESSAGES
from .parser import parse
from .plain_values import of_section, plain

LARGEST_BODY = 256 * 1024
"""A larger body is not read: its values are unknown. A filter runs for every message, and JSON takes time."""
_ANNOTATIONS = {
    "enqueuedtimeutc": "x-opt-enqueued-time",
    "sequencenumber": "x-opt-sequence-number",
    "partitionkey": "x-opt-partition-key",
    "scheduledenqueuetimeutc": "x-opt-scheduled-enqueue-time",
    "deadlettersource": "x-opt-deadletter-source",
}
_APPLICATION = {"deadletterreason": "DeadLetterReason", "deadlettererrordescription": "DeadLetterErrorDescription"}
"""The system properties that Service Bus writes as application properties."""


@dataclass(frozen=True)
class Where:
    """Selects the messages for which an SQL expression is true (neither false nor unknown).

    Raises BadExpression, which names the character. Executors parse the expression again: only its text travels.
    """

    expression: str
    _condition: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen dataclass has no other way to store a value that is computed from its fields.
        object.__setattr__(self, "_condition", parse(self.expression, {}, language=MESSAGES))

    def __reduce__(self) -> tuple[type[Where], tuple[str]]:
        return Where, (self.expression,)

    def holds(self, payload: bytes) -> bool:
        """Whether the filter selects a message. Never raises: it selects none that cannot be read."""
        try:
            return self._condition.holds(QueuedMessage(payload)) is True
        except Malformed:
            return False


class QueuedMessage:
    """The properties and the body of a message that was received or peeked, each decoded at its first use."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload

    @cached_property
    def _message(self) -> Message:
        return Message(self._payload)

    @cached_property
    def _header(self) -> Header:
        return self._message.header()

    @cached_property
    def _annotations(self) -> Map:
        return self._message.annotations()

    @cached_property
    def _properties(self) -> dict[str, object]:
        return of_section(self._message.properties())

    @cached_property
    def _user(self) -> dict[str, object]:
        return {
            key.lower(): plain(value) for key, value in self._message.application_properties() if isinstance(key, str)
        }

    @cached_property
    def _body(self) -> object:
        message = self._message
        if len(message.bare()) > LARGEST_BODY:
            return None
        parts: list[Value] = [
            decode(message.data, span.value, span.end)[0]
            for span in message.spans
            if span.section in (Section.DATA, Section.VALUE)
        ]
        try:
            if all(isinstance(part, bytes) for part in parts):
                return json.loads(b"".join(part for part in parts if isinstance(part, bytes)))
            return json.loads(parts[0]) if isinstance(parts[0], str) else None
        except (ValueError, RecursionError):
            return None  # it is not JSON

    def system(self, name: str) -> object | None:
        if name in _ANNOTATIONS:
            return plain(self._annotations.get(_ANNOTATIONS[name]))
        if name in _APPLICATION:
            return self.user(_APPLICATION[name])
        if name == "timetolive":
            ttl = self._header.ttl
            return timedelta(milliseconds=ttl) if isinstance(ttl, int) else None
        if name == "deliverycount":
            return self._header.delivery_count or 0
        return self._properties[name]

    def user(self, name: str) -> object | None:
        return self._user.get(name.lower())

    def has_user(self, name: str) -> bool:
        return name.lower() in self._user

    def body(self, names: Sequence[str]) -> object | None:
        return reduce(lambda value, name: value.get(name) if isinstance(value, dict) else None, names, self._body)
