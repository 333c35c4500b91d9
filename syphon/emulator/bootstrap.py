"""The start of a namespace: restores the state of an earlier process and creates the entities of the settings.

Neither is checked like a request of a client. The settings were checked when they were read. Restored entities are
accepted as they were, also where one forwards to another that comes later in the list.
"""

from __future__ import annotations

from .broker import (
    DEFAULT_RULE,
    BrokerNamespace,
    EntityDescription,
    QueueDescription,
    Refusal,
    RuleDescription,
    SessionQueue,
    SubscriptionDescription,
    TopicDescription,
)
from .clock import Millis
from .settings import NamespaceSettings
from .state import StateSnapshot, StateUnusable


def create_configured_entities(namespace: BrokerNamespace, settings: NamespaceSettings) -> None:
    """Creates the entities of the settings that do not exist yet."""
    there = {description.path.lower() for description in namespace.descriptions()}
    wanted: list[EntityDescription] = [*(queue.description() for queue in settings.queues)]
    for topic in settings.topics:
        wanted += [topic.description(), *(entry.description(topic.name) for entry in topic.subscriptions)]
    new = [description for description in wanted if description.path.lower() not in there]
    for description in new:
        namespace.add_entity(description)
        namespace.journal.describe(description.path, description)
    made = {description.path.lower() for description in new}
    for topic in settings.topics:
        for entry in topic.subscriptions:
            if entry.description(topic.name).path.lower() in made:
                for rule in [rule.description() for rule in entry.rules] or [DEFAULT_RULE]:
                    namespace.create_rule(topic.name, entry.name, rule)


def restore(namespace: BrokerNamespace, snapshot: StateSnapshot, now: Millis) -> None:
    """Restores the state that an earlier process acknowledged."""
    try:
        _restore(namespace, snapshot, now)
    except Refusal as refusal:
        raise StateUnusable(
            f"The state of namespace {namespace.name} is not consistent: {refusal.description} "
            "Put a good copy in its place, or name another directory."
        ) from None


def _restore(namespace: BrokerNamespace, snapshot: StateSnapshot, now: Millis) -> None:
    for path, record in snapshot.entities:
        if isinstance(record, QueueDescription | TopicDescription | SubscriptionDescription):
            namespace.add_entity(record)
        elif isinstance(record, RuleDescription):
            namespace.add_rule_entry(path, record)
    for path, number in snapshot.numbers.items():
        namespace.message_queue(path).continue_after(number)
    for path, message in snapshot.messages:
        namespace.message_queue(path).restore(message)
    for path in {path for path, _ in snapshot.messages}:
        namespace.message_queue(path).restored()
    for path, session_id, state, updated_at in snapshot.sessions:
        queue = namespace.message_queue(path)
        if isinstance(queue, SessionQueue):
            queue.restore_session(session_id, state, updated_at)
    for path, message_id, at in snapshot.seen:
        entity = namespace.target(path)
        if now - at < entity.description.duplicate_detection_history_time_window:
            entity.admission.duplicates.restore(message_id, at)
