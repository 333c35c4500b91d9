"""Queues, topics and subscriptions: what their descriptions make of the messages they are given.

Each is made of plain lines of messages (`MessageQueue`): its own, its dead letters, and those it could not forward.
A batch is all or nothing: everything is checked before anything is taken.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Protocol

from syphon.amqp import Value

from ..clock import Clock, Millis
from .descriptions import (
    EntityRuntime,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from .duplicates import SeenIds
from .journal import Journal
from .message import BrokeredMessage, State
from .properties import MessageProperties
from .queue import MessageQueue
from .refusals import EntityDisabled, EntityNotFound, NotAllowed, QuotaExceeded, Refusal, TimedOut
from .sessions import SessionQueue
from .terms import Terms

FRAGMENTS = 16
MAX_HOPS = 4
"""How often a message may be forwarded before Service Bus takes it for going round in circles."""

DEAD_LETTERS = "$DeadLetterQueue"
TRANSFER_DEAD_LETTERS = "$Transfer/$DeadLetterQueue"


class Surroundings(Protocol):
    """What an entity needs of its namespace."""

    clock: Clock
    journal: Journal

    def forward(self, message: BrokeredMessage, target: str) -> None:
        """Hands a message to another entity; a refusal is the caller's to deal with."""


class Link(Protocol):
    """A link to an entity, which ends when the entity no longer admits it."""

    def detach(self, why: Refusal) -> None: ...

    def recheck(self) -> None:
        """The entity's description has changed: the link may no longer be welcome."""


class Entity:
    """What queues, topics and subscriptions share: a name, a status, links, a life of their own."""

    def __init__(self, path: str, around: Surroundings) -> None:
        self.path = path
        self.links: set[Link] = set()
        self.quota_bytes: int | None = None
        self._around = around
        self.created_at = self.updated_at = self.accessed_at = around.clock.now()

    @property
    def status(self) -> EntityStatus:
        raise NotImplementedError

    def touch(self) -> None:
        self.accessed_at = self._around.clock.now()

    def left_by(self, link: Link) -> None:
        """A link has ended: until now the entity was in use."""
        self.links.discard(link)
        self.touch()

    def check_sends(self) -> None:
        if self.status in (EntityStatus.DISABLED, EntityStatus.SEND_DISABLED):
            raise EntityDisabled(f"The entity '{self.path}' takes no messages: its status is {self.status}.")

    def check_receives(self) -> None:
        if self.status in (EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED):
            raise EntityDisabled(f"The entity '{self.path}' gives no messages: its status is {self.status}.")

    def end(self, why: Refusal) -> None:
        """The entity is gone, or must not be used any more: so are its links."""
        for link in list(self.links):
            link.detach(why)
        self.links.clear()


class Receivable(Entity):
    """An entity with messages to receive, and with dead letters."""

    description: QueueDescription | SubscriptionDescription

    def __init__(self, path: str, around: Surroundings, terms: Terms) -> None:
        super().__init__(path, around)
        kind = SessionQueue if terms.requires_session else MessageQueue
        letters = terms.for_dead_letters()
        self.main = kind(path, terms, around.clock, around.journal, self._dead_letter)
        self.dead = MessageQueue(f"{path}/{DEAD_LETTERS}", letters, around.clock, around.journal)
        self.transfer_dead = MessageQueue(f"{path}/{TRANSFER_DEAD_LETTERS}", letters, around.clock, around.journal)
        self._steer()

    @property
    def status(self) -> EntityStatus:
        return self.description.status

    @property
    def lines(self) -> tuple[MessageQueue, ...]:
        return self.main, self.dead, self.transfer_dead

    @property
    def size(self) -> int:
        return sum(line.size for line in self.lines)

    def receivers_line(self, sub_queue: str) -> MessageQueue:
        """The line that a receiver's address names: the messages, or one of the two kinds of dead letters."""
        if sub_queue == "":
            if self.description.forward_to:
                raise NotAllowed(f"'{self.path}' forwards to '{self.description.forward_to}': receive there.")
            return self.main
        if sub_queue.lower() == DEAD_LETTERS.lower():
            return self.dead
        if sub_queue.lower() == TRANSFER_DEAD_LETTERS.lower():
            return self.transfer_dead
        raise EntityNotFound(f"The entity '{self.path}' has no '{sub_queue}'.")

    def _agree_on(self, terms: Terms) -> None:
        """The description has changed, and with it what holds for the messages, dead letters included."""
        self.main.terms = terms
        self.dead.terms = self.transfer_dead.terms = terms.for_dead_letters()
        self._steer()

    def _steer(self) -> None:
        """Where the messages go from here: to receivers, or on to where the description says."""
        target = self.description.forward_to
        self.main.forward(None if target is None else lambda message: self._pass_on(message, target))

    def _pass_on(self, message: BrokeredMessage, target: str) -> None:
        onward = message.copy()
        onward.enqueued_sequence = message.enqueued_sequence or message.sequence
        onward.hops = message.hops + 1
        if onward.hops > MAX_HOPS:
            description = f"The message was forwarded more than {MAX_HOPS} times."
            self._strand(message, "MaxTransferHopCountExceeded", description)
            return
        try:
            self._around.forward(onward, target)
        except Refusal as refusal:
            self._strand(message, "TransferFailed", f"Forwarding to '{target}' failed: {refusal.description}")

    def _strand(self, message: BrokeredMessage, reason: str, description: str) -> None:
        stuck = message.copy()
        stuck.enqueued_sequence = message.enqueued_sequence or message.sequence
        stuck.set_properties({"DeadLetterReason": reason, "DeadLetterErrorDescription": description})
        stuck.dead_letter_source = self.path
        self.transfer_dead.enqueue([stuck])

    def _dead_letter(self, message: BrokeredMessage, properties: dict[str, Value]) -> None:
        letter = message.copy()
        letter.enqueued_sequence = message.enqueued_sequence or message.sequence
        letter.dead_letter_source = self.path
        letter.set_properties(properties)
        letter.delivery_count = message.delivery_count
        target = self.description.forward_dead_lettered_messages_to
        if target is None:
            self.dead.enqueue([letter])
        else:
            self._pass_on(letter, target)

    def runtime(self) -> EntityRuntime:
        return EntityRuntime(
            created_at=self.created_at,
            updated_at=self.updated_at,
            accessed_at=self.accessed_at,
            size_in_bytes=self.size,
            active=self.main.count(State.ACTIVE) + self.main.count(State.DEFERRED),
            dead_letter=len(self.dead),
            scheduled=self.main.count(State.SCHEDULED),
            transfer=0,
            transfer_dead_letter=len(self.transfer_dead),
            subscription_count=0,
        )

    def end(self, why: Refusal) -> None:
        super().end(why)
        for line in self.lines:
            line.close(why)


