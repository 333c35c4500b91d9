"""The aliases of a backlog message: application properties that keep what the message cannot have in the backlog (M1).

A backlog queue has no sessions and must keep a message however long the outage lasts. So the sender's failover moves
session id, time to live and scheduled time into application properties, and adds the path of the entity the message was
meant for. `aliasing` does that; `restoring` is the exact inverse (M2).
"""

from __future__ import annotations

from typing import Final, TypeGuard

from syphon.amqp import Described, Symbol, Value

from .section_edit import keys

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_TIME: Final = "x-ms-scheduledenqueuetimeutc"
ALIASES = keys((PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_TIME))

PATH_LIMIT = 260
"""How many characters the path of an entity may have."""

SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
ENQUEUED_TIME: Final = "x-opt-enqueued-time"
LOCKED_UNTIL: Final = "x-opt-locked-until"
SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
NOT_CARRIED = keys(
    (
        SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        "x-opt-enqueue-sequence-number",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        # Not the broker's, but its time has passed in the backlog: the sender's own value is in its alias.
        SCHEDULED,
    )
)
"""Annotations that belong to the queue and are not sent to the destination."""

# Fields of the header, and of the properties.
PRIORITY, TTL = 1, 2
EXPIRY, CREATION, GROUP_ID = 8, 9, 10


def is_string(value: Value) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Symbol)


def shown(value: Value) -> str:
    """A value for people: its type, and its first characters."""
    text = _typed(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _typed(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, Described):
        name = value.descriptor
        # The name only if it is printable: the text goes into logs and terminals.
        return f"{name if isinstance(name, str) and name.isprintable() else repr(name)} {_typed(value.value)}"
    return f"{_KINDS.get(type(value)) or type(value).__name__.lower()} {value!r}"


_SHOWN = 120
_KINDS: dict[type, str] = {str: "string", bytes: "binary", float: "double", bool: "boolean"}
