"""Aliases on and off: what a message gives up to lie in a backlog queue, and how it gets it back.

A backlog queue has no sessions and must keep a message however long the outage lasts. So the sender's failover moves
session id, time to live and scheduled time into application properties, and adds the path of the entity the message was
meant for (M1). `restore` is the exact inverse (M2).

Bytes in, bytes out: no clock, no I/O. Only what must change is cut out and put in; every other byte of the properties,
the application properties, the body and the footer is copied as it stands, whatever its type and however it is written.

What is left alone on purpose:
- The partition key. A backlog queue is not partitioned and ignores it; the destination needs it back as it was.
- Creation and expiry time, which SDKs write beside a time to live. They are the sender's, and part of the bare message.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple, TypeGuard

from syphon.amqp import Described, Malformed, Section, Span, Symbol, Timestamp, UInt, Value, decode, encode, split
from syphon.amqp.codec import compound
from syphon.errors import SyphonError

from .cutting import NULL, fields, keys, outline, take, value_at, with_fields, with_pairs
from .facts import Facts, Stamps, deliveries, stamps_from, usual_stamps
from .times import (
    A_MOMENT,
    A_TIMESPAN,
    EARLIEST,
    LATEST,
    LONGEST,
    Senseless,
    moment,
    timespan_at,
    timespan_bytes,
    whole_millis,
)

PATH: Final = "x-ms-path"
SESSION_ID: Final = "x-ms-sessionid"
TIME_TO_LIVE: Final = "x-ms-timetolive"
SCHEDULED_TIME: Final = "x-ms-scheduledenqueuetimeutc"

PATH_LIMIT = 260
"""How many characters the path of an entity may have."""

_ALIASES = keys((PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_TIME))
_KEY = {name: encode(name) for name in (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED_TIME)}

_SCHEDULED, _PARTITION = "x-opt-scheduled-enqueue-time", "x-opt-partition-key"
_SCHEDULED_KEY = encode(Symbol(_SCHEDULED))
_SCHEDULED_FORMS = keys((_SCHEDULED,))
_PARTITION_FORMS = keys((_PARTITION,))
_PARTITION_NAME = _PARTITION.encode()
NOT_CARRIED = keys((
    "x-opt-enqueued-time", "x-opt-locked-until", "x-opt-sequence-number", "x-opt-enqueue-sequence-number",
    "x-opt-message-state", "x-opt-deadletter-source",
    # Not the broker's, but it has been served in the backlog: the sender's own is in its alias.
    _SCHEDULED,
))  # fmt: skip
"""Annotations that a message leaves behind with the queue it was in."""

# Fields of the header, and of the properties.
_PRIORITY, _TTL = 1, 2
_EXPIRY, _CREATION, _GROUP_ID = 8, 9, 10

_UINT_MAX = 2**32 - 1
_LATEST_EXPIRY = 253_402_243_199_000
"""The latest expiry time that SDKs write: a day before the end of the year 9999."""


class NotForBacklog(SyphonError):
    """The message cannot be put into a backlog queue."""


class Ttl(StrEnum):
    """What becomes of a time to live on the way home (M5)."""

    RESTORE = "restore"
    """As it was: its clock starts again at the primary. The documented behaviour."""
    REMAINING = "remaining"
    """Less the time spent in the backlog; what has expired is not forwarded."""


class Reason(StrEnum):
    """Why a message cannot be restored: the DeadLetterReason of its dead letter."""

    NO_DESTINATION = "NoDestination"
    BAD_ALIAS = "BadAlias"
    EXPIRED = "Expired"
    MALFORMED = "MalformedMessage"


class Restored(NamedTuple):
    """A message as its sender made it, and what is needed to forward it."""

    payload: bytes
    destination: str
    message_id: Value
    session_id: str | None
    partition_key: str | None
    size: int
    facts: Facts
    """What the broker had written onto it."""


@dataclass(frozen=True, slots=True)
class Unrestorable:
    """A message for the dead letters (M4), with what to write there."""

    reason: Reason
    description: str


# --- on --------------------------------------------------------------------------------------------------------------


def to_backlog(payload: bytes, path: str) -> bytes:
    """The message as it goes into a backlog queue, meant for `path` (M1). Raises NotForBacklog."""
    if not path.strip() or len(path) > PATH_LIMIT:
        raise NotForBacklog(f"{_shown(path)} is no path of an entity: it has 1 to {PATH_LIMIT} characters")
    try:
        return _aliased(payload, path)
    except Malformed as error:
        raise NotForBacklog(f"the message is not well-formed AMQP 1.0: {error}") from None
    except Senseless as error:
        raise NotForBacklog(str(error)) from None


def _aliased(data: bytes, path: str) -> bytes:
    header, annotations, properties, application, body = outline(data)
    # What cannot be read now could not be restored later.
    _identity(data, properties), _annotated(data, annotations), deliveries(data, header)
    edits: list[tuple[int, int, bytes]] = []
    aliases: list[bytes] = []

    if header is not None and (raw := _field(data, header, _TTL)) is not None:
        ttl = decode(raw)[0]
        if not isinstance(ttl, UInt):
            raise Senseless(f"the time to live (header ttl) is {_shown(ttl)}, expected is a uint of milliseconds")
        aliases.append(_KEY[TIME_TO_LIVE] + timespan_bytes(ttl))
        edits.append((header.start, header.end, with_fields(data, header, Section.HEADER, {_TTL: NULL})))

    if annotations is not None:
        rest, count, found = take(data, annotations, _SCHEDULED_FORMS)
        for start, end in found.values():
            when = decode(data, start, end)[0]
            if when is not None:
                if not isinstance(when, Timestamp) or not EARLIEST <= when <= LATEST:
                    expected = "a timestamp between the years 1 and 9999"
                    raise Senseless(f"{_SCHEDULED} is {_shown(when)}, expected is {expected}")
                aliases.append(_KEY[SCHEDULED_TIME] + data[start:end])
            cleared = with_pairs(data, annotations, Section.MESSAGE_ANNOTATIONS, count, rest)
            edits.append((annotations.start, annotations.end, cleared))

    if properties is not None and (raw := _field(data, properties, _GROUP_ID)) is not None:
        session = decode(raw)[0]
        if not _is_string(session):
            raise Senseless(f"the session id (group-id) is {_shown(session)}, expected is a string")
        # The very bytes: a string has two forms, and restoring must give back the one it had.
        aliases.append(_KEY[SESSION_ID] + raw)
        cleared = with_fields(data, properties, Section.PROPERTIES, {_GROUP_ID: NULL})
        edits.append((properties.start, properties.end, cleared))

    rest, count, found = take(data, application, _ALIASES) if application is not None else (b"", 0, {})
    if found:
        names = ", ".join(found)
        raise NotForBacklog(f"the message comes from a backlog queue, for it has {names}: restore it before sending it")
    aliases.append(_KEY[PATH] + encode(path))
    pairs = rest + b"".join(aliases)
    added = with_pairs(data, application, Section.APPLICATION_PROPERTIES, count + len(aliases), pairs)
    edits.append((application.start, application.end, added) if application is not None else (body, body, added))

    parts: list[bytes] = []
    copied = 0
    for start, end, new in edits:
        parts += (data[copied:start], new)
        copied = end
    return b"".join((*parts, data[copied:]))


def _field(data: bytes, span: Span, index: int) -> bytes | None:
    """The bytes of one field of a list, None if it is not set."""
    starts = fields(data, span)
    if index + 1 >= len(starts):
        return None
    raw = data[starts[index] : starts[index + 1]]
    return None if raw == NULL else raw


# --- off -------------------------------------------------------------------------------------------------------------


class _Refused(Exception):
    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def restore(
    payload: bytes, *, enqueued_at: int | None, now: int, ttl: Ttl = Ttl.RESTORE
) -> Restored | Unrestorable:
    """The message as its sender made it (M2), or why that cannot be had (M4). Never raises.

    `now` and `enqueued_at` (when it came into the backlog) are milliseconds since 1970. Without `enqueued_at` the
    broker's own annotation counts; without that too, no time has been spent.
    """
    try:
        return _restored(payload, enqueued_at, now, ttl)
    except _Refused as refused:
        return Unrestorable(refused.reason, str(refused))
    except Malformed as error:
        return Unrestorable(Reason.MALFORMED, f"The message is not well-formed AMQP 1.0: {error}.")


def _restored(data: bytes, enqueued_at: int | None, now: int, rule: Ttl) -> Restored:
    header, annotations, properties, application, body = outline(data)
    pairs, count, aliases = take(data, application, _ALIASES) if application is not None else (b"", 0, {})
    destination = _destination(data, aliases)

    changes: dict[int, bytes] = {}
    message_id, session_id = _identity(data, properties)
    if SESSION_ID in aliases:
        start, end = aliases[SESSION_ID]
        session_id = _session_id(value_at(data, start, end))
        changes[_GROUP_ID] = data[start:end]  # the very bytes, see _aliased

    scheduled = None
    if SCHEDULED_TIME in aliases:
        scheduled = _scheduled(value_at(data, *aliases[SCHEDULED_TIME]))

    stamps, kept, kept_count, partition_key = _annotated(data, annotations)
    # One that has passed means now (M6), and the destination decides that: by its own clock, which ours may not be.
    if scheduled is not None and scheduled > EARLIEST:  # .NET's "none" is the year 1
        kept += _SCHEDULED_KEY + encode(Timestamp(scheduled))
        kept_count += 1

    ttl = None
    if TIME_TO_LIVE in aliases:
        ttl = _time_to_live(data, *aliases[TIME_TO_LIVE])
        if ttl is not None and rule is Ttl.REMAINING:
            ttl = _remaining(ttl, enqueued_at or stamps[1] or now, scheduled, now)
        if ttl is not None and ttl > _UINT_MAX:
            changes |= _long_life(data, properties, ttl, now)

    new_header, delivery_count = _header(data, header, ttl)
    payload = b"".join((
        new_header,
        with_pairs(data, annotations, Section.MESSAGE_ANNOTATIONS, kept_count, kept),
        with_fields(data, properties, Section.PROPERTIES, changes),
        with_pairs(data, application, Section.APPLICATION_PROPERTIES, count, pairs),
        data[body:],
    ))  # fmt: skip
    facts = Facts(*stamps, delivery_count)
    return Restored(payload, destination, message_id, session_id, partition_key, len(payload), facts)


def _identity(data: bytes, properties: Span | None) -> tuple[Value, str | None]:
    """The message id, and a session id that needs no alias: somebody put the message into the backlog by hand."""
    message_id: Value = None
    session_id: Value = None
    if properties is not None:
        starts = fields(data, properties)
        if len(starts) > 1:
            message_id = value_at(data, starts[0], starts[1])
        if len(starts) > _GROUP_ID + 1 and data[starts[_GROUP_ID]] != NULL[0]:
            session_id = value_at(data, starts[_GROUP_ID], starts[_GROUP_ID + 1])
    return message_id, session_id if isinstance(session_id, str) else None


def _destination(data: bytes, aliases: dict[str, tuple[int, int]]) -> str:
    if PATH not in aliases:
        raise _Refused(Reason.NO_DESTINATION, f"{PATH} is missing: nothing says where the message was meant to go.")
    path = value_at(data, *aliases[PATH])
    if not _is_string(path) or not path.strip() or len(path) > PATH_LIMIT:
        text = f"{PATH} is {_shown(path)}, expected is the path of an entity, a string of 1 to {PATH_LIMIT} characters."
        raise _Refused(Reason.NO_DESTINATION, text)
    return path


def _session_id(value: Value) -> str:
    if not _is_string(value):
        raise _Refused(Reason.BAD_ALIAS, f"{SESSION_ID} is {_shown(value)}, expected is a string.")
    return value


def _scheduled(value: Value) -> int:
    try:
        return moment(value)
    except Senseless as error:
        text = f"{SCHEDULED_TIME} is {_shown(value)}, which {error}; expected is {A_MOMENT}."
        raise _Refused(Reason.BAD_ALIAS, text) from None


def _time_to_live(data: bytes, start: int, end: int) -> int | None:
    """Milliseconds; None for .NET's "never"."""
    try:
        ticks = timespan_at(data, start, end)
    except Senseless as error:
        value = _shown(value_at(data, start, end))
        text = f"{TIME_TO_LIVE} is {value}, which {error}; expected is {A_TIMESPAN}."
        raise _Refused(Reason.BAD_ALIAS, text) from None
    return whole_millis(ticks) if ticks < LONGEST else None


