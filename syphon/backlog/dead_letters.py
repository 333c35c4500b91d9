"""The dead letters of a backlog queue: reads, filters and groups them, and makes the message to replay.

A dead letter is the backlog message with two more application properties (`DeadLetterReason` and
`DeadLetterErrorDescription`) and the broker's annotations. To put it back means to remove just these: all other bytes
stay, the message id among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from syphon.amqp import Malformed, Message, OutOfOrder, Section, Span, encode, in_order
from syphon.amqp.section_edit import NULL, extract, keys, outline, with_fields, with_pairs
from syphon.model import EntityPath, MessageCondition, MessageFilter, PathPatterns, SyphonError
from syphon.servicebus import Connection, Peeked, connected, peek

from .aliases import PATH, SESSION_ID
from .backlog_message import NOT_CARRIED, stamps_of
from .dead_letter_edit import NO_EDIT, LetterEdit
from .queues import SelectedQueue, by_pair

REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"
_ACQUIRER, _DELIVERIES = 3, 4
"""Fields of the header that the broker writes."""


class NotPutBack(SyphonError):
    """The dead letter cannot be replayed as it is."""


class DeadLetter(NamedTuple):
    """What is known of a dead letter. Times are milliseconds since 1970."""

    queue: str
    sequence_number: int
    reason: str
    description: str
    destination: str | None
    message_id: str | None
    enqueued_at: int | None
    """The time that the dead-letter queue has for it: the emulator's is when it became a dead letter."""
    payload: bytes
    has_session: bool = False

    @property
    def size(self) -> int:
        return len(self.payload)


def dead_letter_path(queue: str) -> str:
    return f"{queue}/$deadletterqueue"


def read_dead_letters(connection: Connection, queue: str, start: int = 1) -> Iterator[DeadLetter]:
    """Reads the dead letters of a backlog queue by peeking: nothing is locked or changed."""
    return (read(queue, peeked) for peeked in peek(connection, dead_letter_path(queue), start))


