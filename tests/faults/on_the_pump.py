"""Scenarios that need no Spark: the pump in a process of its own, between namespaces in another."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from azure.servicebus.management import ServiceBusAdministrationClient

from syphon.amqp import Message, encode
from syphon.bus.plain_http import Wire
from syphon.cli import ExitCode
from tests.faults.checker import Verdict
from tests.faults.environment import BACKLOG_QUEUE, PRIMARY, QUEUE, SECONDARY
from tests.faults.messages import EVENTS, ONCE, ORDERS, SESSIONS, Input, every_kind, mixed, plain, with_bad_aliases
from tests.faults.pump_process import WINDOW
from tests.faults.scenario import Ending, Scenario, Told, kill
from tests.support.processes import Running, eventually

DEAD_LETTERS = f"{QUEUE}/$deadletterqueue"
LARGEST = 262_144
"""Bytes that a message may have in a Standard namespace."""


class Armed(Scenario):
    """A fault of the emulator's own: on this side, of this kind."""

    side: ClassVar[str]
    fault: ClassVar[dict[str, Any]]

    def strike(self, running: Running) -> None:
        self.armed = self.site.fault(self.side, **self.fault)

    def has_struck(self, running: Running) -> bool:
        """As often as it was to; one without end, once."""
        struck = self.site.struck(self.side, self.armed)
        return struck is None or ("times" not in self.fault and struck > 0)


class InTheMessages(Scenario):
    """The messages themselves are the fault."""

    dead: int
    """How many of them can go nowhere."""

    def has_struck(self, running: Running) -> bool:
        return bool(self.site.contents(SECONDARY, DEAD_LETTERS))

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert verdict.dead == self.dead, verdict


class EndedManyTimes(Scenario):
    number, words = 2, "kill −9 at seeded random points, many times"
    volume, rate, times = 1000, 60, 8
    loads_before = True

    def strike(self, running: Running) -> None:
        self.running, self.told, self.ended = running, Told(), 0
        while self.ended < self.times - 1:
            self.end_it()
            self.running = self.start()
            self.until_moved(self.rng.randrange(1, 60))

    def until_moved(self, more: int) -> None:
        moment = min(self.site.moved() + more, self.volume)
        eventually(lambda: self.site.moved() >= moment, explain=lambda: self.running.said)

    def end_it(self) -> None:
        self.ended += 1
        if self.ending is Ending.UNCLEAN:
            kill(self.running)
        else:
            self.told.add(self.stopped(self.running))

    def has_struck(self, running: Running) -> bool:
        return self.ended == self.times - 1

    def end(self, running: Running) -> Told | None:
        self.end_it()
        return None if self.ending is Ending.UNCLEAN else self.told

    def untold(self) -> int:
        return (self.times - 1) * WINDOW


class LockLostBeforeCompletion(Armed):
    number, words = 5, "lock lost before complete"
    side, fault = SECONDARY, {"action": "lose-lock", "operation": "settle", "share": 0.2, "times": 20}

    def untold(self) -> int:
        return 20

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert verdict.duplicates > 0, "a lock that was lost after the message was sent means a duplicate"
        assert told is None or told.possible_duplicates >= 20, told


class LockAboutToBeLost(Armed):
    """The primary cannot be reached for longer than a lock lasts, and locks cannot be renewed."""

    number, words = 6, "lock about to be lost before send: not sent"
    side, fault = PRIMARY, {"action": "delay", "operation": "connect", "seconds": 7}
    from_the_start, rate = True, None

    def start(self) -> Running:
        self.armed = self.site.fault(self.side, **self.fault)
        self.site.fault(SECONDARY, action="error", operation="manage", condition="com.microsoft:message-lock-lost")
        return super().start()

    def strike(self, running: Running) -> None:
        """It was there before."""

    def has_struck(self, running: Running) -> bool:
        # What was not sent in time is received once more.
        return super().has_struck(running) and self.site.count(SECONDARY, "receive") > len(self.site.acknowledged)

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert told is None or any("about to run out" in reason for reason in told.reasons), told
        assert told is None or verdict.duplicates == 0


class ReceiverDetached(Armed):
    number, words = 7, "link detached: the receiver's"
    side, fault = SECONDARY, {"action": "detach", "operation": "receive", "entity": QUEUE, "times": 3}


class SenderDetached(Armed):
    number, words = 7, "link detached: a sender's"
    side, fault = PRIMARY, {"action": "detach", "operation": "send", "entity": ORDERS, "times": 5}


class ResetDuringSend(Armed):
    number, words = 8, "connection reset during send (outcome unknown)"
    side, fault = PRIMARY, {"action": "lose-reply-and-drop", "operation": "send", "times": 2}

    def untold(self) -> int:
        return 2 * WINDOW

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        once = [put.identity for put in self.site.attempted if put.destination == ONCE]
        assert max(verdict.copies[identity] for identity in once) == 1, "duplicate detection removes repeats (S2)"
        assert told is None or told.possible_duplicates > 0


