"""A namespace for tests of the data source: a real emulator, and messages put into it past its sockets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from syphon.amqp import (
    Header,
    Map,
    Message,
    Properties,
    Section,
    Symbol,
    Value,
    data_section,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.emulator import (
    BackgroundEmulator,
    EmulatorSettings,
    Kind,
    NamespaceSettings,
    PolicySettings,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.broker.message import BrokeredMessage
from syphon.emulator.broker.namespace import BrokerNamespace
from syphon.emulator.broker.refusals import Refusal

KEY = "a-key-that-must-not-be-seen"


@dataclass
class SourceBus:
    """A namespace, and what a test does with it."""

    emulator: BackgroundEmulator

    @property
    def broker(self) -> BrokerNamespace:
        return self.emulator["contoso"].namespace

    @property
    def string(self) -> str:
        return self.emulator["contoso"].connection_string_for("owner")

    def options(self, entity: str, **options: Any) -> dict[str, str]:
        return {
            "connection_string": self.string,
            "entity": entity,
            **{key: str(value) for key, value in options.items()},
        }

    def queue(self, name: str, **options: Any) -> str:
        self.emulator.call(lambda: self.broker.create_queue(QueueDescription(name, **options)))
        return name

    def subscription(self, topic: str, name: str) -> str:
        """A topic with one subscription. Returns the subscription's path."""

        def create() -> None:
            self.broker.create_topic(TopicDescription(topic))
            self.broker.create_subscription(SubscriptionDescription(topic, name))

        self.emulator.call(create)
        return f"{topic}/Subscriptions/{name}"

    def put(self, path: str, *payloads: bytes) -> None:
        """Messages into a queue or subscription, whatever they are."""
        self.emulator.call(lambda: self.broker.message_queue(path).enqueue([_brokered(each) for each in payloads]))

    def spread(self, path: str) -> None:
        """Messages into all partitions of a partitioned entity."""
        made = [message(annotations={"x-opt-partition-key": f"key {number}"}) for number in range(60)]
        target = self.broker.target(path)
        for each in made:
            self.emulator.call(lambda each=each: target.submit([BrokeredMessage.parse(each)]))  # type: ignore[misc]

    def take(self, path: str, numbers: Sequence[int]) -> None:
        """Removes messages by their sequence numbers, as receivers do."""

        def take() -> None:
            queue = self.broker.message_queue(path)
            for number in numbers:
                queue._remove(queue._messages[number])

        self.emulator.call(take)

    def unlock(self, path: str, deferred: BrokeredMessage) -> None:
        """Ends the lock of a deferred message, as if it had expired."""
        token = deferred.lock_token
        assert token is not None
        self.emulator.call(lambda: self.broker.message_queue(path).defer(token))

    def payloads(self, path: str) -> list[bytes]:
        """All messages of a queue, in their order, as the broker has them."""
        return self.emulator.call(lambda: [found.peeked() for found in self.broker.message_queue(path).peek(0, 10**6)])

    def messages(self, path: str) -> list[Message]:
        return [Message(payload) for payload in self.payloads(path)]

    def peeks(self, path: str) -> int:
        """How many messages were peeked at, empty peeks included."""
        return self.emulator.call(lambda: self.broker.counters.of(path, Kind.PEEK))


def message(
    body: bytes = b"x",
    properties: dict[str, Value] | None = None,
    annotations: dict[str, Value] | None = None,
    header: Header | None = None,
    **fields: Value,
) -> bytes:
    """A message as a sender makes it."""
    parts = [header_bytes(header)] if header is not None else []
    if annotations:
        pairs = tuple((Symbol(name), value) for name, value in annotations.items())
        parts.append(section_bytes(Section.MESSAGE_ANNOTATIONS, Map(pairs)))
    if fields:
        parts.append(properties_bytes(Properties(**fields)))
    if properties:
        parts.append(section_bytes(Section.APPLICATION_PROPERTIES, Map.of(properties)))
    return b"".join((*parts, data_section(body)))


def _brokered(payload: bytes) -> BrokeredMessage:
    try:
        return BrokeredMessage.parse(payload)
    except Refusal:  # what no sender could send; a broker holds it all the same
        found = BrokeredMessage()
        found.bare, found.size = payload, len(payload)
        return found


@contextmanager
def source_bus() -> Iterator[SourceBus]:
    policies = [PolicySettings(name="owner", key=SecretStr(KEY))]
    namespaces = [NamespaceSettings(name=name, policies=policies) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces)) as emulator:
        yield SourceBus(emulator)
