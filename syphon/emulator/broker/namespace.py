"""A namespace: its entities by path, access to them, and the faults set for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TypeVar

from ..clock import FOREVER, EmulatorClock, Millis, Timer
from .access import Access, Grant, Policy
from .counters import OperationCounters
from .description_rules import as_stored, check_update, validate
from .descriptions import (
    DEFAULT_RULE,
    AuthorizationRule,
    Claim,
    EntityDescription,
    EntityRuntime,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
)
from .entities import QueueEntity, SubscriptionEntity, TopicEntity
from .entity_templates import EntityTemplates
from .faults import FaultInjector
from .journal import Journal
from .message import BrokeredMessage, StoredState
from .queue import MessageQueue
from .refusals import KNOW_MORE, BadArgument, EntityExists, EntityNotFound, NotAllowed, Unauthorized

D = TypeVar("D", bound=EntityDescription)


@dataclass(frozen=True, slots=True)
class NamespaceIdentity:
    """The settings that a namespace has from its start."""

    name: str
    host: str
    tier: Tier
    policies: tuple[Policy, ...]
    accept_any_jwt: bool
    any_host: bool = False
    """Whether tokens may name any host: in a container the emulator does not know what its clients call it."""
    templates: EntityTemplates | None = None
    """What is created when a client first uses an entity that does not exist. None refuses it, as the service does."""


class BrokerNamespace:
    """One Service Bus namespace in memory."""

    def __init__(self, identity: NamespaceIdentity, clock: EmulatorClock, journal: Journal, seed: int = 0) -> None:
        self.name = identity.name
        self.tier = identity.tier
        self.host = identity.host
        self.clock = clock
        self.journal = journal
        self.created_at: Millis = clock.now()
        self.counters = OperationCounters()
        self.faults = FaultInjector(clock, seed)
        own = self.name, f"{self.name}.servicebus.windows.net", f"{self.name}.localhost", self.host
        hosts = {*own, "localhost", "127.0.0.1", "::1"}
        self.access = Access(
            None if identity.any_host else hosts, identity.policies, identity.accept_any_jwt, self._rules_of
        )
        self._templates = identity.templates
        self._queues: dict[str, QueueEntity] = {}
        self._topics: dict[str, TopicEntity] = {}
        self._idle_timers: dict[str, Timer] = {}

    # --- limits ----------------------------------------------------------------------------------------------------

    def max_message_size(self, entity: QueueEntity | TopicEntity) -> int:
        """The largest message that a link to the entity accepts, in bytes."""
        kilobytes = entity.description.max_message_size_in_kilobytes
        if kilobytes is not None:
            return kilobytes * 1024
        return 1024 * 1024 if self.tier is Tier.PREMIUM else 256 * 1024

    def max_batch_size(self, entity: QueueEntity | TopicEntity) -> int:
        """The largest batch in bytes: at most 1 MB, even if a single message may be larger."""
        return min(self.max_message_size(entity), 1024 * 1024)

    # --- finding ---------------------------------------------------------------------------------------------------

    def target(self, path: str) -> QueueEntity | TopicEntity:
        """The entity that a sender can send to."""
        key = path.strip("/").lower()
        entity = self._queues.get(key) or self._topics.get(key)
        if entity is None:
            if "/subscriptions/" in key or "/$" in key:
                raise NotAllowed(f"Messages cannot be sent to '{path}'.")
            raise self._missing(path)
        return entity

    def source(self, path: str) -> tuple[QueueEntity | SubscriptionEntity, MessageQueue]:
        """The entity that a receiver can receive from, and the message queue that the path names."""
        entity_path, sub_queue = split_sub_queue(path.strip("/"))
        entity = self._find(entity_path)
        if isinstance(entity, TopicEntity):
            raise NotAllowed(f"'{path}' is a topic: messages are received from its subscriptions.")
        return entity, entity.sub_queue(sub_queue)

    def message_queue(self, path: str) -> MessageQueue:
        """The message queue at a path, also of an entity that forwards: messages from the journal belong there."""
        entity_path, sub_queue = split_sub_queue(path)
        entity = self._find(entity_path)
        if isinstance(entity, TopicEntity) or not sub_queue:
            return entity.main
        return entity.sub_queue(sub_queue)

    def entity(self, path: str) -> QueueEntity | TopicEntity | SubscriptionEntity:
        return self._find(path.strip("/"))

    def top_level(self, path: str) -> str:
        """The queue or topic that a path belongs to, in lower case: the scope of a transaction."""
        entity = self._find(split_sub_queue(path.strip("/"))[0])
        return (entity.description.topic if isinstance(entity, SubscriptionEntity) else entity.path).lower()

    def _find(self, path: str) -> QueueEntity | TopicEntity | SubscriptionEntity:
        key = path.lower()
        entity = self._queues.get(key) or self._topics.get(key)
        if entity is not None:
            return entity
        topic, found, name = key.partition("/subscriptions/")
        if found and topic in self._topics and name in self._topics[topic].subscriptions:
            return self._topics[topic].subscriptions[name]
        raise self._missing(path)

    def check_exists(self, path: str, address: str) -> None:
        """Refuses an address with the path of an entity, a sub-queue or a node that does not exist."""
        entity_path = path.strip("/").lower().removesuffix("/$management")
        entity, _ = split_sub_queue(entity_path)
        if entity and not entity.startswith("$") and self._templates is None:
            try:
                self._find(entity)
            except EntityNotFound:
                raise _not_found(address) from None

    def _missing(self, path: str) -> EntityNotFound:
        return _not_found(self._address(path))

    def _address(self, path: str) -> str:
        return f"sb://{self.host}/{path}"

    def _topic(self, name: str) -> TopicEntity:
        topic = self._topics.get(name.lower())
        if topic is None:
            raise self._missing(name)
        return topic

    def _subscription(self, topic: str, name: str) -> SubscriptionEntity:
        subscription = self._topic(topic).subscriptions.get(name.lower())
        if subscription is None:
            raise self._missing(f"{topic}/subscriptions/{name}")
        return subscription

    def queues(self) -> list[QueueDescription]:
        return [self._queues[key].description for key in sorted(self._queues)]

    def topics(self) -> list[TopicDescription]:
        return [self._topics[key].description for key in sorted(self._topics)]

    def subscriptions(self, topic: str) -> list[SubscriptionDescription]:
        found = self._topic(topic).subscriptions
        return [found[key].description for key in sorted(found)]

    def rules(self, topic: str, subscription: str) -> list[RuleDescription]:
        found = self._subscription(topic, subscription).rules
        return [found[key] for key in sorted(found)]

    def descriptions(self) -> list[EntityDescription]:
        """All entities, subscriptions after their topics."""
        below = [entry for topic in self._topics for entry in self.subscriptions(topic)]
        return [*self.queues(), *self.topics(), *below]

    def describe(self, path: str) -> EntityDescription:
        return self._find(path.strip("/")).description

    def runtime(self, path: str) -> EntityRuntime:
        runtime = self._find(path.strip("/")).runtime()
        if self.faults.hides_counts():
            # A throttled namespace does not count: it reports 0 until the throttling is over.
            return replace(runtime, active=0, dead_letter=0, scheduled=0, transfer=0, transfer_dead_letter=0)
        return runtime

    # --- making and changing ---------------------------------------------------------------------------------------

    def create_queue(self, description: QueueDescription) -> QueueDescription:
        validate(description, self.tier)
        self._check_free(description.name)
        self._check_forwarding(description)
        return self._create(description)

    def create_topic(self, description: TopicDescription) -> TopicDescription:
        validate(description, self.tier)
        self._check_free(description.name)
        return self._create(description)

    def create_subscription(
        self, description: SubscriptionDescription, default_rule: RuleDescription = DEFAULT_RULE
    ) -> SubscriptionDescription:
        validate(description, self.tier)
        validate(default_rule, self.tier)
        if description.name.lower() in self._topic(description.topic).subscriptions:
            raise self._taken(description.path)
        self._check_forwarding(description)
        stored = self._create(description)
        self.create_rule(description.topic, description.name, default_rule)
        return stored

    def create_on_demand(self, path: str) -> None:
        """Creates the entity at a path if there is none and the settings have a template for it."""
        if self._templates is not None:
            self._templates.create(self, split_sub_queue(path.strip("/").removesuffix("/$management"))[0])

    def add_entity(self, description: EntityDescription) -> None:
        """Adds an entity without checks and without the journal: it existed before, or the caller records it."""
        description = as_stored(description)
        key = description.name.lower()
        if isinstance(description, QueueDescription):
            self._queues[key] = QueueEntity(description, self)
        elif isinstance(description, TopicDescription):
            self._topics[key] = TopicEntity(description, self)
        else:
            self._topic(description.topic).subscriptions[key] = SubscriptionEntity(description, self)
        self._watch_idleness(description.path, description.auto_delete_on_idle)

    def add_rule_entry(self, path: str, rule: RuleDescription) -> None:
        topic, _, rest = path.partition("/subscriptions/")
        self._subscription(topic, rest.partition("/rules/")[0]).rules[rule.name.lower()] = rule

    def _create(self, description: D) -> D:
        stored = as_stored(description)
        self.add_entity(stored)
        self.journal.describe(stored.path, stored)
        return stored

    def create_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        validate(rule, self.tier)
        found = self._subscription(topic, subscription)
        if rule.name.lower() in found.rules:
            raise self._taken(f"{found.path}/rules/{rule.name}")
        found.rules[rule.name.lower()] = rule
        self._describe_rule(found, rule)
        return rule

    def update_queue(self, description: QueueDescription) -> QueueDescription:
        validate(description, self.tier)
        queue = self._find(description.name)
        if not isinstance(queue, QueueEntity):
            raise self._missing(description.name)
        stored = self._check_change(queue.description, description)
        queue.update(stored)
        self._changed(queue)
        return stored

    def update_topic(self, description: TopicDescription) -> TopicDescription:
        validate(description, self.tier)
        topic = self._topic(description.name)
        stored = self._check_change(topic.description, description)
        topic.update(stored)
        self._changed(topic)
        return stored

    def update_subscription(self, description: SubscriptionDescription) -> SubscriptionDescription:
        validate(description, self.tier)
        subscription = self._subscription(description.topic, description.name)
        stored = self._check_change(subscription.description, description)
        subscription.update(stored)
        self._changed(subscription)
        return stored

    def update_rule(self, topic: str, subscription: str, rule: RuleDescription) -> RuleDescription:
        validate(rule, self.tier)
        found = self._subscription(topic, subscription)
        if rule.name.lower() not in found.rules:
            raise self._missing(f"{found.path}/rules/{rule.name}")
        found.rules[rule.name.lower()] = rule
        self._describe_rule(found, rule)
        return rule

    def delete(self, path: str) -> None:
        entity = self._find(path.strip("/"))
        key = entity.path.lower()
        if isinstance(entity, SubscriptionEntity):
            del self._topic(entity.description.topic).subscriptions[entity.description.name.lower()]
        else:
            self._queues.pop(key, None)
            self._topics.pop(key, None)
        entity.end(EntityNotFound(f"The messaging entity '{self._address(entity.path)}' was deleted."))
        # Last, because links return messages when they end, and the journal must remove those too.
        for gone in (entity, *(entity.subscriptions.values() if isinstance(entity, TopicEntity) else ())):
            self._forget(gone)

    def _forget(self, entity: QueueEntity | TopicEntity | SubscriptionEntity) -> None:
        timer = self._idle_timers.pop(entity.path.lower(), None)
        if timer is not None:
            timer.cancel()
        self.journal.forget(entity.path)
        for rule in entity.rules if isinstance(entity, SubscriptionEntity) else ():
            self.journal.forget(f"{entity.path}/rules/{rule}")

    def delete_rule(self, topic: str, subscription: str, rule: str) -> None:
        found = self._subscription(topic, subscription)
        if found.rules.pop(rule.lower(), None) is None:
            raise self._missing(f"{found.path}/rules/{rule}")
        self.journal.forget(f"{found.path}/rules/{rule.lower()}")

    def _check_free(self, name: str) -> None:
        if name.lower() in self._queues or name.lower() in self._topics:
            raise self._taken(name)

    def _taken(self, path: str) -> EntityExists:
        return EntityExists(f"The messaging entity '{self._address(path)}' already exists. {KNOW_MORE}")

    def _check_forwarding(self, description: EntityDescription) -> None:
        if isinstance(description, TopicDescription):
            return
        for target in (description.forward_to, description.forward_dead_lettered_messages_to):
            if target is not None and target.lower() not in self._queues and target.lower() not in self._topics:
                raise BadArgument(f"'{description.path}' cannot forward to '{target}': there is no such entity.")

    def _check_change(self, old: EntityDescription, new: D) -> D:
        """Refuses a change that an existing entity does not allow, and returns the new description to store."""
        check_update(old, new)
        self._check_forwarding(new)
        return as_stored(new)

    def _changed(self, entity: QueueEntity | TopicEntity | SubscriptionEntity) -> None:
        self.journal.describe(entity.path, entity.description)
        entity.touch()
        self._watch_idleness(entity.path, entity.description.auto_delete_on_idle)
        for link in list(entity.links):
            link.recheck()

    def _describe_rule(self, subscription: SubscriptionEntity, rule: RuleDescription) -> None:
        self.journal.describe(f"{subscription.path}/rules/{rule.name.lower()}", rule)

    def _watch_idleness(self, path: str, limit: Millis) -> None:
        timer = self._idle_timers.pop(path.lower(), None)
        if timer is not None:
            timer.cancel()
        if limit < FOREVER:
            due = _used_at(self.entity(path)) + limit
            self._idle_timers[path.lower()] = self.clock.call_at(due, lambda: self._end_if_idle(path, limit))

    def _end_if_idle(self, path: str, limit: Millis) -> None:
        entity = self.entity(path)
        if entity.links or entity.main.count(StoredState.SCHEDULED):
            entity.touch()
        if self.clock.now() - _used_at(entity) >= limit:
            self.delete(path)
        else:
            self._watch_idleness(path, limit)

    # --- messages and rights ---------------------------------------------------------------------------------------

    def forward(self, message: BrokeredMessage, target: str) -> None:
        self.target(target).submit([message])

    def set_fragments_down(self, path: str, fragments: set[int]) -> None:
        """Makes these fragments of a partitioned entity unavailable, and all others available."""
        entity = self.entity(path)
        queues = [entity.main] + (
            [s.main for s in entity.subscriptions.values()] if isinstance(entity, TopicEntity) else []
        )
        for queue in queues:
            queue.set_fragments_down(fragments)

    def authorize(self, grants: list[Grant], path: str, claim: Claim) -> None:
        """Refuses access unless a grant that has not expired covers the path and the claim."""
        now = self.access.seconds()
        if not any(grant.covers(path.strip("/"), claim) and grant.expires_at > now for grant in grants):
            raise Unauthorized(
                f"Unauthorized access. '{claim}' claim(s) are required to perform this operation. "
                f"Resource: 'sb://{self.host}/{path}'."
            )

    def authorize_http(self, authorization: str | None, path: str, claim: Claim) -> None:
        if not authorization:
            raise Unauthorized("MissingToken: the request has no Authorization header.")
        token = authorization.removeprefix("Bearer ")
        grant = self.access.token(token, f"sb://{self.host}/{path}")
        self.authorize([grant], path, claim)

    def authorize_arm(self, authorization: str | None) -> None:
        if not authorization or not authorization.startswith("Bearer "):
            raise Unauthorized("AuthenticationFailed: the request has no bearer token.")
        self.access.token(authorization.removeprefix("Bearer "), f"sb://{self.host}/")

    def _rules_of(self, path: str) -> tuple[AuthorizationRule, ...]:
        """The authorization rules of a queue or topic. They cover its subscriptions and dead letters too."""
        while path:
            entity = self._queues.get(path) or self._topics.get(path)
            if entity is not None:
                return entity.description.authorization_rules
            path = path.rpartition("/")[0]
        return ()


def _not_found(address: str) -> EntityNotFound:
    return EntityNotFound(f"The messaging entity '{address}' could not be found. {KNOW_MORE}")


def _used_at(entity: QueueEntity | TopicEntity | SubscriptionEntity) -> Millis:
    """The time of the last use. A scheduled message counts as a use until it becomes active."""
    return max(entity.accessed_at, entity.main.activated_at)


_SUB_QUEUE = re.compile(r"^(.*?)/(\$deadletterqueue|\$transfer/\$deadletterqueue)$", re.IGNORECASE)


def split_sub_queue(path: str) -> tuple[str, str]:
    """Splits an address into the entity and its sub-queue (an empty string if there is none)."""
    match = _SUB_QUEUE.match(path)
    return (match[1], match[2]) if match else (path, "")