class Intake:
    """What queues and topics do with a batch before they take it: rules, duplicates, fragments."""

    def __init__(self, path: str, around: Surroundings) -> None:
        self.seen = SeenIds()
        self._path = path
        self._around = around
        self._random = random.Random(zlib.crc32(path.encode()))  # noqa: S311  spreads messages, keeps no secret

    def admit(
        self, description: QueueDescription | TopicDescription, messages: list[BrokeredMessage], down: set[int]
    ) -> list[BrokeredMessage]:
        """The messages to be kept: all of them but pings and repeats. Raises if one of them must not come in."""
        if isinstance(description, QueueDescription) and description.requires_session:
            for message in messages:
                if message.session_id is None:
                    raise NotAllowed(
                        "The SessionId was not set on a message, and it cannot be sent to the entity "
                        f"'{self._path}'. Entities with session support take only messages with a SessionId."
                    )
        if description.enable_partitioning:
            self._choose_fragment(description, messages, down)
        else:
            for message in messages:
                message.fragment = 0  # a forwarded one may have had another where it came from
        kept = [message for message in messages if not message.ping]
        if description.requires_duplicate_detection:
            window = description.duplicate_detection_history_time_window
            partitioned = description.enable_partitioning
            kept = [message for message in kept if not self._is_repeat(message, window, partitioned)]
        for message in kept:
            message.name_itself()
        return kept

    def _is_repeat(self, message: BrokeredMessage, window: Millis, partitioned: bool) -> bool:
        if message.message_id is None:
            return False
        # Each fragment remembers for itself, and only there do equal ids under different keys never meet.
        key = f"{(partitioned and (message.session_id or message.partition_key)) or ''}\n{message.message_id!s}"
        now = self._around.clock.now()
        repeat = self.seen.is_repeat(key, now, window)
        if not repeat:
            self._around.journal.seen(self._path, key, now, window)
        return repeat

    def _choose_fragment(
        self, description: QueueDescription | TopicDescription, messages: list[BrokeredMessage], down: set[int]
    ) -> None:
        by_id = description.requires_duplicate_detection
        keys = {
            message.session_id
            or message.partition_key
            or (str(message.message_id) if by_id and message.message_id is not None else None)
            for message in messages
        }
        if len(keys) > 1:
            raise NotAllowed(
                f"A batch sent to the partitioned entity '{self._path}' must have one partition key, not {len(keys)}."
            )
        key = next(iter(keys), None)
        if key is not None:
            fragment = zlib.crc32(key.encode()) % FRAGMENTS
            if fragment in down:
                raise TimedOut(f"Fragment {fragment} of '{self._path}', where key '{key}' belongs, is not available.")
        else:
            up = [fragment for fragment in range(FRAGMENTS) if fragment not in down]
            if not up:
                raise TimedOut(f"No fragment of '{self._path}' is available.")
            fragment = self._random.choice(up)
        for message in messages:
            message.fragment = fragment


