"""Reads the trace context that the sender wrote into a message, to link spans to it. It is never changed.

Senders write it as `traceparent` (W3C), Azure's SDKs also as `Diagnostic-Id`: into the application properties, or into
the annotations. Only a context that the sender has recorded counts, because a link to another one leads nowhere.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from syphon.amqp import Malformed

from .section_edit import outline

_RECORDED = re.compile(
    rb"[\xa0\xa1\xa3](?:\x0btraceparent|\x0dDiagnostic-Id)[\xa0\xa1\xa3]."
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f][13579bdf]",
    re.DOTALL,
).search
"""Matches an encoded key and its value. It searches and does not parse, because some SDKs write the same key twice."""


class TraceContext(NamedTuple):
    """A span of another trace, by its ids in hexadecimal."""

    trace_id: str
    span_id: str


def trace_context(payload: bytes) -> TraceContext | None:
    """The span that sent a message, if it is recorded. Never raises."""
    try:
        found = _RECORDED(payload, 0, outline(payload).body)  # a body may hold anything
    except Malformed:
        return None
    return TraceContext(found[1].decode(), found[2].decode()) if found is not None else None
