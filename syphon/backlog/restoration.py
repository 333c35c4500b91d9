"""Restores a backlog message: removes the aliases, and returns the message as its sender made it (M2).

Bytes in, bytes out: no clock, no I/O. Every byte that need not change is copied.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from syphon.amqp import (
    Malformed,
    OutOfOrder,
    Section,
    Span,
    Symbol,
    Timestamp,
    UInt,
    Value,
    compound,
    decode,
    encode,
    in_order,
    split,
)
from syphon.amqp.section_edit import (
    NULL,
    SHORT_MAP,
    ByteRange,
    extract,
    field,
    fields,
    keys,
    value_at,
    with_fields,
    with_pairs,
)
from syphon.model import EntityPath, TimeToLive

from .aliases import PATH, PATH_LIMIT, SCHEDULED_TIME, SESSION_ID, TIME_TO_LIVE
from .backlog_message import (
    CREATION,
    DURABLE,
    EXPIRY,
    GROUP_ID,
    LOCK_TOKEN,
    PRIORITY,
    SCHEDULED,
    TTL,
    BrokerStamps,
    deliveries,
    is_string,
    shown,
)
from .dotnet_times import (
    A_MOMENT,
    A_TIME_TO_LIVE,
    EARLIEST,
    LONGEST,
    InvalidValue,
    moment,
    time_to_live_at,
    whole_millis,
)
from .layout_cache import Layout, identity, layout_of

_SCHEDULED_KEY = encode(Symbol(SCHEDULED))
_UINT_MAX = 2**32 - 1
_LATEST_EXPIRY = 253_402_243_199_000
"""The latest expiry time that SDKs write: a day before the end of the year 9999."""


class UnrestorableReason(StrEnum):
    """Why a message cannot be restored: the DeadLetterReason of its dead letter."""

    NO_DESTINATION = "NoDestination"
    BAD_ALIAS = "BadAlias"
    EXPIRED = "Expired"
    MALFORMED = "MalformedMessage"
    DUPLICATE_DETECTION = "DuplicateDetection"
    """Only for a replay of dead letters: the entity might accept the message and drop it."""


class Restored(NamedTuple):
    """A message as its sender made it, and what is needed to forward it."""

    payload: bytes
    destination: EntityPath
    message_id: Value
    session_id: str | None
    partition_key: str | None
    size: int
    stamps: BrokerStamps
    """What the broker wrote onto the message in the backlog."""


@dataclass(frozen=True, slots=True)
class Unrestorable:
    """A message to dead-letter (M4), with the reason and description to write."""

    reason: UnrestorableReason
    description: str


class _Refused(Exception):
    def __init__(self, reason: UnrestorableReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def restore(
    payload: bytes, *, enqueued_at: int | None, now: int, ttl: TimeToLive = TimeToLive.RESTORE
) -> Restored | Unrestorable:
    """The message as its sender made it (M2), or why it cannot be restored (M4). Never raises.

    `now` and `enqueued_at` (when it came into the backlog) are milliseconds since 1970. Without `enqueued_at` the
    broker's annotation counts; without that, the message spent no time in the backlog.
    """
    try:
        try:
            return _restored(payload, enqueued_at, now, ttl)
        except OutOfOrder:
            return _restored(in_order(payload), enqueued_at, now, ttl)  # M8
    except _Refused as refused:
        return Unrestorable(refused.reason, str(refused))
    except Malformed as error:
        return Unrestorable(UnrestorableReason.MALFORMED, f"The message is not well-formed AMQP 1.0: {error}.")


def _restored(data: bytes, enqueued_at: int | None, now: int, rule: TimeToLive) -> Restored:
    layout = layout_of(data)
    header, annotations, properties, application, body = layout.outline
    aliases = layout.aliases.found
    destination = _destination(data, aliases)

    changes: dict[int, bytes] = {}
    message_id, session_id, partition_key, stamps = identity(data, layout)
    if SESSION_ID in aliases:
        start, end = aliases[SESSION_ID]
        session_id = _session_id(value_at(data, start, end))
        changes[GROUP_ID] = data[start:end]  # the original bytes: a string has two forms

    scheduled = None
    if SCHEDULED_TIME in aliases:
        scheduled = _scheduled(value_at(data, *aliases[SCHEDULED_TIME]))

    own = layout.annotations
    annotated, count = own.remaining(data) if own.pairs else b"", own.pairs
    # A time that has passed means now (M6). The destination decides that by its own clock, which may differ from ours.
    if scheduled is not None and scheduled > EARLIEST:  # .NET's "none" is the year 1
        annotated += _SCHEDULED_KEY + encode(Timestamp(scheduled))
        count += 1

    ttl = alias = None
    if TIME_TO_LIVE in aliases:
        ttl = alias = _time_to_live(data, *aliases[TIME_TO_LIVE])
        if ttl is not None and rule is TimeToLive.REMAINING:
            ttl = _remaining(ttl, enqueued_at or stamps[1] or now, scheduled, now)
    new_header, delivery_count, had_ttl = _header(data, header, ttl, layout.lacks_durable)
    if ttl is not None and (had_ttl or ttl > _UINT_MAX):
        lifespan = _lifespan(data, layout)
        if (lifespan is None and ttl > _UINT_MAX) or (lifespan not in (None, alias) and had_ttl):
            changes |= {EXPIRY: encode(Timestamp(min(now + ttl, _LATEST_EXPIRY))), CREATION: encode(Timestamp(now))}

    parts = [new_header]
    after_header = header.end if header is not None else 0
    following = annotations or properties or application
    if (end := following.start if following is not None else body) > after_header:
        parts.append(_delivery_annotations(data, after_header, end))
    if count:  # in the shorter form: the form that the section has is the broker's
        parts.append(with_pairs(data, annotations, Section.MESSAGE_ANNOTATIONS, count, annotated, SHORT_MAP))
    parts.append(with_fields(data, properties, Section.PROPERTIES, changes))
    if layout.aliases.pairs:
        others = layout.aliases.remaining(data)
        section, left = Section.APPLICATION_PROPERTIES, layout.aliases.pairs
        parts.append(with_pairs(data, application, section, left, others, layout.map_form))
    payload = b"".join((*parts, memoryview(data)[body:]))
    found = BrokerStamps(*stamps, delivery_count)
    return Restored(payload, destination, message_id, session_id, partition_key, len(payload), found)


def destination_of(payload: bytes) -> EntityPath | None:
    """The destination of a message, without restoring it; None if the message names none. Never raises."""
    try:
        try:
            layout = layout_of(payload)
        except OutOfOrder:
            payload = in_order(payload)
            layout = layout_of(payload)
        return _destination(payload, layout.aliases.found)
    except (_Refused, Malformed):
        return None


def _destination(data: bytes, aliases: dict[str, ByteRange]) -> EntityPath:
    if PATH not in aliases:
        raise _Refused(
            UnrestorableReason.NO_DESTINATION, f"{PATH} is missing: the message does not say where it was meant to go."
        )
    path = value_at(data, *aliases[PATH])
    if not is_string(path) or not path.strip() or len(path) > PATH_LIMIT:
        is_empty = isinstance(path, str) and not path.strip()
        text = (
            f"{PATH} is {'empty' if is_empty else shown(path)}; expected the name of a queue or topic "
            f"(1 to {PATH_LIMIT} characters)."
        )
        raise _Refused(UnrestorableReason.NO_DESTINATION, text)
    return EntityPath.of(path)


def _session_id(value: Value) -> str:
    if not is_string(value):
        raise _Refused(UnrestorableReason.BAD_ALIAS, f"{SESSION_ID} is {shown(value)}; expected a string.")
    return value


def _scheduled(value: Value) -> int:
    try:
        return moment(value)
    except InvalidValue as error:
        text = f"{SCHEDULED_TIME} is {shown(value)}, which {error}; expected {A_MOMENT}."
        raise _Refused(UnrestorableReason.BAD_ALIAS, text) from None


def _time_to_live(data: bytes, start: int, end: int) -> int | None:
    """Milliseconds; None for .NET's "never"."""
    try:
        ticks = time_to_live_at(data, start, end)
    except InvalidValue as error:
        value = shown(value_at(data, start, end))
        text = f"{TIME_TO_LIVE} is {value}, which {error}; expected {A_TIME_TO_LIVE}."
        raise _Refused(UnrestorableReason.BAD_ALIAS, text) from None
    return whole_millis(ticks) if ticks < LONGEST else None


