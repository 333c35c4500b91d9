"""AMQP values as the Python values that filters compare."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from syphon.amqp import Char, Described, Properties, Timestamp, Value


def plain(value: Value) -> object:
    """Converts an AMQP value to the Python value that filters compare: times and durations in particular."""
    try:
        if isinstance(value, Timestamp):
            return utc(int(value))
        if isinstance(value, Described):
            return _of_dotnet(value)
    except (OverflowError, ValueError, OSError):
        return None
    return chr(value) if isinstance(value, Char) and value < 0x110000 else value


def utc(millis: int) -> datetime:
    """A time in milliseconds since 1970."""
    return datetime.fromtimestamp(millis / 1000, UTC)


def _of_dotnet(described: Described) -> object:
    """Converts types that .NET has and AMQP lacks. A filter cannot compare other described values."""
    kind, value = described.descriptor, described.value
    if kind == "com.microsoft:timespan" and isinstance(value, int):
        return timedelta(microseconds=value // 10)
    if kind == "com.microsoft:datetime-offset" and isinstance(value, int):
        return datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=value // 10)
    if kind == "com.microsoft:uri" and isinstance(value, str):
        return value
    return None


def of_section(properties: Properties) -> dict[str, object]:
    """The system properties that are fields of the properties section."""
    return {
        "messageid": _text(properties.message_id),
        "correlationid": _text(properties.correlation_id),
        "to": properties.to,
        "replyto": properties.reply_to,
        "label": properties.subject,
        "sessionid": properties.group_id,
        "replytosessionid": properties.reply_to_group_id,
        "contenttype": properties.content_type,
    }


def _text(value: Value) -> object:
    return value if value is None or isinstance(value, str) else str(value)
