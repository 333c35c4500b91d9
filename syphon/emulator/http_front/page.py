"""The page of a namespace at `/`, and what it shows: entities with their counts, and messages.

The page is one file without other resources. It gets everything as JSON and writes it as text, so that nothing in a
message can become a part of the page.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web

from syphon.amqp import Described, Malformed, Message, Section, Span, Symbol, Timestamp, Value, decode

from ..broker import BrokeredMessage, BrokerNamespace, Unauthorized
from ..clock import FOREVER, Millis
from .requests import hostname

LONGEST_BODY = 4096
"""The bytes of a body that are shown."""
_BODIES = (Section.DATA, Section.SEQUENCE, Section.VALUE)


def page(request: web.Request) -> web.Response:
    check_host(request)
    text, policy = _page()
    headers = {
        "Cache-Control": "no-store",
        "Content-Security-Policy": policy,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=text, content_type="text/html", headers=headers)


@cache
def _page() -> tuple[str, str]:
    """The page, and the policy that allows its own script and style and nothing else."""
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    script, style = (
        base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        for tag in ("script", "style")
        for inner in re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    )
    return text, (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def check_host(request: web.Request) -> None:
    """Refuses a name that a web site may have: it could point that name here, and read as a page of its own."""
    name = hostname(request.host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if "." in name and not name.endswith(".localhost"):
            raise Unauthorized(
                f"'{name}' could be the name of a web site: use the address, or a name without dots.", status=403
            ) from None


# --- entities --------------------------------------------------------------------------------------------------------


def entities(namespace: BrokerNamespace) -> Iterator[dict[str, Any]]:
    """The queues, topics and subscriptions, each subscription after its topic."""
    for queue in namespace.queues():
        yield _entity(namespace, queue.path, "queue")
    for topic in namespace.topics():
        yield _entity(namespace, topic.path, "topic")
        for subscription in namespace.subscriptions(topic.name):
            yield _entity(namespace, subscription.path, "subscription")


def _entity(namespace: BrokerNamespace, path: str, kind: str) -> dict[str, Any]:
    runtime, description = namespace.runtime(path), namespace.describe(path)
    return {
        "path": path,
        "kind": kind,
        "status": description.status.value,
        "sessions": getattr(description, "requires_session", False),
        "active": runtime.active,
        "scheduled": runtime.scheduled,
        "dead_letters": runtime.dead_letter,
        "transfer_dead_letters": runtime.transfer_dead_letter,
        "bytes": runtime.size_in_bytes,
    }


# --- messages --------------------------------------------------------------------------------------------------------


def shown(message: BrokeredMessage, now: Millis) -> dict[str, Any]:
    """A message as JSON. Values are `[type, text]`: JSON has fewer types than AMQP."""
    known: dict[str, Any] = {
        "sequence_number": message.sequence,
        "state": "locked"
        if message.lock_token is not None and message.locked_until > now
        else message.state.name.lower(),
        "enqueued": iso(message.enqueued_at),
        "expires": iso(message.expires_at) if message.expires_at < FOREVER else None,
        "scheduled": iso(message.due) if message.due else None,
        "locked_until": iso(message.locked_until) if message.lock_token is not None else None,
        "delivery_count": message.delivery_count,
        "partition_key": message.partition_key,
        "dead_letter_source": message.dead_letter_source,
        "bytes": message.size,
    }
    try:
        source = Message(message.bare)
        properties = source.properties()
        fields = {name: getattr(properties, name) for name in properties.__slots__}
        return {
            **known,
            "properties": {name: _value(value) for name, value in fields.items() if value is not None},
            "application_properties": [
                [_value(key)[1], *_value(value)] for key, value in source.application_properties()
            ],
            "body": _body(source),
        }
    except (Malformed, ValueError) as error:
        return {**known, "properties": {}, "application_properties": [], "body": ["unreadable", str(error), False]}


def _body(source: Message) -> list[Any]:
    """The kind of the body, its text, and whether there is more of it."""
    spans = [span for span in source.spans if span.section in _BODIES]
    if not spans:
        return ["empty", "", False]
    if spans[0].section != Section.DATA:
        kind, text = _value(_decoded(source, spans[0]))
        return [kind, text[:LONGEST_BODY], len(text) > LONGEST_BODY or len(spans) > 1]
    data = b"".join(bytes(_decoded(source, span)) for span in spans)  # type: ignore[arg-type]  # a data section is binary
    part = data[:LONGEST_BODY]
    try:
        return ["text", part.decode(), len(data) > LONGEST_BODY]
    except UnicodeDecodeError as error:
        if len(data) > LONGEST_BODY and error.start > LONGEST_BODY - 4:  # a character that is cut in two
            return ["text", part[: error.start].decode(), True]
        return ["binary", part.hex(" "), len(data) > LONGEST_BODY]


def _decoded(source: Message, span: Span) -> Value:
    return decode(source.data, span.value, span.end)[0]


def _value(value: Value) -> list[str]:
    """The type and the text of a value."""
    if isinstance(value, Timestamp):
        return ["timestamp", iso(int(value))]
    if isinstance(value, Described):
        return [str(value.descriptor), _value(value.value)[1]]
    if isinstance(value, bytes):
        return [_TYPES.get(type(value), type(value).__name__.lower()), value.hex(" ")]
    if isinstance(value, bool):
        return ["boolean", str(value).lower()]
    return [_TYPES.get(type(value), type(value).__name__.lower()), str(value)]


_TYPES: dict[type, str] = {str: "string", bytes: "binary", float: "double", type(None): "null", Symbol: "symbol"}


def iso(at: Millis) -> str:
    try:
        return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return f"{at} ms"
