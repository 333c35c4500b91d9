"""What the path of a request names.

Three APIs share a port. The namespace's own begins at the root, where a path is an entity's, slashes and all. Azure
Resource Manager's paths begin with an Azure subscription, have a fixed number of segments, and so write the slashes in
a name as tildes. The emulator's own controls are where no entity can be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTROL = "/$emulator/"
_RESOURCE_MANAGER = re.compile(r"/subscriptions/[^/]+/(resourceGroups|providers)/", re.IGNORECASE)
_BELOW_TOPIC = re.compile(
    r"(?P<topic>.+?)/subscriptions(/(?P<subscription>[^/]+)(?P<rules>/rules(/(?P<rule>[^/]+))?)?)?", re.IGNORECASE
)
_RESOURCE = re.compile(
    r"(?P<namespace_id>/subscriptions/[^/]+/resourceGroups/(?P<group>[^/]+)"
    r"/providers/Microsoft\.ServiceBus/namespaces/(?P<namespace>[^/]+))"
    r"(/(?P<kind>queues|topics)(/(?P<name>[^/]+))?)?/?",
    re.IGNORECASE,
)


def is_control(path: str) -> bool:
    return path.startswith(_CONTROL)


def is_resource_manager(path: str) -> bool:
    return _RESOURCE_MANAGER.match(path) is not None


def entity_of(path: str) -> str:
    """The path of the entity a request is about, for counting and for arranging faults. Empty for the namespace."""
    if not is_resource_manager(path):
        return path.strip("/")
    resource = Resource.of(path)
    return resource.entity if resource else ""


@dataclass(frozen=True, slots=True)
class Address:
    """What one of the namespace's own paths names: an entity, a topic's subscriptions or one, its rules or one."""

    path: str
    topic: str | None = None
    subscription: str | None = None
    rules: bool = False
    rule: str | None = None

    @classmethod
    def of(cls, path: str) -> Address:
        path = path.strip("/")
        found = _BELOW_TOPIC.fullmatch(path)
        if found is None:
            return cls(path)
        return cls(path, found["topic"], found["subscription"], found["rules"] is not None, found["rule"])

    @property
    def subscription_path(self) -> str:
        return f"{self.topic}/subscriptions/{self.subscription}"


@dataclass(frozen=True, slots=True)
class Resource:
    """What one of Resource Manager's paths names: a namespace, its queues or topics, or one of them."""

    namespace_id: str
    group: str
    namespace: str
    kind: str = ""
    name: str = ""

    @classmethod
    def of(cls, path: str) -> Resource | None:
        found = _RESOURCE.fullmatch(path)
        if found is None:
            return None
        return cls(
            found["namespace_id"],
            found["group"],
            found["namespace"],
            (found["kind"] or "").lower(),
            found["name"] or "",
        )

    @property
    def entity(self) -> str:
        return self.name.replace("~", "/")
