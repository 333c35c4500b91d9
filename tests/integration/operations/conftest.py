"""A pair with a backlog to look into: a real emulator, real sockets, the real client on both ends."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from pydantic import SecretStr

from syphon.amqp import Map, Properties, Section, Value, data_section, properties_bytes, section_bytes
from syphon.backlog.queues import SelectedQueue, select_queues
from syphon.cli import main
from syphon.config import DestinationSettings, PairSettings, SideSettings
from syphon.emulator import BackgroundEmulator, Claim, EmulatorSettings, PolicySettings, QueueDescription
from syphon.emulator import NamespaceSettings as Local
from syphon.emulator.broker import Tier
from syphon.emulator.broker.message import BrokeredMessage
from syphon.emulator.broker.namespace import BrokerNamespace as Namespace
from syphon.emulator.broker.refusals import Refusal
from syphon.model import TimeToLive
from syphon.servicebus.connection import Connection

KEY = "a-key-that-must-not-be-seen"
FIRST, SECOND = "contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1"
DEAD = "$deadletterqueue"


@dataclass
class Bench:
    """Two namespaces, and what a test does with them."""

    emulator: BackgroundEmulator
    clients: list[ServiceBusClient] = field(default_factory=list)

    @property
    def primary(self) -> Namespace:
        return self.emulator["contoso"].namespace

    @property
    def secondary(self) -> Namespace:
        return self.emulator["contoso-dr"].namespace

    def string(self, name: str) -> str:
        return self.emulator[name].connection_string_for("owner")

    def client(self, name: str) -> ServiceBusClient:
        client = ServiceBusClient.from_connection_string(self.string(name), retry_total=0)
        self.clients.append(client)
        return client

    def pair(self, time_to_live: TimeToLive = TimeToLive.RESTORE, allow: tuple[str, ...] = ("*",)) -> PairSettings:
        return PairSettings(
            name="contoso",
            primary=SideSettings(connection_string=SecretStr(self.string("contoso"))),
            secondary=SideSettings(connection_string=SecretStr(self.string("contoso-dr"))),
            backlog_queue_count=2,
            destinations=DestinationSettings(allow=list(allow)),
            time_to_live=time_to_live,
        )

    def assignments(self, **options: Any) -> list[SelectedQueue]:
        return select_queues([self.pair(**options)])

    def config(self, folder: Path, allow: str = "'*'") -> Path:
        """The same pair as a file."""
        file = folder / "config.yaml"
        file.write_text(
            f"pairs:\n  - name: contoso\n    primary: {{connection_string: '{self.string('contoso')}'}}\n"
            f"    secondary: {{connection_string: '{self.string('contoso-dr')}'}}\n    backlog_queue_count: 2\n"
            f"    destinations: {{allow: [{allow}]}}\npipeline: {{master: 'local[2]'}}\n"
        )
        return file

    def queue(self, name: str, namespace: str = "contoso", **options: Any) -> None:
        """A destination, or another queue."""
        self.emulator.call(lambda: self.emulator[namespace].namespace.create_queue(QueueDescription(name, **options)))

    @contextmanager
    def connection(self, name: str = "contoso-dr", entity: str = FIRST) -> Iterator[Connection]:
        connection = Connection(self.client(name), entity)
        try:
            yield connection
        finally:
            connection.close()

    def put(self, *messages: bytes, queue: str = FIRST) -> None:
        """Messages into a queue of the secondary, past sockets: quick, and whatever they are."""

        def put() -> None:
            self.secondary.message_queue(queue).enqueue([_brokered(message) for message in messages])

        self.emulator.call(put)

    def put_spread(self, *messages: bytes, queue: str = FIRST) -> None:
        """Messages into a partitioned queue, one by one: each goes to a random partition."""

        def put() -> None:
            entity = self.secondary.target(queue)
            for message in messages:
                entity.submit([_brokered(message)])

        self.emulator.call(put)

    def partition(self, queue: str = FIRST) -> None:
        """Replaces a backlog queue by a partitioned one."""
        self.emulator.call(lambda: self.secondary.delete(queue))
        self.queue(queue, "contoso-dr", max_delivery_count=2**31 - 1, enable_partitioning=True)

    def bury(self, *messages: bytes, reason: str, description: str = "", queue: str = FIRST, taken: int = 0) -> None:
        """Messages into the dead letters of a backlog queue, the way the broker does it; `taken` of them are in it."""
        self.put(*messages, queue=queue)
        self.reject(taken + len(messages), reason, description, queue)

    def reject(self, count: int, reason: str, description: str = "", queue: str = FIRST) -> None:
        """The first messages of a backlog queue become dead letters."""
        said: dict[str, Value] = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}

        def bury() -> None:
            line = self.secondary.message_queue(queue)
            undertaker = _Undertaker(count)
            line.feed(undertaker)
            line.leave(undertaker)
            for token in undertaker.tokens:
                line.reject(token, said)

        self.emulator.call(bury)

    def take(self, queue: str, count: int, namespace: str = "contoso", dead: bool = False) -> list[Any]:
        """What lies in a queue, out of it; waits until there are so many, and takes more if there are more."""
        found: list[Any] = []
        with self.client(namespace).get_queue_receiver(
            queue,
            receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
            sub_queue=ServiceBusSubQueue.DEAD_LETTER if dead else None,
        ) as receiver:
            while len(found) < count:
                batch = receiver.receive_messages(count - len(found), max_wait_time=20)
                if not batch:
                    break
                found += batch
            found += receiver.receive_messages(10, max_wait_time=0.2)
        return found

    def counts(self, queue: str = FIRST) -> tuple[int, int]:
        """How many active messages and dead letters a backlog queue has."""
        runtime = self.emulator.call(lambda: self.secondary.runtime(queue))
        return runtime.active, runtime.dead_letter

    def close(self) -> None:
        for client in self.clients:
            client.close()


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def syphon(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process; stdin is not a terminal."""

    def run(*arguments: object) -> Done:
        # What a process would take to its end is put back here.
        handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
        level = logging.getLogger("syphon").level
        try:
            with pytest.raises(SystemExit) as end:
                main([*map(str, arguments)], prog_name="syphon")
        finally:
            for number, handler in handlers:
                signal.signal(number, handler)
            logging.getLogger("syphon").setLevel(level)
        printed = capsys.readouterr()
        assert KEY not in printed.out + printed.err
        return Done(int(end.value.code or 0), printed.out, printed.err)

    return run


