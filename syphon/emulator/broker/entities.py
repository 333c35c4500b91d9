"""Queues, topics and subscriptions: they handle messages as their descriptions say.

A queue or subscription has three message queues (`MessageQueue`): its messages, its dead letters, and the messages it
could not forward. A batch is all or nothing: the entity checks every message before it accepts one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from syphon.amqp import Value

from ..clock import EmulatorClock
from .actions import ActionFailed, SqlAction
from .admission import BatchAdmission, check_quota
from .descriptions import (
    DeliverySettings,
    EntityRuntime,
    EntityStatus,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from .filters import CorrelationFilter
from .journal import Journal
from .message import BrokeredMessage, StoredState
from .queue import MessageQueue
from .refusals import EntityDisabled, EntityNotFound, NotAllowed, Refusal
from .rule_properties import MessageProperties
from .sessions import SessionQueue

MAX_HOPS = 4
"""How often a message may be forwarded. Service Bus takes more hops for a loop."""

DEAD_LETTERS = "$DeadLetterQueue"
TRANSFER_DEAD_LETTERS = "$Transfer/$DeadLetterQueue"


class EntityContext(Protocol):
    """The parts of a namespace that an entity uses."""

    clock: EmulatorClock
    journal: Journal

    def forward(self, message: BrokeredMessage, target: str) -> None:
        """Sends a message to another entity. The caller handles a refusal."""


class AttachedLink(Protocol):
    """A link that is attached to an entity. It is detached when the entity no longer allows it."""

    def detach(self, why: Refusal) -> None: ...

    def recheck(self) -> None:
        """Detaches the link if the changed description of the entity no longer allows it."""


class BrokerEntity:
    """What queues, topics and subscriptions share: a path, a status, links and times."""

    def __init__(self, path: str, context: EntityContext) -> None:
        self.path = path
        self.links: set[AttachedLink] = set()
        self.quota_bytes: int | None = None
        self._context = context
        self.created_at = self.updated_at = self.accessed_at = context.clock.now()

    @property
    def status(self) -> EntityStatus:
        raise NotImplementedError

    def touch(self) -> None:
        self.accessed_at = self._context.clock.now()

    def remove_link(self, link: AttachedLink) -> None:
        """Removes a link that has ended. The entity counts as used until now."""
        self.links.discard(link)
        self.touch()

    def check_sends(self) -> None:
        if self.status in (EntityStatus.DISABLED, EntityStatus.SEND_DISABLED):
            raise EntityDisabled(f"The entity '{self.path}' does not accept messages: its status is {self.status}.")

    def check_receives(self) -> None:
        if self.status in (EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED):
            raise EntityDisabled(f"The entity '{self.path}' gives no messages: its status is {self.status}.")

    def end(self, why: Refusal) -> None:
        """Detaches all links: the entity is deleted or must no longer be used."""
        for link in list(self.links):
            link.detach(why)
        self.links.clear()


class ReceivableEntity(BrokerEntity):
    """A queue or a subscription: an entity with messages to receive and with dead letters."""

    description: QueueDescription | SubscriptionDescription

    def __init__(self, path: str, context: EntityContext, terms: DeliverySettings) -> None:
        super().__init__(path, context)
        kind = SessionQueue if terms.requires_session else MessageQueue
        letters = terms.for_dead_letters()
        self.main = kind(path, terms, context.clock, context.journal, self._dead_letter)
        self.dead = MessageQueue(f"{path}/{DEAD_LETTERS}", letters, context.clock, context.journal)
        self.transfer_dead_letters = MessageQueue(
            f"{path}/{TRANSFER_DEAD_LETTERS}", letters, context.clock, context.journal
        )
        self._apply_forwarding()

    @property
    def status(self) -> EntityStatus:
        return self.description.status

    @property
    def queues(self) -> tuple[MessageQueue, ...]:
        return self.main, self.dead, self.transfer_dead_letters

    @property
    def size(self) -> int:
        return sum(queue.size for queue in self.queues)

    def sub_queue(self, sub_queue: str) -> MessageQueue:
        """The message queue that a receiver's address names: the messages, or one of the two kinds of dead letters."""
        if sub_queue == "":
            if self.description.forward_to:
                raise NotAllowed(f"'{self.path}' forwards to '{self.description.forward_to}': receive there.")
            return self.main
        if sub_queue.lower() == DEAD_LETTERS.lower():
            return self.dead
        if sub_queue.lower() == TRANSFER_DEAD_LETTERS.lower():
            return self.transfer_dead_letters
        raise EntityNotFound(f"The entity '{self.path}' has no '{sub_queue}'.")

    def _apply_settings(self, terms: DeliverySettings) -> None:
        """Applies a changed description to the message queues, those of dead letters included."""
        self.main.terms = terms
        self.dead.terms = self.transfer_dead_letters.terms = terms.for_dead_letters()
        self._apply_forwarding()

    def _apply_forwarding(self) -> None:
        """Makes the main queue forward its messages if the description says so."""
        target = self.description.forward_to
        self.main.forward(None if target is None else lambda message: self._forward_message(message, target))

    def _forward_message(self, message: BrokeredMessage, target: str) -> None:
        onward = message.copy()
        onward.enqueued_sequence = message.enqueued_sequence or message.sequence
        onward.hops = message.hops + 1
        if onward.hops > MAX_HOPS:
            description = f"The message was forwarded more than {MAX_HOPS} times."
            self._dead_letter_transfer(message, "MaxTransferHopCountExceeded", description)
            return
        try:
            self._context.forward(onward, target)
        except Refusal as refusal:
            self._dead_letter_transfer(
                message, "TransferFailed", f"Forwarding to '{target}' failed: {refusal.description}"
            )

    def _dead_letter_transfer(self, message: BrokeredMessage, reason: str, description: str) -> None:
        stuck = message.copy()
        stuck.enqueued_sequence = message.enqueued_sequence or message.sequence
        stuck.set_properties({"DeadLetterReason": reason, "DeadLetterErrorDescription": description})
        stuck.dead_letter_source = self.path
        self.transfer_dead_letters.enqueue([stuck])

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
            self._forward_message(letter, target)

    def runtime(self) -> EntityRuntime:
        return EntityRuntime(
            created_at=self.created_at,
            updated_at=self.updated_at,
            accessed_at=self.accessed_at,
            size_in_bytes=self.size,
            active=self.main.count(StoredState.ACTIVE) + self.main.count(StoredState.DEFERRED),
            dead_letter=len(self.dead),
            scheduled=self.main.count(StoredState.SCHEDULED),
            transfer=0,
            transfer_dead_letter=len(self.transfer_dead_letters),
            subscription_count=0,
        )

    def end(self, why: Refusal) -> None:
        super().end(why)
        for queue in self.queues:
            queue.close(why)