def _remaining(ttl: int, enqueued_at: int, scheduled: int | None, now: int) -> int:
    """What is left of a time to live. A scheduled message begins to age when it is due, not before."""
    born = enqueued_at if scheduled is None else max(enqueued_at, scheduled)
    left = ttl - max(0, now - born)
    if left <= 0:
        text = f"The message had {ttl} ms to live and came into the backlog {now - born} ms ago"
        raise _Refused(Reason.EXPIRED, text + (", counted from its scheduled time." if born == scheduled else "."))
    return left


def _long_life(data: bytes, properties: Span | None, ttl: int, now: int) -> dict[int, bytes]:
    """A header counts to 49 days. What lives longer says so as .NET does: expiry less creation time is what counts."""
    if properties is not None and (
        _field(data, properties, _EXPIRY) is not None or _field(data, properties, _CREATION) is not None
    ):
        return {}  # the sender has said it
    return {_EXPIRY: encode(Timestamp(min(now + ttl, _LATEST_EXPIRY))), _CREATION: encode(Timestamp(now))}


def _annotated(data: bytes, annotations: Span | None) -> tuple[Stamps, bytes, int, str | None]:
    """The broker's stamps; the sender's own annotations as they stand, and how many; and the partition key in them."""
    if annotations is None:
        return (0, 0, 0), b"", 0, None
    stamps = usual_stamps(data, annotations)
    if stamps is not None:
        return stamps, b"", 0, None
    kept, count, found = take(data, annotations, NOT_CARRIED)
    partition_key = _partition_key(data, annotations) if _PARTITION_NAME in kept else None
    return stamps_from(data, found), kept, count, partition_key