class Queue(Receivable):
    """A queue."""

    description: QueueDescription

    def __init__(self, description: QueueDescription, around: Surroundings) -> None:
        self.description = description
        super().__init__(description.name, around, Terms.of(description))
        self.intake = Intake(self.path, around)

    def submit(self, messages: list[BrokeredMessage]) -> None:
        """Takes a batch, all of it or nothing."""
        self.check_sends()
        self.touch()
        check_quota(self, messages, self.description.max_size_in_megabytes, self.description.enable_partitioning)
        self.main.enqueue(self.intake.admit(self.description, messages, self.main.down_fragments))

    def update(self, description: QueueDescription) -> None:
        self.description = description
        self._agree_on(Terms.of(description))
        self.updated_at = self._around.clock.now()


class Subscription(Receivable):
    """A subscription: the messages of its topic that one of its rules takes."""

    description: SubscriptionDescription

    def __init__(self, description: SubscriptionDescription, around: Surroundings) -> None:
        self.description = description
        super().__init__(description.path, around, Terms.of(description))
        self.rules: dict[str, RuleDescription] = {}

    def takes(self, properties: MessageProperties) -> bool:
        return any(rule.filter.matches(properties) for rule in self.rules.values())

    def take(self, message: BrokeredMessage) -> None:
        """Takes its own copy of a message that one of its rules wants."""
        if self.description.requires_session and message.session_id is None:
            # The sender was not told to have sessions, by the topic it knows: the message is not refused but put aside.
            self._dead_letter(
                message,
                {
                    "DeadLetterReason": "Session ID is null",
                    "DeadLetterErrorDescription": (
                        "Session enabled entity doesn't allow a message without a session identifier."
                    ),
                },
            )
            return
        self.main.enqueue([message])

    def update(self, description: SubscriptionDescription) -> None:
        self.description = description
        self._agree_on(Terms.of(description))
        self.updated_at = self._around.clock.now()


class Topic(Entity):
    """A topic: it keeps only what is scheduled, and gives each subscription its own copy of the rest."""

    def __init__(self, description: TopicDescription, around: Surroundings) -> None:
        super().__init__(description.name, around)
        self.description = description
        self.subscriptions: dict[str, Subscription] = {}
        self.intake = Intake(self.path, around)
        self.main = _Publishing(self.path, Terms(), around.clock, around.journal)
        self.main.publish = self.publish

    @property
    def status(self) -> EntityStatus:
        return self.description.status

    @property
    def size(self) -> int:
        return self.main.size + sum(subscription.size for subscription in self.subscriptions.values())

    def submit(self, messages: list[BrokeredMessage]) -> None:
        self.check_sends()
        self.touch()
        check_quota(self, messages, self.description.max_size_in_megabytes, self.description.enable_partitioning)
        self.main.enqueue(self.intake.admit(self.description, messages, self.main.down_fragments))

    def publish(self, message: BrokeredMessage) -> None:
        message.ttl = min(message.ttl, self.description.default_message_time_to_live)
        properties = MessageProperties(message)
        for subscription in list(self.subscriptions.values()):
            if subscription.takes(properties) and subscription.status is not EntityStatus.DISABLED:
                copy = message.copy()
                copy.enqueued_sequence = message.enqueued_sequence or message.sequence
                copy.hops = message.hops
                subscription.take(copy)

    def update(self, description: TopicDescription) -> None:
        self.description = description
        self.updated_at = self._around.clock.now()

    def runtime(self) -> EntityRuntime:
        return EntityRuntime(
            created_at=self.created_at,
            updated_at=self.updated_at,
            accessed_at=self.accessed_at,
            size_in_bytes=self.size,
            active=0,
            dead_letter=0,
            scheduled=len(self.main),
            transfer=0,
            transfer_dead_letter=0,
            subscription_count=len(self.subscriptions),
        )

    def end(self, why: Refusal) -> None:
        super().end(why)
        self.main.close(why)
        for subscription in self.subscriptions.values():
            subscription.end(why)


class _Publishing(MessageQueue):
    """A topic's line: what would be offered to receivers is published instead."""

    publish: Callable[[BrokeredMessage], None]

    def _offer(self, message: BrokeredMessage, back: bool = False) -> None:  # noqa: ARG002  nothing comes back here
        self._remove(message)
        self.publish(message)


def check_quota(entity: Queue | Topic, messages: list[BrokeredMessage], megabytes: int, partitioned: bool) -> None:
    """A full entity takes nothing more."""
    quota = entity.quota_bytes
    if quota is None:
        quota = megabytes * 1024 * 1024 * (FRAGMENTS if partitioned else 1)
    if entity.size + sum(message.size for message in messages) > quota:
        raise QuotaExceeded(
            f"The maximum entity size has been reached or exceeded for '{entity.path}': {entity.size} of {quota} bytes."
        )
