"""Finds out that an entity was deleted and made again, so that its sequence numbers have begun again at 1.

A stream that knows only its last number would pass over everything up to that number. It also knows when it saw the
number: each message with a number up to it had been enqueued by then. A message with such a number that was enqueued
later belongs to another entity of the same name.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from syphon.amqp import Timestamp
from syphon.bus import Connection, MessageState, Peeked, peek_pages, sequence_bounds
from syphon.model import SyphonError

from .message_fields import read_fields

TOLERANCE = 900.0
"""Seconds by which the clocks of the driver and of the service may differ. A restart is found so much later."""
_DEAD_LETTERS = "/$deadletterqueue"


class NumbersRestarted(SyphonError):
    """The sequence numbers of an entity have begun again."""


def refuse_restarted(connection: Connection, entity: str, last: int, seen_at: float) -> None:
    """Raises NumbersRestarted if a message has a number up to `last`, but was enqueued after that number was seen.

    Looks at the first message and at the one with the highest number: one peek for an empty entity, about 30 for a
    deep one. Of dead letters it is not documented which time the service gives them: they are not checked.
    """
    if entity.lower().endswith(_DEAD_LETTERS):
        return
    first = _message_from(connection, entity, 1)
    if first is None or first.sequence_number > last:
        return
    _refuse_later(first, entity, last, seen_at)
    others = sequence_bounds(connection, entity, first.sequence_number)
    if others is not None and others[1] <= last:
        newest = _message_from(connection, entity, others[1])
        if newest is not None and newest.sequence_number <= last:
            _refuse_later(newest, entity, last, seen_at)


def _message_from(connection: Connection, entity: str, number: int) -> Peeked | None:
    with closing(peek_pages(connection, entity, number, most=1, ahead=False)) as pages:
        return next((message for page in pages for message in page), None)


def _refuse_later(message: Peeked, entity: str, last: int, seen_at: float) -> None:
    fields = read_fields(message.payload, with_body=False, with_application=False)
    enqueued = fields.annotations.get("x-opt-enqueued-time")
    if message.state is not MessageState.ACTIVE or type(enqueued) is not Timestamp:
        return  # a scheduled message may have the time at which it is due
    if enqueued / 1000 > seen_at + TOLERANCE:
        raise NumbersRestarted(
            f"'{entity}' was deleted and made again: its message {message.sequence_number} was enqueued at "
            f"{_text(enqueued / 1000)}, but the stream had seen number {last} by {_text(seen_at)}. With this "
            f"checkpoint the stream would pass over all messages up to number {last}. Give it a new one."
        )


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
