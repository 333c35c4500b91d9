"""Adds the aliases: makes a message ready for a backlog queue (M1).

Bytes in, bytes out: no clock, no I/O. Only the parts that must change are replaced; every other byte of the message is
copied, whatever its type and encoding.

Unchanged on purpose:
- The partition key. A backlog queue is not partitioned and ignores it; the destination needs it as it was.
- Creation and expiry time, which SDKs write beside a time to live. They are the sender's, and part of the bare message.
"""

from __future__ import annotations

from syphon.amqp import Malformed, OutOfOrder, Section, Timestamp, UInt, decode, encode, in_order
from syphon.amqp.section_edit import LONG_MAP, NULL, extract, field, fits_short, keys, with_fields, with_pairs
from syphon.model import SyphonError

from .aliases import PATH_KEY, PATH_KEY_NO_DURABLE, PATH_LIMIT, SCHEDULED_TIME, SESSION_ID, TIME_TO_LIVE
from .backlog_message import DURABLE, GROUP_ID, SCHEDULED, TTL, deliveries, is_string, shown
from .dotnet_times import EARLIEST, LATEST, InvalidValue, timespan_bytes
from .layout_cache import identity, layout_of

_KEY = {name: encode(name) for name in (SESSION_ID, TIME_TO_LIVE, SCHEDULED_TIME)}
_SCHEDULED_KEYS = keys((SCHEDULED,))


class NotForBacklog(SyphonError):
    """The message cannot be put into a backlog queue."""


def to_backlog(payload: bytes, path: str) -> bytes:
    """The message with aliases, for a backlog queue; `path` is its destination (M1). Raises NotForBacklog."""
    if not path.strip() or len(path) > PATH_LIMIT:
        raise NotForBacklog(f"{shown(path)} is not the path of an entity: a path has 1 to {PATH_LIMIT} characters")
    try:
        try:
            return _aliased(payload, path)
        except OutOfOrder:
            return _aliased(in_order(payload), path)  # M8
    except Malformed as error:
        raise NotForBacklog(f"the message is not well-formed AMQP 1.0: {error}") from None
    except InvalidValue as error:
        raise NotForBacklog(str(error)) from None


def _aliased(data: bytes, path: str) -> bytes:
    layout = layout_of(data)
    header, annotations, properties, application, body = layout.outline
    # A message that cannot be read now could not be restored later.
    identity(data, layout), deliveries(data, header)
    edits: list[tuple[int, int, bytes]] = []
    aliases: list[bytes] = []

    if header is not None and (raw := field(data, header, TTL)) is not None:
        ttl = decode(raw)[0]
        if not isinstance(ttl, UInt) or not ttl:  # zero would be refused when the message is restored (M4)
            expected = "a uint of milliseconds, 1 or more"
            raise InvalidValue(f"the time to live (header ttl) is {shown(ttl)}; expected {expected}")
        aliases.append(_KEY[TIME_TO_LIVE] + timespan_bytes(ttl))
        edits.append((header.start, header.end, with_fields(data, header, Section.HEADER, {TTL: NULL})))

    if annotations is not None and SCHEDULED in layout.annotations.found:
        start, end = layout.annotations.found[SCHEDULED]
        when = decode(data, start, end)[0]
        if when is not None:
            if not isinstance(when, Timestamp) or not EARLIEST <= when <= LATEST:
                expected = "a timestamp between the years 1 and 9999"
                raise InvalidValue(f"{SCHEDULED} is {shown(when)}; expected {expected}")
            aliases.append(_KEY[SCHEDULED_TIME] + data[start:end])
        left = extract(data, annotations, _SCHEDULED_KEYS)
        cleared = with_pairs(data, annotations, Section.MESSAGE_ANNOTATIONS, left.pairs, left.remaining(data))
        edits.append((annotations.start, annotations.end, cleared))

    if properties is not None and (raw := field(data, properties, GROUP_ID)) is not None:
        session = decode(raw)[0]
        if not is_string(session):
            raise InvalidValue(f"the session id (group-id) is {shown(session)}; expected a string")
        # The original bytes: a string has two forms, and restoring must return the form it had.
        aliases.append(_KEY[SESSION_ID] + raw)
        cleared = with_fields(data, properties, Section.PROPERTIES, {GROUP_ID: NULL})
        edits.append((properties.start, properties.end, cleared))

    own = layout.aliases
    if own.found:
        names = ", ".join(own.found)
        raise NotForBacklog(
            f"the message comes from a backlog queue, because it has {names}: restore it before you send it"
        )
    has_durable = header is not None and field(data, header, DURABLE) is not None
    to = (PATH_KEY if has_durable else PATH_KEY_NO_DURABLE) + encode(path)
    others = own.remaining(data)
    if application is not None and data[application.value] == LONG_MAP and fits_short(2 * own.pairs, len(others)):
        pairs = b"".join((to, others, *aliases))
    else:
        pairs = b"".join((others, *aliases, to))
    aliases.append(to)
    added = with_pairs(data, application, Section.APPLICATION_PROPERTIES, own.pairs + len(aliases), pairs)
    edits.append((application.start, application.end, added) if application is not None else (body, body, added))

    parts: list[bytes] = []
    copied = 0
    for start, end, new in edits:
        parts += (data[copied:start], new)
        copied = end
    return b"".join((*parts, data[copied:]))