class AnswerLost(Armed):
    number, words = 8, "answer to a send lost (outcome unknown)"
    side, fault = PRIMARY, {"action": "lose-reply", "operation": "send", "entity": ORDERS, "times": 2}

    def untold(self) -> int:
        return 2 * WINDOW

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert verdict.duplicates > 0, verdict


class HalfOpen(Scenario):
    number, words = 9, "half-open connection"

    def start(self) -> Running:
        port = self.site.primary.split(";")[0].rpartition(":")[2]
        self.proxy = Running([port], self.site.folder, module="tests.support.proxy")
        self.site.running.append(self.proxy)
        assert self.proxy.process.stdout is not None
        through = self.site.primary.replace(f":{port}", f":{self.proxy.process.stdout.readline().strip()}")
        return self.site.carrier(environment={"PRIMARY": through}, rate=self.rate, silence=3.0)

    def strike(self, running: Running) -> None:
        self.proxy.process.send_signal(signal.SIGUSR1)
        assert self.proxy.until("half-open") != "0 connections are half-open"
        self.moved = self.site.moved()

    def has_struck(self, running: Running) -> bool:
        """It was noticed: messages pass again, over another connection."""
        return self.site.moved() > self.moved + 50

    def untold(self) -> int:
        return WINDOW


class ServerBusy(Armed):
    number, words = 10, "server busy"
    side, fault = (
        PRIMARY,
        {
            "action": "error",
            "operation": "send",
            "entity": ORDERS,
            "condition": "com.microsoft:server-busy",
        },
    )

    def has_struck(self, running: Running) -> bool:
        return super().has_struck(running) and "destination orders backs off" in running.said

    def heal(self) -> None:
        tries = self.site.struck(self.side, self.armed) or 0
        most = 16 + self.seconds / 10  # what was under way at first; then one in ten seconds (S5)
        assert tries <= most, f"{tries} tries in {self.seconds:.0f} s"
        super().heal()


class PrimaryFull(Scenario):
    number, words = 11, "primary full"

    def strike(self, running: Running) -> None:
        self.site.control(PRIMARY, "PUT", "quota", {"entity": ORDERS, "bytes": 0})

    def has_struck(self, running: Running) -> bool:
        return "destination orders backs off" in running.said

    def heal(self) -> None:
        self.site.control(PRIMARY, "PUT", "quota", {"entity": ORDERS, "bytes": None})

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert verdict.dead == 0, verdict
        assert told is None or told.left > 0


class DestinationMissing(InTheMessages):
    number, words = 12, "destination missing"
    dead = 40

    def inputs(self) -> list[Input]:
        found = mixed(self.rng, self.volume) + [plain(number, "gone") for number in range(self.dead)]
        self.rng.shuffle(found)
        return found


class DestinationDisabled(Scenario):
    number, words = 13, "destination disabled"

    def strike(self, running: Running) -> None:
        self.become("Disabled")

    def has_struck(self, running: Running) -> bool:
        return bool(self.site.contents(SECONDARY, DEAD_LETTERS))

    def heal(self) -> None:
        self.become("Active")

    def become(self, status: str) -> None:
        with administration(self.site.primary) as client:
            queue = client.get_queue(ORDERS)
            queue.status = status
            client.update_queue(queue)

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert verdict.dead > 0, verdict


class BacklogDeleted(Scenario):
    """What was in the queue goes with it: that is its owner's doing. What is put into a new one comes home."""

    number, words = 14, "backlog queue deleted underneath"
    rate, loads_before = 60, True

    def strike(self, running: Running) -> None:
        self.site.removed |= {identity_of(payload) for payload in self.site.contents(SECONDARY, QUEUE)}
        with administration(self.site.secondary) as client:
            client.delete_queue(QUEUE)
            if self.ending is Ending.CLEAN:
                self.told = Told.at_the_end_of(running)
            else:
                kill(running)
            client.create_queue(QUEUE, max_delivery_count=BACKLOG_QUEUE["max_delivery_count"], lock_duration="PT5S")

    def has_struck(self, running: Running) -> bool:
        return bool(self.site.removed)

    def end(self, running: Running) -> Told | None:
        if self.ending is Ending.UNCLEAN:
            return None
        assert self.told.code == ExitCode.UNAVAILABLE, self.told
        assert QUEUE in self.told.error, self.told
        return self.told

    def heal(self) -> None:
        """What is put into the new one comes home."""
        self.later = mixed(self.rng, 100, first=self.volume)
        self.site.load(self.later)

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert all(verdict.copies[put.identity] for put in self.later)


class TooLarge(InTheMessages):
    number, words = 15, "one message too large for its destination among good ones"
    dead = 5

    def inputs(self) -> list[Input]:
        large = [plain(number, ORDERS, self.rng.randbytes(300_000)) for number in range(self.dead)]
        found = mixed(self.rng, self.volume) + large
        self.rng.shuffle(found)
        return found


