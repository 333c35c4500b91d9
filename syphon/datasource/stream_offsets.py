"""The offsets of a stream, and the new messages of its entities.

The offset of a stream is the last sequence number that it has seen of each entity, and when it saw that one. Polling
costs one peek for an entity without new messages, and happens at most once per second.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from syphon.amqp import Timestamp
from syphon.config import SideSettings
from syphon.model import EntityPath, SyphonError
from syphon.servicebus import Connection, MessageState, Peeked, connected, peek_pages, sequence_bounds
from syphon.time_budget import (
    CLOCK_TOLERANCE,
    STREAM_CHECK_EVERY,
    STREAM_CONNECTION_KEPT_FOR,
    STREAM_LIST_EVERY,
    STREAM_POLL_EVERY,
)

from .message_fields import read_fields
from .peek_read import BROKEN, SequenceRange, bounds_of, entities_of, retried, split_range
from .source_options import SOURCE, BadSourceOptions, SourceOptions, is_pattern

log = logging.getLogger("syphon.datasource")

PAGE_OF_SEARCH = 16
"""Messages among which a search by time looks for one that is active."""

_DEAD_LETTERS = "/$deadletterqueue"


class NumbersRestarted(SyphonError):
    """The sequence numbers of an entity have restarted."""


def refuse_restarted(connection: Connection, entity: str, last: int, seen_at: float) -> None:
    """Raises NumbersRestarted if a message has a number up to `last`, but was enqueued after that number was seen.

    It peeks at the first message and at the one with the highest number: one peek for an empty entity, about 30 for a
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
    enqueued = _enqueued_at(message)
    if message.state is not MessageState.ACTIVE or enqueued is None:
        return  # a scheduled message may have the time at which it is due
    if enqueued > seen_at + CLOCK_TOLERANCE:
        raise NumbersRestarted(
            f"'{entity}' was deleted and created again: its message {message.sequence_number} was enqueued at "
            f"{_text(enqueued)}, but the stream had seen number {last} by {_text(seen_at)}. With this "
            f"checkpoint the stream would skip all messages up to number {last}. Give it a new one."
        )


def last_before(connection: Connection, entity: str, seconds: float) -> int:
    """A number after which all messages are that were enqueued at this time or later, by halving.

    Numbers follow the time of enqueuing, but for scheduled messages and the clocks of several brokers.
    """
    found = bounds_of(connection, entity, 0)
    low, high = (1, 1) if found is None else (found[0], found[1] + 1)
    while low < high:
        middle = (low + high) // 2
        message = _active_from(connection, entity, middle)
        if message is None or message[1] >= seconds:
            high = middle
        else:
            low = message[0] + 1
    return low - 1


def _active_from(connection: Connection, entity: str, number: int) -> tuple[int, float] | None:
    """The number and the time of the first message from a number on whose time says when it came."""
    with closing(peek_pages(connection, entity, number, most=PAGE_OF_SEARCH, ahead=False)) as pages:
        for message in next(iter(pages), ()):
            if message.state is MessageState.ACTIVE and (enqueued := _enqueued_at(message)) is not None:
                return message.sequence_number, enqueued
    return None


def _enqueued_at(message: Peeked) -> float | None:
    fields = read_fields(message.payload, with_body=False, with_application=False)
    enqueued = fields.annotations.get("x-opt-enqueued-time")
    return enqueued / 1000 if type(enqueued) is Timestamp else None


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


Offsets = dict[str, int]
"""The last number of each entity by its name in lower case; and by `seen_key` when it was seen, in seconds since 1970.

Spark keeps it as JSON in the checkpoint. Older versions wrote names as the option spelt them.
"""
T = TypeVar("T")


def seen_key(entity: str) -> str:
    """Where an offset has the time at which the entity's number was seen. No name of an entity has a `#`."""
    return f"{entity}#seen_at"


def restarts_key(entity: str) -> str:
    """Where an offset counts how often the entity's numbers have restarted."""
    return f"{entity}#restarts"


def by_entity(offsets: Mapping[str, int]) -> Offsets:
    """The offsets with the names that entities have here, however they were spelt."""
    if not all(isinstance(number, int) for number in offsets.values()):
        raise BadSourceOptions(
            f"{SOURCE}: the checkpoint is that of a consuming stream. Set consume, or begin a new one."
        )
    return {EntityPath.of(name).key: number for name, number in offsets.items()}


