"""What a subscription's rule asks of a message.

A filter is a value: it is made once, refuses at that moment what it cannot mean, and then answers yes or no for any
number of messages without touching them. It sees a message only through `Properties`, so that it knows nothing of how
one is stored. The filters are our own because Service Bus's semantics are its own: see `sql` for the language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .sql import Condition, compare, parse


class FilterableProperties(Protocol):
    """The properties of one message."""

    def system(self, name: str) -> object | None:
        """The value of a system property, by its name in lower case: `messageid`, `label` and so on."""

    def user(self, name: str) -> object | None:
        """The value of an application property, `None` if there is none or it is null."""

    def has_user(self, name: str) -> bool:
        """If there is an application property of that name, null or not."""


@dataclass(frozen=True)
class TrueFilter:
    """Every message."""

    def matches(self, properties: FilterableProperties) -> bool:  # noqa: ARG002 - whatever they are
        return True


@dataclass(frozen=True)
class FalseFilter:
    """No message."""

    def matches(self, properties: FilterableProperties) -> bool:  # noqa: ARG002 - whatever they are
        return False


@dataclass(frozen=True)
class CorrelationFilter:
    """Messages that have all of these values. What is `None` is not asked for."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)

    def matches(self, properties: FilterableProperties) -> bool:
        wanted = {
            "correlationid": self.correlation_id,
            "messageid": self.message_id,
            "to": self.to,
            "replyto": self.reply_to,
            "label": self.label,
            "sessionid": self.session_id,
            "replytosessionid": self.reply_to_session_id,
            "contenttype": self.content_type,
        }
        return all(
            value is None or compare("=", properties.system(name), value) is True for name, value in wanted.items()
        ) and all(compare("=", properties.user(name), value) is True for name, value in self.properties.items())


@dataclass(frozen=True)
class SqlFilter:
    """Messages for which an SQL expression is true: neither false nor unknown."""

    expression: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    _condition: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen dataclass offers no other way to keep what was computed from its fields.
        object.__setattr__(self, "_condition", parse(self.expression, self.parameters))

    def matches(self, properties: FilterableProperties) -> bool:
        return self._condition.holds(properties) is True


Filter = TrueFilter | FalseFilter | CorrelationFilter | SqlFilter