def read(queue: str, peeked: Peeked) -> DeadLetter:
    """Reads one dead letter. Never raises: a malformed message can be a dead letter, too."""
    payload = peeked.payload
    try:
        message = Message(payload)
        properties, message_id = message.application_properties(), message.properties().message_id
        reason, description, path = properties.get(REASON), properties.get(DESCRIPTION), properties.get(PATH)
        session = properties.get(SESSION_ID)
    except Malformed as error:
        session = None
        reason, description, path, message_id = "", f"The message is not well-formed AMQP 1.0: {error}.", None, None
    return DeadLetter(
        queue=queue,
        sequence_number=peeked.sequence_number,
        reason=str(reason or ""),
        description=str(description or ""),
        destination=path if isinstance(path, str) and path else None,
        message_id=None if message_id is None else str(message_id),
        enqueued_at=stamps_of(payload).enqueued_at or None,
        payload=payload,
        has_session=session is not None,
    )


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects dead letters. Patterns are as in the settings: `*` is any text, and capitals make no difference."""

    reason: str = "*"
    destination: str = "*"
    """The empty pattern and `*` match a dead letter without a destination."""
    after: int | None = None
    before: int | None = None
    """Enqueued at or after, and before, in milliseconds since 1970."""
    sequence_numbers: frozenset[int] = frozenset()
    """Only these, in every selected queue; all if it is empty."""
    where: MessageCondition | None = None

    def matches(self, letter: DeadLetter) -> bool:
        if self.sequence_numbers and letter.sequence_number not in self.sequence_numbers:
            return False
        messages = MessageFilter(PathPatterns.of([self.destination]), self.before, self.after, self.where)
        destination = EntityPath.of(letter.destination or "")
        return fnmatchcase(letter.reason.lower(), self.reason.lower()) and messages.matches(
            destination, letter.enqueued_at or 0, letter.payload
        )


@dataclass(slots=True)
class Group:
    """Dead letters of one reason and one destination. The one that was enqueued first is the example."""

    reason: str
    destination: str | None
    example: DeadLetter
    count: int = 0
    bytes: int = 0


def grouped(letters: Iterable[DeadLetter]) -> list[Group]:
    """Groups dead letters by reason and destination, the largest first. Keeps one letter of each group in memory."""
    groups: dict[tuple[str, str | None], Group] = {}
    for letter in letters:
        group = groups.setdefault((letter.reason, letter.destination), Group(letter.reason, letter.destination, letter))
        group.count += 1
        group.bytes += letter.size
        if (letter.enqueued_at or 0) < (group.example.enqueued_at or 0):
            group.example = letter
    return sorted(groups.values(), key=lambda group: (-group.count, group.reason, group.destination or ""))


def put_back(payload: bytes, edit: LetterEdit = NO_EDIT, *, keeps_reason: bool = False) -> bytes:
    """The backlog message as it was before it became a dead letter (X4), with what the operator edits.

    With `keeps_reason` the message was no dead letter, and what it says about one is its sender's. Raises NotPutBack if
    the bytes are not a message.
    """
    try:
        try:
            return _put_back(payload, edit, keeps_reason)
        except OutOfOrder:
            return _put_back(in_order(payload), edit, keeps_reason)  # M8
    except Malformed as error:
        raise NotPutBack(f"The message is not well-formed AMQP 1.0: {error}.") from None


def _put_back(data: bytes, edit: LetterEdit, keeps_reason: bool) -> bytes:
    header, annotations, properties, application, body = outline(data)
    kept = extract(data, annotations, NOT_CARRIED)
    own = extract(data, application, _removed(tuple(name for name, _ in edit.application), keeps_reason))
    added = [encode(name) + value for name, value in edit.application if value is not None]
    pairs, count = own.remaining(data) + b"".join(added), own.pairs + len(added)
    return b"".join(
        (
            fresh_header(data, header),
            with_pairs(data, annotations, Section.MESSAGE_ANNOTATIONS, kept.pairs, kept.remaining(data)),
            with_fields(data, properties, Section.PROPERTIES, dict(edit.fields)),
            with_pairs(data, application, Section.APPLICATION_PROPERTIES, count, pairs),
            data[body:],
        )
    )


def fresh_header(data: bytes, header: Span | None) -> bytes:
    """The header without what the broker counts in it."""
    return with_fields(data, header, Section.HEADER, {} if header is None else {_ACQUIRER: NULL, _DELIVERIES: NULL})


@lru_cache(maxsize=16)
def _removed(edited: tuple[str, ...], keeps_reason: bool) -> dict[bytes, str]:
    return keys(edited if keeps_reason else (REASON, DESCRIPTION, *edited))


class DeadLetterSearch:
    """Finds the selected dead letters, queue after queue. An unreachable queue does not hide the others."""

    def __init__(
        self, chosen: Sequence[SelectedQueue], wanted: DeadLetterFilter, limit: int | None = None, start: int = 1
    ) -> None:
        self.unreachable: list[tuple[SelectedQueue, SyphonError]] = []
        """The queues that could not be searched, and why. Complete when the search is over."""
        self._chosen = chosen
        self._wanted = wanted
        self._limit = limit
        self._start = start

    def __iter__(self) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        return islice(self._all(), self._limit)

    def _all(self) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        for pair, ours in by_pair(self._chosen):
            try:
                with connected(pair.secondary, ours[0].queue) as connection:
                    for selected in ours:
                        yield from self._one(connection, selected)
            except SyphonError as error:
                self.unreachable += [(selected, error) for selected in ours]

    def _one(self, connection: Connection, selected: SelectedQueue) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        try:
            for letter in read_dead_letters(connection, selected.queue, self._start):
                if self._wanted.matches(letter):
                    yield selected, letter
        except SyphonError as error:
            self.unreachable.append((selected, error))