def _partition_key(data: bytes, annotations: Span) -> str | None:
    for start, end in take(data, annotations, _PARTITION_FORMS).found.values():
        key = value_at(data, start, end)
        return key if isinstance(key, str) else None
    return None


def _header(data: bytes, header: Span | None, ttl: int | None) -> tuple[bytes, int]:
    """The header with this time to live, and how often the broker had delivered the message before."""
    raw = data[header.start : header.end] if header is not None else b""
    return _usual_header(raw, ttl) if len(raw) < _USUAL else _new_header(raw, ttl)


def _new_header(raw: bytes, ttl: int | None) -> tuple[bytes, int]:
    """The sender's durable and priority, and the time to live. Delivery count and first acquirer are the broker's."""
    parts: list[bytes] = []
    delivered = 0
    if raw:
        (span,) = split(raw)
        delivered = deliveries(raw, span)
        parts = [raw[start:end] for start, end in pairwise(fields(raw, span))][: _PRIORITY + 1]
    if ttl is not None:
        parts += [NULL] * (_TTL - len(parts))
        parts.append(encode(UInt(min(ttl, _UINT_MAX))))
    while parts and parts[-1] == NULL:
        parts.pop()
    return b"\x00\x53\x70" + compound(0xC0, len(parts), b"".join(parts)) if parts else b"", delivered


_USUAL = 64
"""Headers shorter than that are much alike and worth remembering; a longer one is somebody's mistake or attack."""
_usual_header = lru_cache(maxsize=256)(_new_header)


# --- words -----------------------------------------------------------------------------------------------------------


def _is_string(value: Value) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Symbol)


def _shown(value: Value) -> str:
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
