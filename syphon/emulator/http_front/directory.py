"""What the HTTP fronts ask of a namespace. The broker's namespace is one; a test may bring another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..broker.descriptions import (
    Claim,
    EntityDescription,
    EntityRuntime,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
)
from ..broker.faults import Fault
from ..clock import Millis


class Directory(Protocol):
    """The entities of a namespace. Every method may raise a `Refusal`; lookups ignore case."""

    @property
    def name(self) -> str: ...

    @property
    def tier(self) -> Tier: ...

    @property
    def host(self) -> str:
        """Where its AMQP clients connect, such as `127.0.0.1:5672`."""

    @property
    def created_at(self) -> Millis: ...

    def authorize_http(self, authorization: str | None, path: str, claim: Claim) -> None:
        """Refuse an `Authorization` header that is missing, no good, or without the claim."""

    def authorize_arm(self, authorization: str | None) -> None:
        """Refuse a bearer token the namespace's settings do not accept."""

    def queues(self) -> list[QueueDescription]:
        """All queues, by name."""

    def topics(self) -> list[TopicDescription]: ...

    def subscriptions(self, topic: str) -> list[SubscriptionDescription]: ...

    def rules(self, topic: str, subscription: str) -> list[RuleDescription]: ...

    def create_queue(self, description: QueueDescription) -> QueueDescription: ...

    def update_queue(self, description: QueueDescription) -> QueueDescription: ...

    def create_topic(self, description: TopicDescription) -> TopicDescription: ...

    def update_topic(self, description: TopicDescription) -> TopicDescription: ...

    def create_subscription(
        self, description: SubscriptionDescription, default_rule: RuleDescription
    ) -> SubscriptionDescription: ...

    def update_subscription(self, description: SubscriptionDescription) -> SubscriptionDescription: ...

    def create_rule(self, topic: str, subscription: str, description: RuleDescription) -> RuleDescription: ...

    def update_rule(self, topic: str, subscription: str, description: RuleDescription) -> RuleDescription: ...

    def delete(self, path: str) -> None: ...

    def delete_rule(self, topic: str, subscription: str, rule: str) -> None: ...

    def describe(self, path: str) -> EntityDescription:
        """What is at a path; a subscription is at `topic/subscriptions/name`."""

    def runtime(self, path: str) -> EntityRuntime: ...


class Faults(Protocol):
    """What was arranged to go wrong."""

    async def http(self, path: str) -> Fault | None:
        """Delay the request, refuse it, or raise `ConnectionDropped`, as arranged."""

    def after_http(self, fault: Fault | None) -> None:
        """Raise `ConnectionDropped` if the answer is to be lost."""


class Counters(Protocol):
    """What is counted, by entity."""

    def add(self, entity: str, kind: str) -> None: ...


class Journal(Protocol):
    """Where changes are written down."""

    @property
    def trouble(self) -> str | None:
        """Why nothing can be kept at present."""

    def when_durable(self, callback: Callable[[], None], failed: Callable[[str], None] | None = None) -> None: ...


class Watched(Protocol):
    """A namespace whose requests are counted, can be made to fail, and are answered when they will not be undone."""

    @property
    def faults(self) -> Faults: ...

    @property
    def counters(self) -> Counters: ...

    @property
    def journal(self) -> Journal: ...
