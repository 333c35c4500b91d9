"""`syphon demo`: an outage from beginning to end, on this machine alone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from syphon.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    from syphon.bus.namespace import Namespace
    from syphon.emulator import BackgroundEmulator
    from syphon.transfer.outcomes import Outcome
    from syphon.transfer.pump import Tally

QUEUES = 3
PRIMARY, SECONDARY = "contoso", "contoso-dr"
ORDERS, INVOICES, NEWS = "orders", "billing/invoices", "news"


@click.command(short_help="See an outage and its end, on this machine alone.")
@click.option("--messages", default=600, show_default=True, type=click.IntRange(3, 100_000), help="How many to move.")
def demo(messages: int) -> None:
    """Take a primary namespace away, let its messages pile up in the secondary, and carry them home.

    Everything is real but Azure: two local namespaces, real AMQP, the official client on both ends. Nothing is left
    behind. It ends by checking every message at its destination.
    """
    with _two_namespaces() as emulator:
        _say("Two local namespaces are up", f"{PRIMARY} is the primary, {SECONDARY} the secondary.")
        queues = _provision(emulator)
        _outage_begins(emulator)
        sent = _fail_over(emulator, queues, messages)
        _outage_ends(emulator)
        tallies, outcomes = _carry_home(emulator, queues)
        missing = _check(emulator, sent)
        raise SystemExit(_sum_up(tallies, outcomes, missing))


def _say(what: str, more: str = "") -> None:
    click.echo(click.style(what, bold=True) + (f"  {more}" if more else ""))


@contextmanager
def _two_namespaces() -> Iterator[BackgroundEmulator]:
    from syphon.emulator import (
        BackgroundEmulator,
        EmulatorSettings,
        NamespaceSettings,
        QueueDescription,
        SubscriptionDescription,
        TopicDescription,
    )

    settings = EmulatorSettings(namespaces=[NamespaceSettings(name=PRIMARY), NamespaceSettings(name=SECONDARY)])
    with BackgroundEmulator(settings) as emulator:
        primary = emulator[PRIMARY].namespace

        def furnish() -> None:
            primary.create_queue(QueueDescription(ORDERS))
            primary.create_queue(QueueDescription(INVOICES, requires_session=True))
            primary.create_topic(TopicDescription(NEWS))
            primary.create_subscription(SubscriptionDescription(NEWS, "all"))

        emulator.call(furnish)
        yield emulator


def _provision(emulator: BackgroundEmulator) -> list[str]:
    from syphon.backlog import backlog_queues
    from syphon.backlog.provisioning import plan, provision
    from syphon.bus.data_plane import DataPlaneAdministration

    with DataPlaneAdministration.from_connection_string(emulator[SECONDARY].connection_string) as administration:
        names = [queue.name for queue in backlog_queues(PRIMARY, QUEUES)]
        done = provision(administration, plan(administration, names))
    for queue in done.queues:
        click.echo(f"  {queue}")
    return list(done.names)


def _outage_begins(emulator: BackgroundEmulator) -> None:
    from azure.servicebus import ServiceBusMessage
    from azure.servicebus.exceptions import ServiceBusError

    from syphon.emulator import Outage

    emulator.call(lambda: emulator[PRIMARY].namespace.faults.begin_outage(Outage.REFUSE))
    _say("\nThe primary goes down.")
    try:
        with _client(emulator, PRIMARY) as client, client.get_queue_sender(ORDERS) as sender:
            sender.send_messages(ServiceBusMessage("anybody there?"))
    except ServiceBusError as error:
        click.echo(f"  a sender sees: {type(error).__name__}: {error}")


def _fail_over(emulator: BackgroundEmulator, queues: list[str], count: int) -> dict[str, ServiceBusMessage]:
    """What senders do then: their messages go to a backlog queue, aliased."""
    sent = {f"m{number}": _message(number) for number in range(count)}
    with _client(emulator, SECONDARY) as client:
        for index, queue in enumerate(queues):
            share = list(sent.values())[index :: len(queues)]
            with client.get_queue_sender(queue) as sender:
                for start in range(0, len(share), 100):
                    sender.send_messages(share[start : start + 100])
                if index == 0:
                    sender.send_messages(_without_destination())
            click.echo(f"  {len(share) + (index == 0)} messages wait in {queue}")
    return sent


def _message(number: int) -> ServiceBusMessage:
    from azure.servicebus import ServiceBusMessage

    path = (ORDERS, INVOICES, NEWS)[number % 3]
    properties: dict[Any, Any] = {"x-ms-path": path, "number": number}
    if path == INVOICES:
        properties["x-ms-sessionid"] = f"customer-{number % 5}"
    if path == ORDERS:
        properties["x-ms-timetolive"] = "PT2H"
    return ServiceBusMessage(f"message {number}", message_id=f"m{number}", application_properties=properties)


def _without_destination() -> ServiceBusMessage:
    from azure.servicebus import ServiceBusMessage

    return ServiceBusMessage("whose is it?", message_id="stray", application_properties={"x-ms-path": ""})


def _outage_ends(emulator: BackgroundEmulator) -> None:
    emulator.call(emulator[PRIMARY].namespace.faults.end_outage)
    _say("\nThe primary is back.", "The syphon carries the backlog home:")


def _carry_home(emulator: BackgroundEmulator, queues: list[str]) -> tuple[list[Tally], list[Outcome]]:
    from syphon.transfer.pump import Pump, PumpOptions

    tallies: list[Tally] = []
    outcomes: list[Outcome] = []
    primary, secondary = _namespace(emulator, PRIMARY, ORDERS), _namespace(emulator, SECONDARY, queues[0])
    for queue in queues:
        began = time.monotonic()
        tally = Pump(queue, secondary, primary, outcomes.append, PumpOptions(quiet=1.0)).run()
        took = max(0.01, time.monotonic() - began - 1.0)
        click.echo(
            f"  {queue}: {tally.forwarded} forwarded, {tally.dead_lettered} dead-lettered, {tally.left} left "
            f"({tally.received / took:,.0f} messages/s)"
        )
        tallies.append(tally)
    primary.close()
    secondary.close()
    return tallies, outcomes


def _namespace(emulator: BackgroundEmulator, name: str, entity: str) -> Namespace:
    from pydantic import SecretStr

    from syphon.bus.opening import namespace_of
    from syphon.config import NamespaceSettings

    return namespace_of(NamespaceSettings(connection_string=SecretStr(emulator[name].connection_string)), entity)


def _check(emulator: BackgroundEmulator, sent: dict[str, ServiceBusMessage]) -> list[str]:
    """Every message, at its destination, once, with what failover took from it."""
    _say("\nEvery message is looked for at its destination:")
    problems: list[str] = []
    arrived: Counter[str] = Counter()
    with _client(emulator, PRIMARY) as client:
        for where, message in _arrivals(client):
            arrived[str(message.message_id)] += 1
            number = int(message.application_properties[b"number"])
            if any(bytes(key).startswith(b"x-ms-") for key in message.application_properties):
                problems.append(f"{message.message_id} still has an alias")
            if where == INVOICES and message.session_id != f"customer-{number % 5}":
                problems.append(f"{message.message_id} has lost its session")
            if where == ORDERS and message.time_to_live != timedelta(hours=2):
                problems.append(f"{message.message_id} has lost its time to live")
    problems += [f"{identity} is missing" for identity in sent if identity not in arrived]
    problems += [f"{identity} came {times} times" for identity, times in arrived.items() if times > 1]
    as_sent = "" if problems else "; sessions and time to live are as the senders set them"
    click.echo(f"  {len(arrived)} of {len(sent)} arrived{as_sent}")
    return problems


def _arrivals(client: ServiceBusClient) -> Iterator[tuple[str, Any]]:
    from azure.servicebus import ServiceBusReceiveMode

    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    receivers = [(ORDERS, client.get_queue_receiver(ORDERS, receive_mode=mode))]
    receivers.append((NEWS, client.get_subscription_receiver(NEWS, "all", receive_mode=mode)))
    for customer in range(5):
        session = client.get_queue_receiver(INVOICES, session_id=f"customer-{customer}", receive_mode=mode)
        receivers.append((INVOICES, session))
    for where, receiver in receivers:
        with receiver:
            while batch := receiver.receive_messages(1000, max_wait_time=0.5):
                for message in batch:
                    yield where, message


def _sum_up(tallies: list[Tally], outcomes: list[Outcome], problems: list[str]) -> ExitCode:
    received, forwarded = sum(t.received for t in tallies), sum(t.forwarded for t in tallies)
    dead, left = sum(t.dead_lettered for t in tallies), sum(t.left for t in tallies)
    account = f"{received} received = {forwarded} forwarded + {dead} dead-lettered + {left} left."
    _say("\nThe account balances:", account)
    for outcome in outcomes:
        if outcome.result == "dead_lettered":
            click.echo(f"  dead-lettered: {outcome.reason}")
    for problem in problems[:20]:
        click.echo(f"  {problem}", err=True)
    _say("Nothing was lost." if not problems else f"{len(problems)} problems.")
    return ExitCode.OK if not problems and received == forwarded + dead + left else ExitCode.LEFT


def _client(emulator: BackgroundEmulator, name: str) -> ServiceBusClient:
    from azure.servicebus import ServiceBusClient

    return ServiceBusClient.from_connection_string(emulator[name].connection_string, retry_total=0)
