"""Entities that are created when a client first uses them: which ones a path names, and with what settings."""

from __future__ import annotations

import fnmatch
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .descriptions import EntityDescription, QueueDescription, SubscriptionDescription, TopicDescription
from .refusals import EntityExists

if TYPE_CHECKING:
    from .namespace import BrokerNamespace


@dataclass(frozen=True, slots=True)
class EntityTemplates:
    """One description of each kind, with a name that is replaced."""

    queue: QueueDescription
    topic: TopicDescription
    subscription: SubscriptionDescription
    topics: tuple[str, ...] = ()
    """Patterns of the names that are topics: a sender does not say whether it means a queue or a topic."""

    def create(self, namespace: BrokerNamespace, path: str) -> None:
        """Creates what a path names and does not exist."""
        for description in self._wanted(path):
            with suppress(EntityExists):
                match description:
                    case QueueDescription():
                        namespace.create_queue(description)
                    case TopicDescription():
                        namespace.create_topic(description)
                    case SubscriptionDescription():
                        namespace.create_subscription(description)

    def _wanted(self, path: str) -> list[EntityDescription]:
        """The entities that a path names, a topic before its subscription."""
        at = path.lower().find("/subscriptions/")
        if at >= 0:
            topic, name = path[:at], path[at + len("/subscriptions/") :]
            return [replace(self.topic, name=topic), replace(self.subscription, topic=topic, name=name)]
        if any(fnmatch.fnmatchcase(path.lower(), pattern.lower()) for pattern in self.topics):
            return [replace(self.topic, name=path)]
        return [replace(self.queue, name=path)]
