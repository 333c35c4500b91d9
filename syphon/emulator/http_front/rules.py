"""Reads and writes subscription rules as XML: filters, values and their types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

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
from .iso_times import read_instant, read_timedelta, write_datetime, write_instant, write_timedelta
from .xml_elements import (
    CONNECT,
    INSTANCE,
    SCHEMA,
    SERIALIZATION,
    Element,
    connect,
    element,
    kind_of,
    text,
    texts,
    typed,
)

_CORRELATION = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "label",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
_INTEGERS = frozenset({"byte", "unsignedByte", "short", "unsignedShort", "int", "unsignedInt", "long", "unsignedLong"})
_PREPROCESSING = "RequiresPreprocessing"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


def read_rule(name: str, given: Element) -> RuleDescription:
    """Reads the rule in a `RuleDescription` or `DefaultRuleDescription` element."""
    condition = given.find(connect("Filter"))
    return RuleDescription(name, TrueFilter() if condition is None else _read_filter(condition), _read_action(given))


def _read_action(given: Element) -> SqlAction | None:
    action = given.find(connect("Action"))
    if action is None or kind_of(action) in {"", "EmptyRuleAction"}:
        return None
    if kind_of(action) != "SqlRuleAction":
        raise BadArgument(
            f"SubCode=40000. '{kind_of(action)}' is not a kind of action: give SqlRuleAction or EmptyRuleAction as the "
            "type of Action."
        )
    return SqlAction(*_read_sql(action))


def _read_sql(given: Element) -> tuple[str, dict[str, object], bool]:
    values = texts(given)
    parameters = _read_values(given.find(connect("Parameters")))
    return values.get("SqlExpression", ""), parameters, _FLAGS.get(values.get(_PREPROCESSING, ""), False)


def _read_filter(given: Element) -> Filter:
    match kind_of(given):
        case "TrueFilter":
            return TrueFilter()
        case "FalseFilter":
            return FalseFilter()
        case "SqlFilter":
            return SqlFilter(*_read_sql(given))
        case "CorrelationFilter":
            asked = texts(given)
            return CorrelationFilter(
                **{field: asked[name] for name, field in _CORRELATION.items() if name in asked},
                properties=_read_values(given.find(connect("Properties"))),
            )
        case other:
            raise BadArgument(
                f"SubCode=40000. '{other}' is not a kind of filter: give SqlFilter, CorrelationFilter, TrueFilter or "
                "FalseFilter as the type of Filter."
            )


def _read_values(given: Element | None) -> dict[str, object]:
    found: dict[str, object] = {}
    for pair in [] if given is None else given:
        key, value = pair.find(connect("Key")), pair.find(connect("Value"))
        if key is None or value is None or not key.text:
            raise BadArgument("SubCode=40000. A property or parameter of the rule lacks its Key or its Value.")
        found[key.text] = _read_value(key.text, kind_of(value), value.text or "")
    return found


def _read_value(key: str, kind: str, given: str) -> object:
    try:
        match kind:
            case "string" | "char" | "":
                return given
            case "boolean":
                return _FLAGS[given]
            case "double" | "float" | "decimal":
                return float(given)
            case "dateTime":
                return read_instant(given)
            case "duration":
                return read_timedelta(given)
            case "guid":
                return UUID(given)
            case _ if kind in _INTEGERS and re.fullmatch(r"[+-]?[0-9]{1,20}", given):
                return int(given)
    except (BadArgument, KeyError, ValueError):
        pass
    raise BadArgument(f"SubCode=40000. The value '{given[:100]}' of '{key}' in the rule is not a valid '{kind}'.")


def rule_element(rule: RuleDescription, created_at: Millis, given: Element | None = None) -> Element:
    """Writes a rule: as it is kept or, with `given`, as the answer to a PUT of that description."""
    return element(
        "RuleDescription",
        _filter_element(rule.filter, given),
        _action_element(rule.action, given),
        text("CreatedAt", write_instant(created_at)),
        text("Name", rule.name),
        **{"xmlns": CONNECT, "xmlns:i": INSTANCE},
    )


def _action_element(action: SqlAction | None, given: Element | None) -> Element:
    if action is None:
        return typed("Action", "EmptyRuleAction")
    return _sql_element("Action", "SqlRuleAction", action, given)


def _filter_element(condition: Filter, given: Element | None) -> Element:
    match condition:
        case TrueFilter():
            return typed("Filter", "TrueFilter", text("SqlExpression", "1=1"), _compatibility())
        case FalseFilter():
            return typed("Filter", "FalseFilter", text("SqlExpression", "1=0"), _compatibility())
        case SqlFilter():
            return _sql_element("Filter", "SqlFilter", condition, given)
        case CorrelationFilter():
            asked = {name: getattr(condition, field) for name, field in _CORRELATION.items()}
            return typed(
                "Filter",
                "CorrelationFilter",
                *(text(name, value) for name, value in asked.items() if value is not None),
                _values_element("Properties", condition.properties),
            )


def _sql_element(name: str, kind: str, sql: SqlFilter | SqlAction, given: Element | None) -> Element:
    # A rule that is read has an element for parameters, empty or not. The answer to a PUT has an empty one only if
    # the client wrote one.
    has_empty = given is None or given.find(f"{connect(name)}/{connect('Parameters')}") is not None
    return typed(
        name,
        kind,
        text("SqlExpression", sql.expression),
        _compatibility(),
        _values_element("Parameters", sql.parameters),
        text(_PREPROCESSING, "true") if sql.requires_preprocessing else None,
        element("Parameters") if has_empty and not sql.parameters else None,
    )


def _compatibility() -> Element:
    return text("CompatibilityLevel", "20")


def _values_element(name: str, values: Mapping[str, object]) -> Element | None:
    """The values of a rule, or nothing if there are none."""
    pairs = [
        element("KeyValueOfstringanyType", text("Key", key), _value_element(value)) for key, value in values.items()
    ]
    return element(name, *pairs) if pairs else None


def _value_element(value: object) -> Element:
    namespace = SCHEMA
    match value:
        case bool():
            kind, written = "boolean", str(value).lower()
        case int():
            kind, written = "int" if -(2**31) <= value < 2**31 else "long", str(value)
        case float():
            kind, written = "double", repr(value)
        case datetime():
            kind, written = "dateTime", write_datetime(value)
        case timedelta():
            kind, written, namespace = "duration", write_timedelta(value), SERIALIZATION
        case UUID():
            kind, written, namespace = "guid", str(value), SERIALIZATION
        case _:
            kind, written = "string", str(value)
    return element("Value", text=written, **{"i:type": f"d6p1:{kind}", "xmlns:d6p1": namespace})