def shared_rows(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """How many rows of each entity a batch has, by how many wait: at most `most`, but at least one of each entity.

    What an entity does not need goes to the others.
    """
    rows: dict[str, int] = {}
    for entity in sorted(waiting, key=lambda each: waiting[each]):
        fair = (most - sum(rows.values())) // (len(waiting) - len(rows))
        rows[entity] = max(1, min(waiting[entity], fair))
    return rows


class NewMessages:
    """The new messages of some entities. It lives in the process on the driver that plans the stream."""

    def __init__(
        self,
        options: SourceOptions,
        now: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
    ) -> None:
        self.newest: Offsets = {}
        """The last number of each entity that `latest` has found so far, beyond its limit, too."""
        self._options = options
        self._entities: dict[str, str] = {}
        """The entities as the options name them, by the name that they have in offsets."""
        self._listed_until = -math.inf
        self._now, self._date = now, date
        self._check_at: dict[str, float] = {}
        self._target: Offsets | None = None
        self._quiet_until = 0.0
        self._connection = KeptConnection(options.side, now)

    def first_offsets(self) -> Offsets:
        """Where a stream begins that has no checkpoint."""
        self._list()
        behaviour = self._options.behaviour
        if behaviour.begins_latest:
            return self.latest({})
        if (moment := behaviour.starting_timestamp) is not None:
            after = moment.timestamp() - CLOCK_TOLERANCE  # what is read is compared with the exact time
            search = partial(last_before, seconds=after)
            return {entity: self._connection.use(name, search) for entity, name in self._entities.items()}
        return {entity: behaviour.numbers(entity)[0] - 1 for entity in self._entities}

    def latest(self, start: Mapping[str, int], most: int | None = None) -> Offsets:
        """The offsets up to which a stream may read now. With `most`, there are no more messages than that between, but
        at least one of each entity that has some.

        An entity that is no longer read keeps its offset: a stream that reads it again continues there.
        """
        self._list()
        start = by_entity(start)
        offsets = {**start, **{entity: start.get(entity, 0) for entity in self._entities}}
        if self._target is None and self._now() < self._quiet_until:
            return offsets
        found: dict[str, tuple[int, int]] = {}
        for entity in self._entities:
            if self._has_restarted(entity, start):
                offsets[entity] = 0
                offsets[restarts_key(entity)] = offsets.get(restarts_key(entity), 0) + 1
            if (bounds := self._bounds(entity, offsets[entity])) is not None:
                found[entity] = bounds
        # Numbers may have gaps, but none occurs twice: there are at most as many messages as numbers.
        waiting = {entity: last - first + 1 for entity, (first, last) in found.items()}
        rows = waiting if most is None else shared_rows(waiting, most)
        self.newest = {entity: found[entity][1] if entity in found else offsets[entity] for entity in self._entities}
        for entity, (first, _) in found.items():
            offsets[entity] = first + rows[entity] - 1
            offsets[seen_key(entity)] = int(self._date())
        if not found:
            self._quiet_until = self._now() + STREAM_POLL_EVERY
        return offsets

    def _list(self) -> None:
        """Lists the entities if that is due: a pattern may fit new ones."""
        if self._now() < self._listed_until:
            return
        try:
            found = entities_of(self._options)
        except SyphonError as error:
            if not self._entities:
                raise
            log.warning("The stream continues with the queues that it knows: %s", error)
        else:
            self._entities = {EntityPath.of(entity).key: entity for entity in found}
        is_fixed = not any(map(is_pattern, self._options.entities))
        self._listed_until = math.inf if is_fixed else self._now() + STREAM_LIST_EVERY

    def stop_at_present(self) -> None:
        """Ignore messages that arrive after this call."""
        self._target = None
        self._quiet_until = 0.0
        self._target = self.latest({})

    def _has_restarted(self, entity: str, start: Mapping[str, int]) -> bool:
        """Whether the offset is that of an entity which was deleted since. Raises NumbersRestarted unless the options
        allow it. An offset of an older version has no time: it is not checked.
        """
        last, seen_at = start.get(entity, 0), start.get(seen_key(entity))
        if not last or seen_at is None or self._now() < self._check_at.get(entity, 0.0):
            return False
        try:
            self._connection.use(self._entities[entity], partial(refuse_restarted, last=last, seen_at=seen_at))
        except NumbersRestarted as error:
            if self._options.behaviour.fail_on_data_loss:
                raise
            log.warning("%s failOnDataLoss is false: the stream continues with the first message.", error)
            return True
        self._check_at[entity] = self._now() + STREAM_CHECK_EVERY
        return False

    def _bounds(self, entity: str, after: int) -> tuple[int, int] | None:
        if self._target is not None and after >= self._target.get(entity, 0):
            return None
        found = self._connection.use(self._entities[entity], partial(bounds_of, after=after))
        if found is None or self._target is None:
            return found
        first, last = found
        return (first, min(last, self._target[entity])) if first <= self._target[entity] else None

    def ranges(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[SequenceRange]:
        """The parts of what is between two offsets. An entity that is no longer among the options is left out."""
        self._list()
        start, end = by_entity(start), by_entity(end)
        ranges: list[SequenceRange] = []
        for entity, name in self._entities.items():
            restarts = restarts_key(entity)
            has_restarted = start.get(restarts, 0) != end.get(restarts, 0)
            first, last = 1 if has_restarted else start.get(entity, 0) + 1, end.get(entity, 0)
            if first <= last:
                ranges += split_range(SequenceRange(name, first, last), self._options.behaviour.partition_size)
        return ranges

    def close(self) -> None:
        self._connection.close()


class KeptConnection:
    """A connection that is kept while it is used often."""

    def __init__(self, side: SideSettings, now: Callable[[], float]) -> None:
        self._side, self._now = side, now
        self._open = ExitStack()
        self._connection: Connection | None = None
        self._used_at = 0.0

    def use(self, entity: str, look: Callable[[Connection, str], T]) -> T:
        """Call `look` with the kept connection and the entity, and again with a new one if that is broken."""
        if self._connection is not None and self._now() < self._used_at + STREAM_CONNECTION_KEPT_FOR:
            try:
                return self._looked(look, self._connection, entity)
            except BROKEN:
                pass
        return retried(lambda: self._looked(look, self._opened(entity), entity))

    def _opened(self, entity: str) -> Connection:
        self.close()
        self._connection = self._open.enter_context(connected(self._side, entity))
        return self._connection

    def _looked(self, look: Callable[[Connection, str], T], connection: Connection, entity: str) -> T:
        found = look(connection, entity)
        self._used_at = self._now()
        return found

    def close(self) -> None:
        self._open.close()
        self._connection = None
