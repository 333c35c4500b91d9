"""The checker, after Jepsen's total-queue: compares acknowledged messages with those that are found, as multisets.

Every message that the backlog acknowledged must be found: at its destination just as its sender made it, or in the
backlog or among its dead letters just as it was put there. No other message may be found anywhere. Messages are
compared as bytes, section by section, without the annotations that a broker adds. The checker uses no code of the
transfer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from syphon.amqp import Message, Section, Value, encode
from syphon.amqp.sections import entries
from tests.faults.messages import Input

HOME, DEAD, BACKLOG = "home", "dead letters", "backlog"

BROKERS_ANNOTATIONS = frozenset(
    (
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-message-state",
        "x-opt-deadletter-source",
    )
)
DEAD_LETTER_WORDS = frozenset(("DeadLetterReason", "DeadLetterErrorDescription"))


class Found(NamedTuple):
    """A message and the place where it was found."""

    where: str
    """HOME, DEAD or BACKLOG."""
    destination: str
    """For HOME: the entity that contains it."""
    payload: bytes


class Imprint(NamedTuple):
    """All parts of a message that must not change."""

    durable: Value
    priority: Value
    time_to_live: Value
    annotations: tuple[bytes, ...]
    """Annotations of the sender: schedule, partition key, and its own."""
    properties: bytes
    """Message id, session and the like."""
    application_properties: tuple[bytes, ...]
    body: bytes
    """All body sections, and the footer."""


@dataclass
class Verdict:
    """What the checker found."""

    acknowledged: int = 0
    home: int = 0
    dead: int = 0
    backlog: int = 0
    duplicates: int = 0
    recovered: int = 0
    """Found although never acknowledged: the answer was lost on its way."""
    lost: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    removed: int = 0
    """Deleted by their owner, together with the queue they were in."""
    copies: Counter[bytes] = field(default_factory=Counter, repr=False)

    def problems(self, at_least: int, most_duplicates: int) -> list[str]:
        """The violations. A run of too few messages proves nothing."""
        found = []
        if self.lost:
            found.append(f"lost: {_some(self.lost)}")
        if self.unexpected:
            found.append(f"unexpected: {_some(self.unexpected)}")
        if self.duplicates > most_duplicates:
            found.append(f"{self.duplicates} duplicates, where {most_duplicates} can be allowed_duplicates")
        if self.acknowledged < at_least:
            found.append(f"only {self.acknowledged} messages were acknowledged, {at_least} were meant to be")
        return found

    def __str__(self) -> str:
        parts = [
            f"{self.acknowledged} acknowledged",
            f"{self.home} home",
            f"{self.dead} dead letters",
            f"{self.backlog} in the backlog",
            f"{self.duplicates} duplicates",
            f"{len(self.lost)} lost",
            f"{len(self.unexpected)} unexpected",
        ]
        return ", ".join(parts + ([f"{self.removed} deleted by their owner"] if self.removed else []))


def check(
    attempted: Sequence[Input],
    acknowledged: Collection[bytes],
    found: Iterable[Found],
    removed: Collection[bytes] = (),
) -> Verdict:
    """Compares all messages found with all that were sent; `removed` were deleted by their owner."""
    inputs = {put.identity: put for put in attempted}
    assert len(inputs) == len(attempted), "two inputs have one identity: they could not be told apart"
    verdict = Verdict(len(acknowledged))
    for message in found:
        identity = encode(Message(message.payload).properties().message_id)
        put = inputs.get(identity)
        objection = "it was never sent" if put is None else _objection(put, message)
        if objection:
            verdict.unexpected.append(f"{identity!r} {_place(message)}: {objection}")
            continue
        verdict.copies[identity] += 1
        if message.where == HOME:
            verdict.home += 1
        elif message.where == DEAD:
            verdict.dead += 1
        else:
            verdict.backlog += 1
    missing = set(acknowledged) - set(verdict.copies)
    verdict.removed = len(missing & set(removed))
    verdict.lost = [f"{identity!r} for {inputs[identity].destination}" for identity in sorted(missing - set(removed))]
    verdict.duplicates = sum(times - 1 for times in verdict.copies.values())
    verdict.recovered = len(set(verdict.copies) - set(acknowledged))
    return verdict


def _objection(put: Input, message: Found) -> str:
    """What is wrong with a found message; empty if it is correct."""
    if message.where == HOME and message.destination != put.destination:
        return f"was meant for {put.destination}"
    wanted = imprint(put.original if message.where == HOME else put.backlogged)
    got = imprint(message.payload, () if message.where == HOME else DEAD_LETTER_WORDS)
    return ", ".join(
        f"{name.replace('_', ' ')} {_short(there)} and not {_short(due)}"
        for name, there, due in zip(Imprint._fields, got, wanted, strict=True)
        if there != due
    )


def imprint(payload: bytes, without: Collection[str] = ()) -> Imprint:
    """The parts of a message that must not change; `without` are application properties to leave out."""
    message = Message(payload)
    header = message.header()
    bodies = [span for span in message.spans if span.section > Section.APPLICATION_PROPERTIES]
    return Imprint(
        # A broker stores every message, and sets `durable` if the sender did not set it.
        header.durable is not False,
        header.priority,
        header.ttl,
        tuple(sorted(_pairs(message, Section.MESSAGE_ANNOTATIONS, BROKERS_ANNOTATIONS))),
        message.raw(Section.PROPERTIES),
        tuple(_pairs(message, Section.APPLICATION_PROPERTIES, without)),
        payload[bodies[0].start :] if bodies else b"",
    )


def _pairs(message: Message, section: Section, without: Collection[str]) -> list[bytes]:
    span = message.span(section)
    found = entries(message.data, span) if span is not None else []
    return [message.data[entry.start : entry.end] for entry in found if entry.key not in without]


def _place(message: Found) -> str:
    return f"at {message.destination}" if message.where == HOME else f"in the {message.where}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _some(items: list[str]) -> str:
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return f"{len(items)}: {'; '.join(items[:5])}{more}"