def _remaining(ttl: int, enqueued_at: int, scheduled: int | None, now: int) -> int:
    """The rest of a time to live. The clock of a scheduled message starts when the message is due."""
    born = enqueued_at if scheduled is None else max(enqueued_at, scheduled)
    left = ttl - max(0, now - born)
    if left <= 0:
        text = f"The message had {ttl} ms to live and came into the backlog {now - born} ms ago"
        raise _Refused(
            UnrestorableReason.EXPIRED, text + (", counted from its scheduled time." if born == scheduled else ".")
        )
    return left


def _lifespan(data: bytes, layout: Layout) -> int | None:
    """Expiry minus creation time, which .NET writes beside a time to live; None if the sender has written neither.

    If there is only one of them, or it is no time, no time to live agrees with it. The retired SDK writes an expiry in
    the year 9999, and leaves a time to live of 18 days in the header: neither is the application's (M9). Where the
    header has none, both times are the application's own, whatever they say.
    """
    starts = layout.fields
    raw = [data[starts[i] : starts[i + 1]] if i + 1 < len(starts) else NULL for i in (EXPIRY, CREATION)]
    if raw == [NULL, NULL]:
        return None
    expiry, creation = (decode(value)[0] for value in raw)
    return expiry - creation if isinstance(expiry, Timestamp) and isinstance(creation, Timestamp) else -1


