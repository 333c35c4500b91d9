"""A message of a backlog queue as an operator asks about it: where it would go, when, and what would stop it.

Nothing is moved here and nothing is sent: it is what a transfer would decide, said beforehand. Pure: bytes in, a record
out, time as an argument.
"""

from __future__ import annotations

from typing import NamedTuple

from syphon.amqp import Header, Malformed, Map, Message, Properties, Value
from syphon.model import PathPatterns

from .aliases import PATH, SCHEDULED_TIME, TIME_TO_LIVE
from .broker_stamps import stamps_of
from .names import not_allowed
from .restoring import Restored, Ttl, Unrestorable, restore
from .times import FOREVER, Senseless, moment, timespan, whole_millis

NOT_ALLOWED = "DestinationNotAllowed"
"""The DeadLetterReason of a message whose destination the operator does not allow (D13)."""
_NO_LIMIT = 2**32 - 1
"""A header's time to live that means none."""


class Rules(NamedTuple):
    """What a pair says about its messages."""

    allow: PathPatterns = PathPatterns()
    ttl: Ttl = Ttl.RESTORE


class Judged(NamedTuple):
    """What is known of a message, and what would become of it. Times are milliseconds since 1970."""

    message_id: str | None
    destination: str | None
    session_id: str | None
    enqueued_at: int | None
    scheduled_for: int | None
    expires_at: int | None
    """When its sender's time to live is over, counted as M5 counts it."""
    size: int
    delivery_count: int
    reason: str | None = None
    """The reason it would be dead-lettered with; None if it can go home."""
    description: str | None = None


def judge(payload: bytes, now: int, rules: Rules) -> Judged:
    """Never raises: what cannot be read is what cannot be brought home, and that is the answer."""
    found = restore(payload, enqueued_at=None, now=now)
    facts = found.stamps if isinstance(found, Restored) else stamps_of(payload)
    sender = _read(payload)
    scheduled_for, expires_at = _times(sender, facts.enqueued_at)
    reason, description = _objection(payload, found, now, rules)
    return Judged(
        message_id=None if sender.properties.message_id is None else str(sender.properties.message_id),
        destination=_text(sender.application.get(PATH)),
        session_id=found.session_id if isinstance(found, Restored) else None,
        enqueued_at=facts.enqueued_at or None,
        scheduled_for=scheduled_for,
        expires_at=expires_at,
        size=len(payload),
        delivery_count=facts.delivery_count,
        reason=reason,
        description=description,
    )


def _objection(
    payload: bytes, found: Restored | Unrestorable, now: int, rules: Rules
) -> tuple[str, str] | tuple[None, None]:
    """Why it would be dead-lettered, if it would."""
    if isinstance(found, Restored) and rules.ttl is Ttl.REMAINING:
        found = restore(payload, enqueued_at=None, now=now, ttl=rules.ttl)
    if isinstance(found, Unrestorable):
        return found.reason.value, found.description
    forbidden = not_allowed(found.destination, rules.allow)
    if forbidden is not None:
        return NOT_ALLOWED, f"{PATH} names {found.destination.name!r} as the destination: {forbidden}."
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
    """When it is due, and when its time to live is over."""
    due = sender.application.get(SCHEDULED_TIME) or sender.annotations.get("x-opt-scheduled-enqueue-time")
    life = sender.application.get(TIME_TO_LIVE)
    try:
        scheduled_for = None if due is None else int(moment(due))
        lives = [] if life is None else [whole_millis(timespan(life))]
    except Senseless:
        return None, None  # said already: it cannot be brought home
    # One that was put here by hand may have a time to live of its own, and can expire in the backlog.
    if isinstance(sender.header.ttl, int) and sender.header.ttl < _NO_LIMIT:
        lives.append(int(sender.header.ttl))
    born = max(enqueued_at, scheduled_for or 0)
    ttl = min(lives, default=FOREVER)
    return scheduled_for, born + ttl if born and ttl < FOREVER else None


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
