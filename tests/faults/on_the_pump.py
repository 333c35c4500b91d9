"""Scenarios without Spark: the pump in one process, the namespaces in another."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from azure.servicebus.management import ServiceBusAdministrationClient

from syphon.amqp import Message, encode
from syphon.model import ExitCode, errors
from syphon.servicebus.management_http import ManagementTransport
from syphon.transfer.pump_options import PERMANENT
from tests.faults.checker import Verdict
from tests.faults.environment import BACKLOG_QUEUE, PRIMARY, QUEUE, SECONDARY
from tests.faults.messages import EVENTS, ONCE, ORDERS, SESSIONS, Input, every_kind, mixed, plain, with_bad_aliases
from tests.faults.pump_process import WINDOW
from tests.faults.scenario import Ending, Scenario, Summary, kill
from tests.support.processes import Running
from tests.support.waiting import eventually

DEAD_LETTERS = f"{QUEUE}/$deadletterqueue"
LARGEST = 262_144
"""The largest message in a Standard namespace, in bytes."""


class EmulatorFault(Scenario):
    """A fault that the emulator injects on one side."""

    side: ClassVar[str]
    fault: ClassVar[dict[str, Any]]

    def inject(self, running: Running) -> None:
        self.fault_id = self.site.fault(self.side, **self.fault)

    def has_taken_effect(self, running: Running) -> bool:
        """It has struck as often as it was set to; a fault without a limit, at least once."""
        struck = self.site.times_struck(self.side, self.fault_id)
        return struck is None or ("times" not in self.fault and struck > 0)


class BadMessages(Scenario):
    """The messages themselves are the fault."""

    dead: int
    """How many of them are dead-lettered."""

    def has_taken_effect(self, running: Running) -> bool:
        return bool(self.site.contents(SECONDARY, DEAD_LETTERS))

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.dead == self.dead, verdict


class EndedManyTimes(Scenario):
    number, title = 2, "kill −9 at seeded random points, many times"
    volume, rate, times = 1000, 60, 8
    loads_before = True

    def inject(self, running: Running) -> None:
        self.running, self.summary, self.ended = running, Summary(), 0
        while self.ended < self.times - 1:
            self.end_it()
            self.running = self.start()
            self.until_moved(self.rng.randrange(1, 60))

    def until_moved(self, more: int) -> None:
        moment = min(self.site.moved() + more, self.volume)
        eventually(lambda: self.site.moved() >= moment, what=lambda: self.running.said)

    def end_it(self) -> None:
        self.ended += 1
        if self.ending is Ending.UNCLEAN:
            kill(self.running)
        else:
            self.summary.add(self.stopped(self.running))

    def has_taken_effect(self, running: Running) -> bool:
        return self.ended == self.times - 1

    def end(self, running: Running) -> Summary | None:
        self.end_it()
        return None if self.ending is Ending.UNCLEAN else self.summary

    def extra_duplicates(self) -> int:
        return (self.times - 1) * WINDOW


class MoveEndedManyTimes(EndedManyTimes):
    """A move between two entities, whose messages have no aliases (X12)."""

    number, title = 2, "a move ended by kill −9 at seeded random points, many times"
    move = True

    def inputs(self) -> list[Input]:
        made = mixed(self.rng, 2 * self.volume, (ORDERS,))
        # Scheduled messages stay until their time, and have a scenario of their own.
        return [
            replace(each, backlogged=each.original) for each in made if b"scheduled-enqueue-time" not in each.original
        ][: self.volume]

    def start(self) -> Running:
        return self.site.start_pump(rate=self.rate, move=ORDERS)


class LockLostBeforeCompletion(EmulatorFault):
    number, title = 5, "lock lost before complete"
    side, fault = SECONDARY, {"action": "lose-lock", "operation": "settle", "share": 0.2, "times": 20}

    def extra_duplicates(self) -> int:
        return 20

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.duplicates > 0, "a lock that was lost after the message was sent means a duplicate"
        assert summary is None or summary.possible_duplicates >= 20, summary


class LockAboutToBeLost(EmulatorFault):
    """A destination takes longer to attach than a lock lasts, and locks cannot be renewed."""

    number, title = 6, "lock about to be lost before send: not sent"
    side, fault = PRIMARY, {"action": "delay", "operation": "attach", "entity": ORDERS, "seconds": 7}
    from_the_start, rate = True, None

    def start(self) -> Running:
        self.fault_id = self.site.fault(self.side, **self.fault)
        self.site.fault(SECONDARY, action="error", operation="manage", condition="com.microsoft:message-lock-lost")
        return super().start()

    def inject(self, running: Running) -> None:
        """The fault was set before the start."""

    def has_taken_effect(self, running: Running) -> bool:
        # Messages that were not sent in time are received again.
        return super().has_taken_effect(running) and self.site.count(SECONDARY, "receive") > len(self.site.acknowledged)

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        late = "about to, before it could be sent"
        assert summary is None or any(late in reason for reason in summary.reasons), summary
        assert summary is None or verdict.duplicates == 0


class ReceiverDetached(EmulatorFault):
    number, title = 7, "link detached: the receiver's"
    side, fault = SECONDARY, {"action": "detach", "operation": "receive", "entity": QUEUE, "times": 3}


class SenderDetached(EmulatorFault):
    number, title = 7, "link detached: a sender's"
    side, fault = PRIMARY, {"action": "detach", "operation": "send", "entity": ORDERS, "times": 5}


class ResetDuringSend(EmulatorFault):
    number, title = 8, "connection reset during send (outcome unknown)"
    side, fault = PRIMARY, {"action": "lose-reply-and-drop", "operation": "send", "times": 2}

    def extra_duplicates(self) -> int:
        return 2 * WINDOW

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        once = [put.identity for put in self.site.attempted if put.destination == ONCE]
        assert max(verdict.copies[identity] for identity in once) == 1, "duplicate detection removes repeats (S2)"
        assert summary is None or summary.possible_duplicates > 0


class AnswerLost(EmulatorFault):
    number, title = 8, "answer to a send lost (outcome unknown)"
    side, fault = PRIMARY, {"action": "lose-reply", "operation": "send", "entity": ORDERS, "times": 2}

    def extra_duplicates(self) -> int:
        return 2 * WINDOW

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.duplicates > 0, verdict


class HalfOpen(Scenario):
    number, title = 9, "half-open connection"

    def start(self) -> Running:
        port = self.site.primary.split(";")[0].rpartition(":")[2]
        self.proxy = Running([port], self.site.folder, module="tests.support.proxy")
        self.site.running.append(self.proxy)
        assert self.proxy.process.stdout is not None
        through = self.site.primary.replace(f":{port}", f":{self.proxy.process.stdout.readline().strip()}")
        return self.site.start_pump(environment={"PRIMARY": through}, rate=self.rate, silence=3.0)

    def inject(self, running: Running) -> None:
        self.proxy.process.send_signal(signal.SIGUSR1)
        assert self.proxy.until("half-open") != "0 connections are half-open"
        self.moved = self.site.moved()

    def has_taken_effect(self, running: Running) -> bool:
        """The pump has noticed: messages pass again, over another connection."""
        return self.site.moved() > self.moved + 50

    def extra_duplicates(self) -> int:
        return WINDOW


class ServerBusy(EmulatorFault):
    number, title = 10, "server busy"
    side, fault = (
        PRIMARY,
        {
            "action": "error",
            "operation": "send",
            "entity": ORDERS,
            "condition": "com.microsoft:server-busy",
        },
    )

    def heal(self) -> None:
        tries = self.site.times_struck(self.side, self.fault_id) or 0
        most = 16 + self.seconds / 10  # the sends in flight at first; then one in ten seconds (S5)
        assert tries <= most, f"{tries} tries in {self.seconds:.0f} s"
        super().heal()


class PrimaryFull(Scenario):
    number, title = 11, "primary full"

    def inject(self, running: Running) -> None:
        self.site.control(PRIMARY, "PUT", "quota", {"entity": ORDERS, "bytes": 0})

    def has_taken_effect(self, running: Running) -> bool:
        return "destination orders is unavailable" in running.said

    def heal(self) -> None:
        self.site.control(PRIMARY, "PUT", "quota", {"entity": ORDERS, "bytes": None})

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.dead == 0, verdict
        assert summary is None or summary.left > 0


class DestinationCutsTheConnection(EmulatorFault):
    """Whatever is sent to one destination costs the connection of all. It is found, and waits alone."""

    number, title = 29, "a destination whose sends cut the connection"
    side, fault = PRIMARY, {"action": "drop", "operation": "send", "entity": ORDERS}

    def has_taken_effect(self, running: Running) -> bool:
        return super().has_taken_effect(running) and "destination orders is unavailable" in running.said

    def extra_duplicates(self) -> int:
        return 3 * WINDOW  # what was in flight at the first losses


class DestinationMissing(Scenario):
    """The messages wait, and arrive when the entity is created."""

    number, title = 12, "destination missing: its messages wait"
    astray = 40

    def inputs(self) -> list[Input]:
        found = mixed(self.rng, self.volume) + [plain(number, "gone") for number in range(self.astray)]
        self.rng.shuffle(found)
        return found

    def has_taken_effect(self, running: Running) -> bool:
        return "destination gone is unavailable" in running.said

    def heal(self) -> None:
        with administration(self.site.primary) as client:
            client.create_queue("gone")
        self.site.created.append("gone")

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.dead == 0, verdict
        assert len(self.site.contents(PRIMARY, "gone")) >= self.astray


class DestinationGivenUp(BadMessages):
    number, title = 12, "destination missing: its messages are given up"
    dead = 40
    permanent = PERMANENT | {errors.DestinationMissing}

    def inputs(self) -> list[Input]:
        found = mixed(self.rng, self.volume) + [plain(number, "gone") for number in range(self.dead)]
        self.rng.shuffle(found)
        return found

    def start(self) -> Running:
        return self.site.start_pump(rate=self.rate, give_up=["DestinationMissing"])


class DestinationDisabled(Scenario):
    """The messages wait, and arrive when the entity is enabled."""

    number, title = 13, "destination disabled: its messages wait"

    def inject(self, running: Running) -> None:
        self.become("Disabled")

    def has_taken_effect(self, running: Running) -> bool:
        return "destination orders is unavailable" in running.said

    def heal(self) -> None:
        self.become("Active")

    def become(self, status: str) -> None:
        with administration(self.site.primary) as client:
            queue = client.get_queue(ORDERS)
            queue.status = status
            client.update_queue(queue)

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.dead == 0, verdict
        assert summary is None or summary.left > 0


class DisabledGivenUp(DestinationDisabled):
    """The messages that come while the entity is disabled are given up."""

    title = "destination disabled: its messages are given up"
    permanent = PERMANENT | {errors.DestinationDisabled}

    def start(self) -> Running:
        return self.site.start_pump(rate=self.rate, give_up=["DestinationDisabled"])

    def has_taken_effect(self, running: Running) -> bool:
        return bool(self.site.contents(SECONDARY, DEAD_LETTERS))

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.dead > 0, verdict


class BacklogDeleted(Scenario):
    """Messages in the queue are deleted with it, by its owner. Messages in a new queue of that name are forwarded."""

    number, title = 14, "backlog queue deleted underneath"
    rate, loads_before = 60, True

    def inject(self, running: Running) -> None:
        self.site.removed |= {identity_of(payload) for payload in self.site.contents(SECONDARY, QUEUE)}
        with administration(self.site.secondary) as client:
            client.delete_queue(QUEUE)
            if self.ending is Ending.CLEAN:
                self.summary = Summary.of_ended(running)
            else:
                kill(running)
            client.create_queue(QUEUE, max_delivery_count=BACKLOG_QUEUE["max_delivery_count"], lock_duration="PT5S")

    def has_taken_effect(self, running: Running) -> bool:
        return bool(self.site.removed)

    def end(self, running: Running) -> Summary | None:
        if self.ending is Ending.UNCLEAN:
            return None
        assert self.summary.code == ExitCode.UNAVAILABLE, self.summary
        assert QUEUE in self.summary.error, self.summary
        return self.summary

    def heal(self) -> None:
        """Messages in the new queue are forwarded."""
        self.later = mixed(self.rng, 100, first=self.volume)
        self.site.load(self.later)

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert all(verdict.copies[put.identity] for put in self.later)


class TooLarge(BadMessages):
    number, title = 15, "one message too large for its destination among good ones"
    dead = 5

    def inputs(self) -> list[Input]:
        large = [plain(number, ORDERS, self.rng.randbytes(300_000)) for number in range(self.dead)]
        found = mixed(self.rng, self.volume) + large
        self.rng.shuffle(found)
        return found


class NearTheLimit(Scenario):
    number, title = 16, "messages near the size limits, memory bounded"
    volume, rate = 150, 100
    megabytes = 100

    def inputs(self) -> list[Input]:
        sizes = [LARGEST - self.rng.randrange(200, 20_000) for _ in range(self.volume)]
        bodies = [self.rng.randbytes(size) for size in sizes]
        return [plain(number, self.rng.choice([ORDERS, EVENTS]), body) for number, body in enumerate(bodies)]

    def start(self) -> Running:
        return self.site.start_pump(rate=self.rate, window=2000)  # so that its limit is in bytes

    def has_taken_effect(self, running: Running) -> bool:
        return self.site.moved() > self.volume * 2 // 3

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.dead == 0, verdict
        assert summary is None or summary.megabytes < self.megabytes, summary


class BadAliases(BadMessages):
    number, title = 17, "aliases of wrong type, empty, null"

    def inputs(self) -> list[Input]:
        bad = with_bad_aliases()
        self.dead = len(bad)
        found = mixed(self.rng, self.volume) + bad
        self.rng.shuffle(found)
        return found


class EveryType(Scenario):
    number, title = 18, "every AMQP type and body kind: byte-equal"

    def inputs(self) -> list[Input]:
        found = every_kind()
        self.rng.shuffle(found)
        return found

    def has_taken_effect(self, running: Running) -> bool:
        return self.site.moved() > len(self.site.attempted) // 2

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.dead == 0, verdict


class BatchRefused(EmulatorFault):
    number, title = 19, "batch refused for one bad message"
    side, fault = PRIMARY, {"action": "refuse", "operation": "send", "entity": ORDERS, "times": 6}
    rate = None

    def inputs(self) -> list[Input]:
        return [plain(number, ORDERS) for number in range(self.volume)]

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        assert verdict.dead <= 2, f"the other messages of a refused batch arrive: {verdict}"


class Redelivered(EmulatorFault):
    """Locks are lost while messages are on their way to us: other receivers get them meanwhile, and so do we."""

    number, title = 20, "redelivery"
    side, fault = SECONDARY, {"action": "lose-lock", "operation": "receive", "entity": QUEUE, "times": 60}

    def extra_duplicates(self) -> int:
        return 60


class SessionMissing(BadMessages):
    number, title = 21, "session required but missing, and the reverse"
    dead = 40

    def inputs(self) -> list[Input]:
        found = [plain(number, SESSIONS) for number in range(self.dead)]
        found += [plain(1000 + number, ORDERS, session=f"s{number % 3}") for number in range(100)]
        found += mixed(self.rng, self.volume)
        self.rng.shuffle(found)
        return found


class CredentialsRotated(Scenario):
    """The primary comes back with another key: the transfer ends and reports that its key was refused."""

    number, title = 22, "credentials rotated mid-run"
    durable = True

    def inject(self, running: Running) -> None:
        def rotate(settings: dict[str, Any]) -> None:
            settings["namespaces"][0]["policies"] = [{"name": "RootManageSharedAccessKey", "key": "another"}]

        self.site.restart(signal.SIGTERM if self.ending is Ending.CLEAN else signal.SIGKILL, rotate)

    def has_taken_effect(self, running: Running) -> bool:
        return running.process.poll() is not None

    def end(self, running: Running) -> Summary | None:
        summary = Summary.of_ended(running)
        assert summary.code == ExitCode.NOT_AUTHORIZED, running.said
        return summary


class WrongClock(Scenario):
    """Five hours ahead; then it steps back, to half an hour behind."""

    number, title = 23, "clock skew of hours, clock stepping back"

    def start(self) -> Running:
        return self.site.start_pump(clock=(5 * 3600, -5.5 * 3600), rate=self.rate)

    def inject(self, running: Running) -> None:
        self.moved = self.site.moved()
        running.process.send_signal(signal.SIGUSR1)

    def has_taken_effect(self, running: Running) -> bool:
        return self.site.moved() > self.moved + 50


class Outage(Scenario):
    """A namespace refuses or drops connections, and is then available again."""

    number = 24
    sides: ClassVar[tuple[str, ...]]
    rate, loads_before = 60, True

    def inject(self, running: Running) -> None:
        for name in self.sides:
            self.site.control(name, "PUT", "outage", {"kind": self.rng.choice(["refuse", "drop"])})

    def has_taken_effect(self, running: Running) -> bool:
        """The transfer has noticed the outage before it was done."""
        assert self.site.moved() < len(self.site.acknowledged), "it was too late to be in the middle"
        return all(f"{name} is unreachable" in running.said for name in self.sides)

    def heal(self) -> None:
        for name in self.sides:
            self.site.control(name, "DELETE", "outage")

    def extra_duplicates(self) -> int:
        return WINDOW


class PrimaryOut(Outage):
    title = "primary out, and back again"
    sides = (PRIMARY,)


class SecondaryOut(Outage):
    title = "secondary out, and back again"
    sides = (SECONDARY,)


class BothOut(Outage):
    title = "both out, and back again"
    sides = (PRIMARY, SECONDARY)


def identity_of(payload: bytes) -> bytes:
    return encode(Message(payload).properties().message_id)


@contextmanager
def administration(connection_string: str) -> Iterator[ServiceBusAdministrationClient]:
    """The SDK's own client, on plain HTTP."""
    transport = ManagementTransport(timeout=30, plain=True)
    with ServiceBusAdministrationClient.from_connection_string(connection_string, transport=transport) as client:
        yield client