class NearTheLimit(Scenario):
    number, words = 16, "messages near the size limits, memory bounded"
    volume, rate = 150, 100
    megabytes = 100

    def inputs(self) -> list[Input]:
        sizes = [LARGEST - self.rng.randrange(200, 20_000) for _ in range(self.volume)]
        bodies = [self.rng.randbytes(size) for size in sizes]
        return [plain(number, self.rng.choice([ORDERS, EVENTS]), body) for number, body in enumerate(bodies)]

    def start(self) -> Running:
        return self.site.carrier(rate=self.rate, window=2000)  # so that bytes are what bounds it

    def has_struck(self, running: Running) -> bool:
        return self.site.moved() > self.volume * 2 // 3

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert verdict.dead == 0, verdict
        assert told is None or told.megabytes < self.megabytes, told


class BadAliases(InTheMessages):
    number, words = 17, "aliases of wrong type, empty, null"

    def inputs(self) -> list[Input]:
        bad = with_bad_aliases()
        self.dead = len(bad)
        found = mixed(self.rng, self.volume) + bad
        self.rng.shuffle(found)
        return found


class EveryType(Scenario):
    number, words = 18, "every AMQP type and body kind: byte-equal"

    def inputs(self) -> list[Input]:
        found = every_kind()
        self.rng.shuffle(found)
        return found

    def has_struck(self, running: Running) -> bool:
        return self.site.moved() > len(self.site.attempted) // 2

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert verdict.dead == 0, verdict


class BatchRefused(Armed):
    number, words = 19, "batch refused for one bad message"
    side, fault = PRIMARY, {"action": "refuse", "operation": "send", "entity": ORDERS, "times": 6}
    rate = None

    def inputs(self) -> list[Input]:
        return [plain(number, ORDERS) for number in range(self.volume)]

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        assert verdict.dead <= 2, f"the companions of a refused message arrive: {verdict}"


class Redelivered(Armed):
    """Locks are lost while messages are on their way to us: others get them meanwhile, and so do we."""

    number, words = 20, "redelivery"
    side, fault = SECONDARY, {"action": "lose-lock", "operation": "receive", "entity": QUEUE, "times": 60}

    def untold(self) -> int:
        return 60


class SessionMissing(InTheMessages):
    number, words = 21, "session required but missing, and the reverse"
    dead = 40

    def inputs(self) -> list[Input]:
        found = [plain(number, SESSIONS) for number in range(self.dead)]
        found += [plain(1000 + number, ORDERS, session=f"s{number % 3}") for number in range(100)]
        found += mixed(self.rng, self.volume)
        self.rng.shuffle(found)
        return found


class CredentialsRotated(Scenario):
    """The primary comes back with another key: the transfer ends by itself, and says that its own was refused."""

    number, words = 22, "credentials rotated mid-run"
    durable = True

    def strike(self, running: Running) -> None:
        def rotate(settings: dict[str, Any]) -> None:
            settings["namespaces"][0]["policies"] = [{"name": "RootManageSharedAccessKey", "key": "another"}]

        self.site.restart(signal.SIGTERM if self.ending is Ending.CLEAN else signal.SIGKILL, rotate)

    def has_struck(self, running: Running) -> bool:
        return running.process.poll() is not None

    def end(self, running: Running) -> Told | None:
        told = Told.at_the_end_of(running)
        assert told.code == ExitCode.NOT_AUTHORIZED, running.said
        return told


class WrongClock(Scenario):
    """Five hours ahead; then it steps back, to half an hour behind."""

    number, words = 23, "clock skew of hours, clock stepping back"

    def start(self) -> Running:
        return self.site.carrier(clock=(5 * 3600, -5.5 * 3600), rate=self.rate)

    def strike(self, running: Running) -> None:
        self.moved = self.site.moved()
        running.process.send_signal(signal.SIGUSR1)

    def has_struck(self, running: Running) -> bool:
        return self.site.moved() > self.moved + 50


class Outage(Scenario):
    """In one of the ways a namespace can be away; then it is back."""

    number = 24
    sides: ClassVar[tuple[str, ...]]
    rate, loads_before = 60, True

    def strike(self, running: Running) -> None:
        for name in self.sides:
            self.site.control(name, "PUT", "outage", {"kind": self.rng.choice(["refuse", "drop"])})

    def has_struck(self, running: Running) -> bool:
        """The transfer has met it, before it was done."""
        assert self.site.moved() < len(self.site.acknowledged), "it was too late to be in the middle"
        return all(f"{name} is out of reach" in running.said for name in self.sides)

    def heal(self) -> None:
        for name in self.sides:
            self.site.control(name, "DELETE", "outage")

    def untold(self) -> int:
        return WINDOW


class PrimaryOut(Outage):
    words = "primary out, and back again"
    sides = (PRIMARY,)


class SecondaryOut(Outage):
    words = "secondary out, and back again"
    sides = (SECONDARY,)


class BothOut(Outage):
    words = "both out, and back again"
    sides = (PRIMARY, SECONDARY)


def identity_of(payload: bytes) -> bytes:
    return encode(Message(payload).properties().message_id)


@contextmanager
def administration(connection_string: str) -> Iterator[ServiceBusAdministrationClient]:
    """The SDK's own client, on plain HTTP."""
    transport = Wire(timeout=30, plain=True)
    with ServiceBusAdministrationClient.from_connection_string(connection_string, transport=transport) as client:
        yield client