class QueueEntity(ReceivableEntity):
    """A queue with its messages."""

    description: QueueDescription

    def __init__(self, description: QueueDescription, context: EntityContext) -> None:
        self.description = description
        super().__init__(description.name, context, DeliverySettings.of(description))
        self.admission = BatchAdmission(self.path, context.clock, context.journal)

    def submit(self, messages: list[BrokeredMessage]) -> None:
        """Accepts a batch as a whole or refuses it as a whole."""
        self.check(messages)
        self.accept(messages)

    def check(self, messages: list[BrokeredMessage], fragment: int | None = None) -> None:
        """Refuses a batch that the entity does not accept. Nothing is stored yet."""
        self.check_sends()
        check_quota(self, messages, self.description.max_size_in_megabytes)
        self.admission.check(self.description, messages, self.main.down_fragments, fragment)

    def accept(self, messages: list[BrokeredMessage]) -> None:
        """Stores a batch that has been checked. This never fails."""
        self.touch()
        self.main.enqueue(self.admission.admit(self.description, messages))

    def runtime(self) -> EntityRuntime:
        has_partitions_of_sessions = self.description.enable_partitioning and self.description.requires_session
        return replace(super().runtime(), keeps_order=not has_partitions_of_sessions)

    def update(self, description: QueueDescription) -> None:
        self.description = description
        self._apply_settings(DeliverySettings.of(description))
        self.updated_at = self._context.clock.now()


