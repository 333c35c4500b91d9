"""The environment of a scenario: an emulator in its own process, the messages sent to it and those found in it."""

from __future__ import annotations

import json
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from syphon.config import SideSettings, Transport
from syphon.model.errors import DestinationMissing, SyphonError
from syphon.servicebus.connection import Connection
from syphon.servicebus.factory import connected
from syphon.servicebus.links import LinkState, RawSender
from syphon.servicebus.queue_peek import peek
from tests.faults.checker import BACKLOG, DEAD, HOME, Found
from tests.faults.messages import EVENTS, ONCE, ORDERS, SESSIONS, Input
from tests.support.processes import WITHIN, EmulatedPair, Running

QUEUE = "contoso/x-servicebus-transfer/0"
LOCK = 5.0
"""Seconds. As short as the service allows, so that the messages of a killed process are soon available again."""
PRIMARY, SECONDARY = "contoso", "contoso-dr"
ENTITIES: dict[str, list[dict[str, Any]]] = {
    "queues": [
        {"name": ORDERS},
        {"name": ONCE, "requires_duplicate_detection": True},
        {"name": SESSIONS, "requires_session": True},
    ],
    "topics": [{"name": EVENTS, "subscriptions": [{"name": "all"}]}],
}
BACKLOG_QUEUE: dict[str, Any] = {
    "name": QUEUE,
    "max_delivery_count": 2147483647,
    "max_size_in_megabytes": 5120,
    "lock_duration": "5s",
    "dead_lettering_on_message_expiration": True,
}


def backlog_queues(count: int) -> list[str]:
    return [f"contoso/x-servicebus-transfer/{index}" for index in range(count)]


