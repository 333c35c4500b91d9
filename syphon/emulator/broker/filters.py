"""The filters of subscription rules.

A filter is a value. Its constructor refuses an invalid filter; after that it answers yes or no for any number of
messages and does not change them. It sees a message only through `FilterableProperties`, so it does not depend on how
the message is stored. The filters are our own code because Service Bus has its own semantics: see `syphon.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syphon.sql import BadExpression, Condition, FilterableProperties, compare, parse

from .refusals import BadArgument


@dataclass(frozen=True)
class TrueFilter:
    """Matches every message."""

    def matches(self, properties: FilterableProperties) -> bool:  # noqa: ARG002  the answer does not depend on them
        return True


@dataclass(frozen=True)
class FalseFilter:
    """Matches no message."""

    def matches(self, properties: FilterableProperties) -> bool:  # noqa: ARG002  the answer does not depend on them
        return False


@dataclass(frozen=True)
class CorrelationFilter:
    """Matches messages that have all of these values. A value of `None` is not compared."""

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
    """Matches messages for which an SQL expression is true (neither false nor unknown)."""

    expression: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    requires_preprocessing: bool = False  # the service keeps it, and does nothing with it
    _condition: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen dataclass has no other way to store a value that is computed from its fields.
        try:
            object.__setattr__(self, "_condition", parse(self.expression, self.parameters))
        except BadExpression as error:
            raise BadArgument(str(error)) from None

    def matches(self, properties: FilterableProperties) -> bool:
        return self._condition.holds(properties) is True


Filter = TrueFilter | FalseFilter | CorrelationFilter | SqlFilter
