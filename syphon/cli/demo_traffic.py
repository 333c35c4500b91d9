"""The demo's two namespaces and its messages: orders with a time to live, some of them scheduled, invoices in sessions,
and news on a topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusReceiver

from syphon.emulator import (
    BackgroundEmulator,
    EmulatorSettings,
    NamespaceSettings,
    Outage,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.sender import PairedClient

PRIMARY, SECONDARY = "contoso", "contoso-dr"
ORDERS, INVOICES, NEWS = "orders", "billing/invoices", "news"
CUSTOMERS = 5
TWO_HOURS = timedelta(hours=2)
FOR_LATER = 7
"""Every seventh order is scheduled."""
LATER = datetime(2100, 1, 1, tzinfo=UTC)
LIST = 30
"""Messages in one call of a sender."""


@dataclass
class Arrivals:
    """The messages found at the destinations."""

    times: Counter[str] = field(default_factory=Counter)
    """How often each message was found."""
    problems: list[str] = field(default_factory=list)

    def add(self, where: str, message: Any) -> None:
        identity = str(message.message_id)
        self.times[identity] += 1
        number = int(message.application_properties[b"number"])
        if any(bytes(key).startswith(b"x-ms-") for key in message.application_properties):
            self.problems.append(f"{identity} still has an alias")
        if where == INVOICES and message.session_id != _customer(number):
            self.problems.append(f"{identity} has lost its session")
        if where == ORDERS and message.time_to_live != TWO_HOURS:
            self.problems.append(f"{identity} has lost its time to live")
        if where == ORDERS and (message.scheduled_enqueue_time_utc == LATER) != _is_for_later(number):
            self.problems.append(f"{identity} has lost its schedule")


class Shop:
    """A shop with a queue, a session queue and a topic, in two namespaces."""

    def __init__(self, emulator: BackgroundEmulator) -> None:
        self._emulator = emulator
        self.primary = emulator[PRIMARY].connection_string
        self.secondary = emulator[SECONDARY].connection_string

    # --- the outage ----------------------------------------------------------------------------------------------

    def take_primary_down(self) -> None:
        self._emulator.call(lambda: self._emulator[PRIMARY].namespace.faults.begin_outage(Outage.REFUSE))

    def bring_primary_back(self) -> None:
        self._emulator.call(self._emulator[PRIMARY].namespace.faults.end_outage)

    def backlog_size(self) -> int:
        namespace = self._emulator[SECONDARY].namespace
        return self._emulator.call(
            lambda: sum(namespace.runtime(f"{PRIMARY}/x-servicebus-transfer/{index}").active for index in range(3))
        )

    def clients(self) -> tuple[ServiceBusClient, ServiceBusClient]:
        """The SDK's clients, without retries, which would make the demo long."""
        first, second = (
            ServiceBusClient.from_connection_string(text, retry_total=0) for text in (self.primary, self.secondary)
        )
        return first, second

    # --- sending -------------------------------------------------------------------------------------------------

    @contextmanager
    def senders(self, client: PairedClient) -> Iterator[Callable[[range], set[str]]]:
        """Yields a function that sends the messages of these numbers and returns the ids of the acknowledged ones."""
        with (
            client.get_queue_sender(ORDERS) as orders,
            client.get_queue_sender(INVOICES) as invoices,
            client.get_topic_sender(NEWS) as news,
        ):
            senders = (orders, invoices, news)

            def send(numbers: range) -> set[str]:
                sent: set[str] = set()
                for start in range(0, len(numbers), LIST):
                    some = [_message(number) for number in numbers[start : start + LIST]]
                    for kind, sender in enumerate(senders):
                        if mine := [message for message in some if _kind(message) == kind]:
                            sender.send_messages(mine)
                            sent |= {str(message.message_id) for message in mine}
                return sent

            yield send

    def put_stray_into_backlog(self) -> None:
        """Sends one message that names no destination, as if a person had written into the backlog."""
        stray = ServiceBusMessage("whose is it?", message_id="stray", application_properties={"x-ms-path": ""})
        with (
            ServiceBusClient.from_connection_string(self.secondary) as client,
            client.get_queue_sender(f"{PRIMARY}/x-servicebus-transfer/0") as sender,
        ):
            sender.send_messages(stray)

    # --- arriving ------------------------------------------------------------------------------------------------

    def arrivals(self) -> Arrivals:
        """Receives every message at the destinations, and peeks at the scheduled ones."""
        found = Arrivals()
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with ServiceBusClient.from_connection_string(self.primary) as client, ExitStack() as stack:
            sessions = [
                client.get_queue_receiver(INVOICES, session_id=_customer(number), receive_mode=mode)
                for number in range(CUSTOMERS)
            ]
            orders = client.get_queue_receiver(ORDERS, receive_mode=mode)
            news = client.get_subscription_receiver(NEWS, "all", receive_mode=mode)
            for where, receiver in ((ORDERS, orders), (NEWS, news), *((INVOICES, each) for each in sessions)):
                for message in _all(stack.enter_context(receiver)):
                    found.add(where, message)
            for message in _peeked(orders):
                found.add(ORDERS, message)
        return found


def _all(receiver: ServiceBusReceiver) -> Iterator[Any]:
    while batch := receiver.receive_messages(1000, max_wait_time=0.5):
        yield from batch


def _peeked(receiver: ServiceBusReceiver) -> Iterator[Any]:
    start = 1
    while page := receiver.peek_messages(250, sequence_number=start):
        yield from page
        start = max(message.sequence_number or 0 for message in page) + 1


def _message(number: int) -> ServiceBusMessage:
    message = ServiceBusMessage(f"message {number}", message_id=f"m{number}", application_properties={"number": number})
    if number % 3 == 0:
        message.time_to_live = TWO_HOURS
        message.scheduled_enqueue_time_utc = LATER if _is_for_later(number) else None
    elif number % 3 == 1:
        message.session_id = _customer(number)
    return message


def _kind(message: ServiceBusMessage) -> int:
    return int(str(message.message_id)[1:]) % 3


def _customer(number: int) -> str:
    return f"customer-{number % CUSTOMERS}"


def _is_for_later(number: int) -> bool:
    return number % FOR_LATER == 0


@contextmanager
def shop() -> Iterator[Shop]:
    """Runs the shop's two namespaces in an emulator."""
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name=PRIMARY), NamespaceSettings(name=SECONDARY)])
    with BackgroundEmulator(settings) as emulator:
        primary = emulator[PRIMARY].namespace

        def create_entities() -> None:
            primary.create_queue(QueueDescription(ORDERS))
            primary.create_queue(QueueDescription(INVOICES, requires_session=True))
            primary.create_topic(TopicDescription(NEWS))
            primary.create_subscription(SubscriptionDescription(NEWS, "all"))

        emulator.call(create_entities)
        yield Shop(emulator)
