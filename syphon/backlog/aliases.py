"""The aliases of a backlog message: application properties that keep what the message cannot have in the backlog (M1).

A backlog queue has no sessions and must keep a message however long the outage lasts. So the sender's failover moves
session id, time to live and scheduled time into application properties, and adds the path of the entity the message was
meant for. `aliasing` does that; `restoring` is the exact inverse (M2).

Two things about the sender's message cannot be seen in a backlog message, so the pair of `x-ms-path` notes them in its
form, which has no meaning in AMQP:
- Its key is in the long form: the message had no `durable` field. (Brokers write `durable=true` into each header.)
- It is the first pair: the application properties were in the long form although the short one would have sufficed.
  (Aliases push a short map into the long form, too.)
A message that another sender has put into the backlog has no such notes.
"""

from __future__ import annotations

from typing import Final, TypeGuard

from syphon.amqp import Described, Symbol, Value, encode

from .section_edit import keys, long_string

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_TIME: Final = "x-ms-scheduledenqueuetimeutc"
PATH_KEY, PATH_KEY_NO_DURABLE = encode(PATH), long_string(PATH)
ALIASES = keys((PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_TIME))

PATH_LIMIT = 260
"""How many characters the path of an entity may have."""

SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
ENQUEUED_TIME: Final = "x-opt-enqueued-time"
LOCKED_UNTIL: Final = "x-opt-locked-until"
SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
LOCK_TOKEN: Final = "x-opt-lock-token"  # noqa: S105  the key of a delivery annotation
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
DURABLE, PRIORITY, TTL = 0, 1, 2
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