def _header(data: bytes, header: Span | None, ttl: int | None, lacks_durable: bool) -> tuple[bytes, int, bool]:
    """The header with this time to live, how often the broker delivered the message before, and whether it had a time
    to live in the backlog."""
    raw = data[header.start : header.end] if header is not None else b""
    return (_usual_header if len(raw) < _USUAL else _new_header)(raw, ttl, lacks_durable)


def _new_header(raw: bytes, ttl: int | None, lacks_durable: bool = False) -> tuple[bytes, int, bool]:
    """Keeps the sender's durable and priority, and sets the time to live. The other fields are the broker's.

    `lacks_durable`: the sender's message had no such field, so the value is the broker's as well.
    """
    parts: list[bytes] = []
    delivered, had_ttl = 0, False
    if raw:
        (span,) = split(raw)
        delivered, had_ttl = deliveries(raw, span), field(raw, span, TTL) is not None
        parts = [raw[start:end] for start, end in pairwise(fields(raw, span))][: PRIORITY + 1]
        if lacks_durable and parts:
            parts[DURABLE] = NULL
    if ttl is not None:
        parts += [NULL] * (TTL - len(parts))
        parts.append(encode(UInt(min(ttl, _UINT_MAX))))
    while parts and parts[-1] == NULL:
        parts.pop()
    written = b"\x00\x53\x70" + compound(0xC0, len(parts), b"".join(parts)) if parts else b""
    return written, delivered, had_ttl


def _delivery_annotations(data: bytes, start: int, end: int) -> bytes:
    """The sender's delivery annotations: the service hands them on to receivers. Their lock is the backlog's."""
    if end - start == _LOCK_SIZE and data.startswith(_LOCK_HEAD, start):
        return b""
    raw = data[start:end]
    (span,) = split(raw)
    own = extract(raw, span, _LOCK_KEY)
    return with_pairs(raw, span, Section.DELIVERY_ANNOTATIONS, own.pairs, own.remaining(raw), SHORT_MAP)


_LOCK_HEAD = b"\x00\x53\x71" + compound(0xC1, 2, encode(Symbol(LOCK_TOKEN)) + b"\x98" + bytes(16))[:-16]
"""The delivery annotations that the service writes if the sender has written none, up to the lock itself."""
_LOCK_SIZE = len(_LOCK_HEAD) + 16
_LOCK_KEY = keys((LOCK_TOKEN,))

_USUAL = 64
"""Headers shorter than this are much alike and worth caching; a longer one is a mistake or an attack."""
_usual_header = lru_cache(maxsize=256)(_new_header)