@dataclass
class Site(EmulatedPair):
    """A primary and a secondary, and a record of what the backlog has acknowledged."""

    emulator: Running | None = None
    attempted: list[Input] = field(default_factory=list)
    acknowledged: set[bytes] = field(default_factory=set)
    removed: set[bytes] = field(default_factory=set)
    """Messages that their owner has deleted."""
    created: list[str] = field(default_factory=list)
    """Queues of the primary that were created during the scenario."""
    transport: Transport = Transport.AMQP

    # --- messages ------------------------------------------------------------------------------------------------

    @property
    def backlog_names(self) -> list[str]:
        """The names of the backlog queues."""
        return backlog_queues(self.queues)

    def load(self, inputs: Sequence[Input], every: float = 0.0, queues: Sequence[str] = ()) -> None:
        """Puts messages into the backlog, byte for byte, and remembers which were acknowledged.

        The queues, all if none is named, take turns; each gets one message in `every` seconds.
        """
        self.attempted += inputs
        queues = queues or self.backlog_names
        with connected(self.side(SECONDARY), queues[0]) as connection:
            exchange_until(connection, lambda: all([connection.tokens.allow(queue) for queue in queues]))  # noqa: C419  (asks for all)
            senders: list[RawSender[Input]] = [RawSender(connection.wire, queue) for queue in queues]
            waiting, began = list(reversed(inputs)), connection.wire.now()

            def is_due() -> bool:
                rounds, number = divmod(len(inputs) - len(waiting), len(senders))
                return senders[number].has_room() and connection.wire.now() - began >= rounds * every

            def is_done() -> bool:
                while waiting and is_due():
                    number = (len(inputs) - len(waiting)) % len(senders)
                    senders[number].send(waiting[-1].backlogged, 0, waiting.pop())
                for sender in senders:
                    while sender.results:
                        sent = sender.results.popleft()
                        if sent.error is None:
                            self.acknowledged.add(sent.ticket.identity)
                are_lost = any(sender.state is LinkState.LOST for sender in senders)
                return are_lost or not (waiting or any(sender.in_flight for sender in senders))

            exchange_until(connection, is_done)

    def found(self) -> list[Found]:
        """All messages in both namespaces, found by peeking."""
        places = [entity["name"] for kind in ENTITIES.values() for entity in kind] + self.created
        found = [
            Found(HOME, place, payload)
            for place in places
            for payload in self.contents(PRIMARY, f"{place}/subscriptions/all" if place == EVENTS else place)
        ]
        for queue in self.backlog_names:
            found += (Found(DEAD, "", payload) for payload in self.contents(SECONDARY, f"{queue}/$deadletterqueue"))
            found += (Found(BACKLOG, "", payload) for payload in self.contents(SECONDARY, queue))
        return found

    def contents(self, name: str, path: str) -> list[bytes]:
        try:
            with connected(self.side(name), path) as connection:
                return [message.payload for message in peek(connection, path)]
        except DestinationMissing:
            return []

    def side(self, name: str) -> SideSettings:
        string = self.primary if name == PRIMARY else self.secondary
        return SideSettings(connection_string=SecretStr(string), transport=self.transport)

    # --- control --------------------------------------------------------------------------------------------

    def moved(self) -> int:
        """How many messages the primary has accepted."""
        return self.count(PRIMARY, "send")

    def count(self, name: str, operation: str) -> int:
        return int(self.control(name, "GET", "counters")["totals"].get(operation, 0))

    def received(self, queue: str) -> int:
        """How many messages a backlog queue has delivered."""
        found = self.control(SECONDARY, "GET", "counters")["entities"].get(queue, {})
        return int(found.get("receive", 0))

    def fault(self, name: str, **fault: Any) -> int:
        """Sets a fault; returns its id."""
        return int(self.control(name, "POST", "faults", fault)["id"])

    def times_struck(self, name: str, number: int) -> int | None:
        """How often a fault has struck; None when it has struck as often as it was set to."""
        armed = {fault["id"]: fault["struck"] for fault in self.control(name, "GET", "faults")["faults"]}
        return armed.get(number)

    def start_pump(
        self, clock: Sequence[float] | None = None, environment: dict[str, str] | None = None, **options: Any
    ) -> Running:
        """Starts a pump in its own process, without Spark."""
        strings = {"PRIMARY": self.primary, "SECONDARY": self.secondary, "TRANSPORT": self.transport}
        strings |= environment or {}
        arguments = [json.dumps({"queue": QUEUE, "lock": LOCK, **options})]
        if clock is None:
            running = Running(arguments, self.folder, strings, "tests.faults.pump_process")
        else:
            running = Running([json.dumps(clock), *arguments], self.folder, strings, "tests.faults.skewed_clock")
        self.running.append(running)
        return running

    def restart(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Ends the emulator with a signal and starts it again on the same ports, with other settings."""
        assert self.emulator is not None
        self.emulator.stop(number)
        self.emulator.close()
        config = self.folder / "emulator.yaml"
        settings = yaml.safe_load(config.read_text())
        change(settings)
        config.write_text(yaml.safe_dump(settings))
        self.emulator, self.primary, self.secondary, self.controls = _started(self.folder)

    def close(self) -> None:
        super().close()
        if self.emulator is not None:
            self.emulator.close()


@contextmanager
def site(folder: Path, *, durable: bool = False, queues: int = 1) -> Iterator[Site]:
    """A running site. A durable one keeps its messages over a restart of its emulator."""
    folder.mkdir(parents=True, exist_ok=True)
    backlog = [{**BACKLOG_QUEUE, "name": name} for name in backlog_queues(queues)]
    settings: dict[str, Any] = {
        "namespaces": [
            {"name": PRIMARY, "amqp_port": 0, "http_port": 0, **ENTITIES},
            {"name": SECONDARY, "amqp_port": 0, "http_port": 0, "tier": "Premium", "queues": backlog},
        ]
    }
    if durable:
        settings["state"] = str(folder / "state")
    (folder / "emulator.yaml").write_text(yaml.safe_dump(settings))
    emulator, primary, secondary, controls = _started(folder)
    made = Site(folder, primary, secondary, controls, queues=queues, emulator=emulator)
    try:
        yield made
    finally:
        made.close()


def _started(folder: Path) -> tuple[Running, str, str, dict[str, str]]:
    config = folder / "emulator.yaml"
    emulator = Running(["emulator", "--json", "--config", str(config)], folder)
    assert emulator.process.stdout is not None
    line = emulator.process.stdout.readline()
    assert line, f"the emulator did not start: {emulator.end()} {emulator.said}"
    sides = json.loads(line)["namespaces"]
    settings = yaml.safe_load(config.read_text())
    for namespace, side in zip(settings["namespaces"], sides, strict=True):
        namespace["amqp_port"], namespace["http_port"] = side["amqp_port"], side["http_port"]
    config.write_text(yaml.safe_dump(settings))
    controls = {side["name"]: f"http://127.0.0.1:{side['http_port']}" for side in sides}
    home, away = sides
    return emulator, home["connection_string"], away["connection_string"], controls


def exchange_until(connection: Connection, done: Callable[[], bool]) -> None:
    """Reads and writes until `done` returns true."""
    wire = connection.wire

    def turn() -> bool:
        if wire.failure is not None:
            raise wire.failure
        if done():
            return True
        wire.flush()
        if not wire.has_unread():
            select.select([wire], [wire] if wire.wants_to_write() else [], [], 0.2)
        connection.read()
        connection.tick()
        return False

    deadline = wire.now() + WITHIN
    while not turn():
        if wire.now() > deadline:
            raise SyphonError(f"{wire.name} has not answered within {WITHIN:.0f} seconds")