def answer(done: Done) -> Any:
    return json.loads(done.stdout)


def received(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """So many messages. The client waits for the first one; what is there a little later is for the next call."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count and (more := receiver.receive_messages(count - len(found), max_wait_time=20)):
        found += more
    return found


def aliased(body: str, path: str | None, message_id: str | None = None, **properties: Value) -> bytes:
    """A message as it lies in the backlog. Underscores in the names of properties stand for hyphens."""
    application = {name.replace("_", "-"): value for name, value in properties.items()}
    if path is not None:
        application["x-ms-path"] = path
    return (
        properties_bytes(Properties(message_id=message_id, subject="s", correlation_id="c"))
        + section_bytes(Section.APPLICATION_PROPERTIES, Map.of(application))
        + data_section(body.encode())
    )


def _brokered(payload: bytes) -> BrokeredMessage:
    try:
        return BrokeredMessage.parse(payload)
    except Refusal:  # what no sender could send; a broker holds it all the same
        message = BrokeredMessage()
        message.bare, message.size = payload, len(payload)
        return message


class _Undertaker:
    """Receives so many messages, under locks."""

    deletes = False
    owner: object = None

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.tokens: list[bytes] = []

    def admits(self) -> bool:
        return True

    def deliver(self, message: BrokeredMessage) -> None:
        self.credit -= 1
        assert message.lock_token is not None
        self.tokens.append(message.lock_token)

    def detach(self, why: Refusal) -> None:
        raise AssertionError(why)


@contextmanager
def running(clock: Any = None, tier: Tier = Tier.STANDARD) -> Iterator[Bench]:
    """`tier` is the primary's."""
    claims = frozenset({Claim.SEND, Claim.LISTEN})
    policies = [
        PolicySettings(name="owner", key=SecretStr(KEY)),
        PolicySettings(name="worker", key=SecretStr(KEY), claims=claims),
    ]
    tiers = {"contoso": tier, "contoso-dr": Tier.STANDARD}
    namespaces = [Local(name=name, policies=policies, tier=tier) for name, tier in tiers.items()]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces), clock=clock) as emulator:
        bench = Bench(emulator)
        for queue in (FIRST, SECOND):
            bench.queue(queue, "contoso-dr", max_delivery_count=2**31 - 1, dead_lettering_on_message_expiration=True)
        try:
            yield bench
        finally:
            bench.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    with running() as bench:
        yield bench
