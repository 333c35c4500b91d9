"""The actions of subscription rules: they change the properties of a subscription's copy of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from syphon.amqp import Byte, Float, Int, Long, Short, UByte, UInt, ULong, UShort, Value
from syphon.sql import BadExpression, Statement, parse_action

from .message import NAME_LIMIT, BrokeredMessage
from .refusals import BadArgument
from .rule_properties import MessageProperties, amqp_value

_FIELDS: Mapping[str, str] = {
    "messageid": "message_id",
    "correlationid": "correlation_id",
    "to": "to",
    "replyto": "reply_to",
    "label": "subject",
    "sessionid": "group_id",
    "replytosessionid": "reply_to_group_id",
    "contenttype": "content_type",
}
"""The system properties that are fields of the properties section."""
_TIME_TO_LIVE = "timetolive"
AmqpInteger = UByte | UShort | UInt | ULong | Byte | Short | Int | Long
_SHORT = ("message_id", "group_id", "reply_to_group_id")
_RANGES: Mapping[type[AmqpInteger], tuple[int, int]] = {
    UByte: (0, 2**8 - 1),
    UShort: (0, 2**16 - 1),
    UInt: (0, 2**32 - 1),
    ULong: (0, 2**64 - 1),
    Byte: (-(2**7), 2**7 - 1),
    Short: (-(2**15), 2**15 - 1),
    Int: (-(2**31), 2**31 - 1),
    Long: (-(2**63), 2**63 - 1),
}


class ActionFailed(Exception):
    """A statement of an action has a value that its property cannot have."""


@dataclass(frozen=True)
class SqlAction:
    """Statements that set and remove properties, one after the other: each sees the changes of those before it."""

    expression: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    requires_preprocessing: bool = False  # the service keeps it, and does nothing with it
    _statements: list[Statement] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen dataclass has no other way to store a value that is computed from its fields.
        try:
            statements = parse_action(self.expression, self.parameters, (*_FIELDS, _TIME_TO_LIVE))
        except BadExpression as error:
            raise BadArgument(str(error)) from None
        object.__setattr__(self, "_statements", statements)

    def applied_to(self, message: BrokeredMessage) -> BrokeredMessage:
        """A copy of the message with the changes. Raises `ActionFailed` if one of them is not possible."""
        changed = message.copy()
        changed.hops = message.hops
        for statement in self._statements:
            value = statement.value.of(MessageProperties(changed)) if statement.value is not None else None
            if not statement.system:
                _change_user_property(changed, statement, value)
            elif statement.name == _TIME_TO_LIVE:
                changed.set_time_to_live(_as_time_to_live(value))
            else:
                name = _FIELDS[statement.name]
                changed.set_system_properties({name: _as_text(name, value)})
        changed.ensure_message_id()
        return changed


def _change_user_property(message: BrokeredMessage, statement: Statement, value: object) -> None:
    # Names ignore case, and a property that exists keeps its spelling.
    wanted = statement.name.lower()
    existing = {key: old for key, old in message.application_properties() if isinstance(key, str)}
    name = next((key for key in existing if key.lower() == wanted), statement.name)
    if statement.value is None:
        message.remove_properties({name})
    else:
        message.set_properties({name: _as_type_of(existing.get(name), amqp_value(value))})


def _as_type_of(old: Value, new: Value) -> Value:
    """Converts a number to the type of the number that it replaces, if that can hold it."""
    if isinstance(new, bool) or not isinstance(new, int | float):
        return new
    if isinstance(old, float):
        return Float(new) if isinstance(old, Float) else float(new)
    for kind, (lowest, highest) in _RANGES.items():
        if type(old) is kind and isinstance(new, int) and lowest <= new <= highest:
            return kind(new)
    return new


def _as_text(name: str, value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value)
    text = value if isinstance(value, str) else str(value)
    if name in _SHORT and len(text) > NAME_LIMIT:
        raise ActionFailed(f"{name.replace('_', '-')} would have {len(text)} characters, {NAME_LIMIT} at most")
    return text


def _as_time_to_live(value: object) -> timedelta | None:
    if value is None:
        return None
    if not isinstance(value, timedelta) or value <= timedelta():
        raise ActionFailed(f"a time to live is a duration above zero, not {value!r:.100}")
    return value