class SubscriptionEntity(ReceivableEntity):
    """A subscription: the messages of its topic that match one of its rules."""

    description: SubscriptionDescription

    def __init__(self, description: SubscriptionDescription, context: EntityContext) -> None:
        self.description = description
        super().__init__(description.path, context, DeliverySettings.of(description))
        self.rules: dict[str, RuleDescription] = {}

    def copies(self, properties: MessageProperties) -> list[SqlAction | None]:
        """The copies of a message that the subscription gets, as the action for each.

        All matching rules without an action give one copy together. Each matching rule with an action gives one more.
        """
        actions = [rule.action for rule in self.rules.values() if rule.filter.matches(properties)]
        unchanged: list[SqlAction | None] = [None] if None in actions else []
        return unchanged + [action for action in actions if action is not None]

    def take(self, message: BrokeredMessage, action: SqlAction | None = None) -> None:
        """Stores its own copy of a message that matches one of its rules, changed by the action of that rule."""
        if action is not None:
            try:
                message = action.applied_to(message)
            except ActionFailed as failure:
                if self.description.dead_lettering_on_filter_evaluation_exceptions:
                    reason = f"The action '{action.expression}' failed: {failure}."
                    letter: dict[str, Value] = {
                        "DeadLetterReason": "RuleActionFailed",
                        "DeadLetterErrorDescription": reason,
                    }
                    self._dead_letter(message, letter)
                return
        if self.description.requires_session and message.session_id is None:
            # A sender to the topic does not know that this subscription needs sessions. So the message is not refused
            # but dead-lettered.
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
        self._apply_settings(DeliverySettings.of(description))
        self.updated_at = self._context.clock.now()


class TopicEntity(BrokerEntity):
    """A topic: it stores scheduled messages only, and gives each subscription its own copy of all others."""

    def __init__(self, description: TopicDescription, context: EntityContext) -> None:
        super().__init__(description.name, context)
        self.description = description
        self.subscriptions: dict[str, SubscriptionEntity] = {}
        self.admission = BatchAdmission(self.path, context.clock, context.journal)
        self.main = _Publishing(self.path, DeliverySettings(), context.clock, context.journal)
        self.main.publish = self.publish

    @property
    def status(self) -> EntityStatus:
        return self.description.status

    @property
    def size(self) -> int:
        return self.main.size + sum(subscription.size for subscription in self.subscriptions.values())

    def submit(self, messages: list[BrokeredMessage]) -> None:
        self.check(messages)
        self.accept(messages)

    def check(self, messages: list[BrokeredMessage], fragment: int | None = None) -> None:
        """Refuses a batch that the entity does not accept. Nothing is stored yet."""
        self.check_sends()
        check_quota(self, messages, self.description.max_size_in_megabytes)
        self.admission.check(self.description, messages, self.main.down_fragments, fragment)

    def accept(self, messages: list[BrokeredMessage]) -> None:
        """Stores a batch that has been checked. This never fails."""
        self.touch()
        self.main.enqueue(self.admission.admit(self.description, messages))

    def publish(self, message: BrokeredMessage) -> None:
        message.ttl = min(message.ttl, self.description.default_message_time_to_live)
        properties = MessageProperties(message)
        for subscription in list(self.subscriptions.values()):
            if subscription.status is EntityStatus.DISABLED:
                continue
            for action in subscription.copies(properties):
                copy = message.copy()
                copy.enqueued_sequence = message.enqueued_sequence or message.sequence
                copy.hops = message.hops
                subscription.take(copy, action)

    def update(self, description: TopicDescription) -> None:
        self.description = description
        self.updated_at = self._context.clock.now()

    def runtime(self) -> EntityRuntime:
        rules = [rule for subscription in self.subscriptions.values() for rule in subscription.rules.values()]
        by_correlation = sum(isinstance(rule.filter, CorrelationFilter) for rule in rules)
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
            sql_filter_count=len(rules) - by_correlation,  # the filter of `$Default`, which is always true, counts too
            correlation_filter_count=by_correlation,
        )

    def end(self, why: Refusal) -> None:
        super().end(why)
        self.main.close(why)
        for subscription in self.subscriptions.values():
            subscription.end(why)


class _Publishing(MessageQueue):
    """The message queue of a topic: it publishes the messages that another queue would make ready for receivers."""

    publish: Callable[[BrokeredMessage], None]

    def _offer(self, message: BrokeredMessage, back: bool = False) -> None:  # noqa: ARG002  a published message never comes back
        self._remove(message)
        self.publish(message)
