"""Previews what a pump would do with a backlog message: where it would go, when, and what would stop it.

Nothing is moved or sent. Bytes in, a record out, time as an argument: no clock, no I/O.
"""

from __future__ import annotations

from typing import NamedTuple

from syphon.amqp import Header, Malformed, Map, Message, Properties, Value
from syphon.model import DESTINATION_NOT_ALLOWED, PathPatterns

from .aliases import PATH, SCHEDULED_TIME, TIME_TO_LIVE
from .broker_stamps import stamps_of
from .queues import not_allowed, not_allowed_text
from .restoring import Restored, Ttl, Unrestorable, restore
from .times import FOREVER, InvalidValue, moment, timespan, whole_millis

_NO_LIMIT = 2**32 - 1
"""The time to live of a header that means "no limit"."""


class PreviewRules(NamedTuple):
    """The settings of a pair that decide about its messages."""

    allow: PathPatterns = PathPatterns()
    ttl: Ttl = Ttl.RESTORE


class MessagePreview(NamedTuple):
    """What is known of a message, and what would happen to it. Times are milliseconds since 1970."""

    message_id: str | None
    destination: str | None
    session_id: str | None
    enqueued_at: int | None
    scheduled_for: int | None
    expires_at: int | None
    """When the time to live of the sender ends (M5)."""
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
    sender = _read(payload)
    scheduled_for, expires_at = _times(sender, stamps.enqueued_at)
    reason, description = _objection(payload, found, now, rules)
    return MessagePreview(
        message_id=None if sender.properties.message_id is None else str(sender.properties.message_id),
        destination=_text(sender.application.get(PATH)),
        session_id=found.session_id if isinstance(found, Restored) else None,
        enqueued_at=stamps.enqueued_at or None,
        scheduled_for=scheduled_for,
        expires_at=expires_at,
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
    if isinstance(found, Restored) and rules.ttl is Ttl.REMAINING:
        found = restore(payload, enqueued_at=None, now=now, ttl=rules.ttl)
    if isinstance(found, Unrestorable):
        return found.reason.value, found.description
    forbidden = not_allowed(found.destination, rules.allow)
    if forbidden is not None:
        return DESTINATION_NOT_ALLOWED, not_allowed_text(found.destination, forbidden)
    return None, None


class _Sections(NamedTuple):
    header: Header = Header()
    annotations: Map = Map()
    properties: Properties = Properties()
    application: Map = Map()


def _read(payload: bytes) -> _Sections:
    try:
        message = Message(payload)
        return _Sections(
            message.header(), message.annotations(), message.properties(), message.application_properties()
        )
    except Malformed:
        return _Sections()


def _times(sender: _Sections, enqueued_at: int) -> tuple[int | None, int | None]:
    """When the message is due, and when its time to live ends."""
    due = sender.application.get(SCHEDULED_TIME) or sender.annotations.get("x-opt-scheduled-enqueue-time")
    life = sender.application.get(TIME_TO_LIVE)
    try:
        scheduled_for = None if due is None else int(moment(due))
        lives = [] if life is None else [whole_millis(timespan(life))]
    except InvalidValue:
        return None, None  # the reason says already that the message cannot be restored
    # A message that a person put here may have a time to live of its own, and can expire in the backlog.
    if isinstance(sender.header.ttl, int) and sender.header.ttl < _NO_LIMIT:
        lives.append(int(sender.header.ttl))
    born = max(enqueued_at, scheduled_for or 0)
    ttl = min(lives, default=FOREVER)
    return scheduled_for, born + ttl if born and ttl < FOREVER else None


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
