"""Previews what a pump would do with a backlog message: where it would go, when, and what would stop it.

Nothing is moved or sent. Bytes in, a record out, time as an argument: no clock, no I/O.
"""

from __future__ import annotations

from typing import NamedTuple

from syphon.amqp import Malformed, Message, Value, decode
from syphon.amqp.section_edit import ByteRange, field, value_at
from syphon.model import DESTINATION_NOT_ALLOWED, PathPatterns, TimeToLive

from .aliases import PATH, SCHEDULED_TIME, TIME_TO_LIVE
from .backlog_message import SCHEDULED, TTL, stamps_of
from .dotnet_times import FOREVER, InvalidValue, moment, time_to_live, whole_millis
from .layout_cache import layout_of
from .queues import not_allowed, not_allowed_text
from .restoration import Restored, Unrestorable, restore

_NO_LIMIT = 2**32 - 1
"""The time to live of a header that means "no limit"."""


class PreviewRules(NamedTuple):
    """The settings of a pair that decide about its messages."""

    allow: PathPatterns = PathPatterns()
    ttl: TimeToLive = TimeToLive.RESTORE


class MessagePreview(NamedTuple):
    """What is known of a message, and what would happen to it. Times are milliseconds since 1970."""

    message_id: str | None
    destination: str | None
    session_id: str | None
    enqueued_at: int | None
    scheduled_for: int | None
    expires_at: int | None
    """When the time to live of the sender ends (M5)."""
    backlog_expires_at: int | None
    """When Service Bus moves it to the dead letters of the backlog queue, because its header has a time to live. The
    retired .NET SDK leaves one of 18 days there (M9)."""
    size: int
    delivery_count: int
    reason: str | None = None
    """The DeadLetterReason it would get; None if it can be forwarded."""
    description: str | None = None
    restored_size: int | None = None
    """Its bytes as it would be sent to the destination (M7); None if it cannot be restored."""


def preview_message(payload: bytes, now: int, rules: PreviewRules) -> MessagePreview:
    """Previews one message. Never raises: the preview of a message that cannot be read says that."""
    found = restore(payload, enqueued_at=None, now=now)
    stamps = found.stamps if isinstance(found, Restored) else stamps_of(payload)
    sender = read_quickly(payload) if isinstance(found, Restored) else read_fully(payload)
    scheduled_for, expires_at, backlog_expires_at = _times(sender, stamps.enqueued_at)
    reason, description = _objection(payload, found, now, rules)
    return MessagePreview(
        message_id=None if sender.message_id is None else str(sender.message_id),
        destination=_text(sender.destination),
        session_id=found.session_id if isinstance(found, Restored) else None,
        enqueued_at=stamps.enqueued_at or None,
        scheduled_for=scheduled_for,
        expires_at=expires_at,
        backlog_expires_at=backlog_expires_at,
        size=len(payload),
        delivery_count=stamps.delivery_count,
        reason=reason,
        description=description,
        restored_size=found.size if isinstance(found, Restored) else None,
    )


def _objection(
    payload: bytes, found: Restored | Unrestorable, now: int, rules: PreviewRules
) -> tuple[str, str] | tuple[None, None]:
    """Why the message would be dead-lettered: reason and description, or None twice."""
    if isinstance(found, Restored) and rules.ttl is TimeToLive.REMAINING:
        found = restore(payload, enqueued_at=None, now=now, ttl=rules.ttl)
    if isinstance(found, Unrestorable):
        return found.reason.value, found.description
    forbidden = not_allowed(found.destination, rules.allow)
    if forbidden is not None:
        return DESTINATION_NOT_ALLOWED, not_allowed_text(found.destination, forbidden)
    return None, None


def expiry_warning(messages: int, first: str) -> str:
    """Warns about messages that expire in the backlog, the first at this time (M9)."""
    expire = "message expires in the backlog and goes" if messages == 1 else "messages expire in the backlog and go"
    return (
        f"{messages:,} {expire} to its dead letters, the first at {first}: drain before that. The retired .NET SDK "
        "gives a message that has a time to live 18.13 days in the backlog"
    )


class _Sender(NamedTuple):
    """What a sender wrote, as far as it matters here."""

    message_id: Value = None
    destination: Value = None
    due: Value = None
    life: Value = None
    ttl: Value = None
    """The time to live in the header."""


def read_quickly(payload: bytes) -> _Sender:
    """Reads a message that was restored. Its layout is known then, and only five values need to be decoded."""
    try:
        layout = layout_of(payload)
        aliases, header = layout.aliases.found, layout.outline.header
        raw_ttl = None if header is None else field(payload, header, TTL)
        return _Sender(
            value_at(payload, layout.fields[0], layout.fields[1]) if len(layout.fields) > 1 else None,
            _value(payload, aliases.get(PATH)),
            _value(payload, aliases.get(SCHEDULED_TIME)) or _value(payload, layout.annotations.found.get(SCHEDULED)),
            _value(payload, aliases.get(TIME_TO_LIVE)),
            None if raw_ttl is None else decode(raw_ttl)[0],
        )
    except Malformed:  # the sections are in another order, or a value is longer than any that counts
        return read_fully(payload)


def _value(payload: bytes, where: ByteRange | None) -> Value:
    return None if where is None else value_at(payload, *where)


def read_fully(payload: bytes) -> _Sender:
    try:
        message = Message(payload)
        application = message.application_properties()
        return _Sender(
            message.properties().message_id,
            application.get(PATH),
            application.get(SCHEDULED_TIME) or message.annotations().get(SCHEDULED),
            application.get(TIME_TO_LIVE),
            message.header().ttl,
        )
    except Malformed:
        return _Sender()


def _times(sender: _Sender, enqueued_at: int) -> tuple[int | None, int | None, int | None]:
    """When the message is due, when its time to live ends, and when it expires in the backlog."""
    due, life, ttl_of_header = sender.due, sender.life, sender.ttl
    # The sender's failover clears it. The retired SDK leaves one, and so may a person who put the message here.
    lives = [int(ttl_of_header)] if isinstance(ttl_of_header, int) and ttl_of_header < _NO_LIMIT else []
    backlog_expires_at = enqueued_at + lives[0] if lives and enqueued_at else None
    try:
        scheduled_for = None if due is None else int(moment(due))
        if life is not None:
            lives.append(whole_millis(time_to_live(life)))
    except InvalidValue:
        return None, None, backlog_expires_at  # the reason says already that the message cannot be restored
    born = max(enqueued_at, scheduled_for or 0)
    ttl = min(lives, default=FOREVER)
    return scheduled_for, born + ttl if born and ttl < FOREVER else None, backlog_expires_at


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
