"""The aliases of a backlog message: what it gives up to lie there is kept in properties of these names (M1).

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
        # Not the broker's, but it has been served in the backlog: the sender's own is in its alias.
        SCHEDULED,
    )
)
"""Annotations that a message leaves behind with the queue it was in."""

# Fields of the header, and of the properties.
PRIORITY, TTL = 1, 2
EXPIRY, CREATION, GROUP_ID = 8, 9, 10


def is_string(value: Value) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Symbol)


def shown(value: Value) -> str:
    """A value for people: its type, and enough of it to find it again."""
    text = _typed(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _typed(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, Described):
        name = value.descriptor
        # As it is called where that is harmless: what stands there goes into logs and terminals.
        return f"{name if isinstance(name, str) and name.isprintable() else repr(name)} {_typed(value.value)}"
    return f"{_KINDS.get(type(value)) or type(value).__name__.lower()} {value!r}"


_SHOWN = 120
_KINDS: dict[type, str] = {str: "string", bytes: "binary", float: "double", bool: "boolean"}
