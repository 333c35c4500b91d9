"""Rules over AMQP: the management node reads them as maps and writes them as described lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from syphon.amqp import Described, Int, Long, Map, Symbol, Timestamp, ULong, Value
from syphon.sql import plain

from ..broker import (
    BadArgument,
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SqlAction,
    SqlFilter,
    TrueFilter,
)
from ..clock import Millis

_RULE, _NO_ACTION, _SQL_ACTION = ULong(0x13700000004), ULong(0x13700000005), ULong(0x13700000006)
_SQL, _TRUE, _FALSE, _CORRELATION = (ULong(0x1370000000 | code) for code in (6, 7, 8, 9))
_CORRELATION_FIELDS = (
    "correlation-id",
    "message-id",
    "to",
    "reply-to",
    "label",
    "session-id",
    "reply-to-session-id",
    "content-type",
)


def read_rule(name: str, body: Map) -> RuleDescription:
    """Reads a rule from the body of an add-rule request."""
    action = body.get("sql-rule-action")
    expression = action.get("expression") if isinstance(action, Map) else None
    if not isinstance(expression, str | None):
        raise BadArgument(f"The rule '{name}' has an action whose expression is no string.")
    return RuleDescription(name, _filter(name, body), SqlAction(expression) if expression else None)


def _filter(name: str, body: Map) -> Filter:
    sql = body.get("sql-filter")
    if isinstance(sql, Map):
        expression = sql.get("expression")
        if not isinstance(expression, str):
            raise BadArgument(f"The rule '{name}' has a SQL filter without an expression.")
        return SqlFilter(expression)
    correlation = body.get("correlation-filter")
    if isinstance(correlation, Map):
        wanted = correlation.get("properties")
        fields = {field.replace("-", "_"): correlation.get(field) for field in _CORRELATION_FIELDS}
        properties = {str(key): plain(value) for key, value in wanted} if isinstance(wanted, Map) else {}
        return CorrelationFilter(
            **{key: str(value) for key, value in fields.items() if value is not None}, properties=properties
        )
    if "true-filter" in body:
        return TrueFilter()
    if "false-filter" in body:
        return FalseFilter()
    raise BadArgument(f"The rule '{name}' has no filter that is known: sql-filter or correlation-filter.")


def described_rule(rule: RuleDescription, created_at: Millis) -> Described:
    """Encodes a rule for enumerate-rules: filter, action, name, creation time."""
    action = Described(_NO_ACTION, []) if rule.action is None else Described(_SQL_ACTION, [rule.action.expression])
    return Described(_RULE, [_described_filter(rule.filter), action, rule.name, Timestamp(created_at)])


def _described_filter(wanted: Filter) -> Described:
    if isinstance(wanted, TrueFilter):
        return Described(_TRUE, [])
    if isinstance(wanted, FalseFilter):
        return Described(_FALSE, [])
    if isinstance(wanted, SqlFilter):
        return Described(_SQL, [wanted.expression])
    fields: list[Value] = [getattr(wanted, name.replace("-", "_")) for name in _CORRELATION_FIELDS]
    properties = Map.of({name: _typed(value) for name, value in wanted.properties.items()})
    return Described(_CORRELATION, [*fields, properties])


def _typed(value: object) -> Value:
    """Converts a filter value, which may have come over HTTP, to an AMQP value."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        return Timestamp(round(moment.timestamp() * 1000))
    if isinstance(value, timedelta):
        return Described(Symbol("com.microsoft:timespan"), Long(value // timedelta(microseconds=1) * 10))
    if value is None or isinstance(value, bool | float | str | bytes | UUID):
        return value
    if isinstance(value, int):
        return Int(value) if -(2**31) <= value < 2**31 else Long(value) if value < 2**63 else ULong(value)
    return str(value)
