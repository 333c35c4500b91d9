"""A destination that does not work is left alone, longer each time, and the others never notice."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from syphon.amqp import data_section
from syphon.backlog import Facts, Restored
from syphon.bus.connection import Connection
from syphon.bus.links import Arrival
from syphon.emulator import Action, Fault, Operation
from syphon.errors import DestinationBusy
from syphon.transfer.batches import Transfer
from syphon.transfer.destination import Destination, Open, Progress, Waiting
from syphon.transfer.pump import PERMANENT

from .conftest import Bench, aliased


@dataclass
class Trial:
    """A destination on a real connection, in a time that is moved by hand."""

    bench: Bench
    connection: Connection
    destination: Destination
    now: float = 1000.0
    progress: Progress = field(default_factory=Progress)

    def send(self) -> None:
        """One message, until it is known what became of it."""
        before = len(self.progress.accepted) + len(self.progress.left)
        self.offer(None)
        self.turn(lambda: len(self.progress.accepted) + len(self.progress.left) > before)

    def offer(self, key: str | None) -> None:
        payload = data_section(b"x")
        restored = Restored(payload, "orders", None, None, key, len(payload), Facts())
        self.destination.offer(Transfer(Arrival(None, 0, b"", b"", 0.0, 0.0), restored, 1))  # type: ignore[arg-type]

    def turn(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline, "it did not come to pass"
            done = self.destination.work(self.connection, self.now)
            self.progress.accepted += done.accepted
            self.progress.left += done.left
            self.connection.wire.flush()
            select.select([self.connection.wire], [], [], 0.02)
            self.connection.read()

    def pause(self) -> float:
        """How long it is left alone after the next failure; time then moves on to the end of it."""
        self.send()
        state = self.destination.state
        assert isinstance(state, Waiting)
        pause, self.now = state.until - self.now, state.until
        return pause


@pytest.fixture
def trial(bench: Bench) -> Iterator[Trial]:
    bench.queue("orders")
    namespace = bench.reach("contoso", "")
    bench.wait(lambda: namespace.connection() is not None)
    connection = namespace.connection()
    assert connection is not None
    yield Trial(bench, connection, Destination("orders", PERMANENT))
    namespace.close()


@pytest.mark.parametrize(
    ("condition", "pauses"),
    [
        ("com.microsoft:server-busy", [10, 20, 40, 80, 120, 120]),
        ("amqp:internal-error", [1, 2, 4, 8, 16, 32, 64, 120, 120]),
        ("amqp:resource-limit-exceeded", [30, 60, 120, 120]),
    ],
)
def test_each_failure_in_a_row_doubles_the_wait_up_to_two_minutes(  # S5, S9
    trial: Trial, condition: str, pauses: list[float]
) -> None:
    trial.bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition=condition))
    assert [trial.pause() for _ in pauses] == pauses


def test_a_success_starts_over(trial: Trial) -> None:  # S9
    busy = Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy")
    trial.bench.fault(busy)
    assert [trial.pause(), trial.pause()] == [10, 20]
    trial.bench.emulator.call(trial.bench.primary.faults.clear)
    trial.send()
    assert len(trial.progress.accepted) == 1
    assert isinstance(trial.destination.state, Open)
    trial.bench.fault(busy)
    assert trial.pause() == 10


def test_after_a_failure_one_batch_goes_ahead_and_the_others_wait_for_its_answer(trial: Trial) -> None:  # S5
    busy = trial.bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy"))
    trial.pause()
    for number in range(50):
        trial.offer(f"key {number}")  # fifty keys are fifty batches
    trial.turn(lambda: len(trial.progress.left) == 51)
    assert busy.struck == 2


def test_a_few_messages_without_a_key_do_not_wait_for_those_with_keys(trial: Trial) -> None:  # S3
    """They wait for company as long as something is under way; where others come and go, that may be for ever."""
    unanswered = trial.bench.fault(Fault(Action.LOSE_REPLY, Operation.SEND, "orders", times=1))
    trial.offer("first")
    trial.turn(lambda: unanswered.struck == 1)
    trial.offer(None)
    trial.offer("second")
    trial.turn(lambda: len(trial.progress.accepted) == 2)


def test_one_that_was_stuck_when_it_failed_has_its_time_again_after_the_wait(trial: Trial) -> None:  # S3
    trial.destination._stuck_since = trial.now - 100
    trial.destination._suffer(DestinationBusy(), trial.now)
    trial.now += 10
    trial.send()  # over a link that has to be opened first
    assert (len(trial.progress.accepted), len(trial.progress.left)) == (1, 0)


def test_who_waits_is_told_with_the_reason_the_time_and_how_many_were_left(bench: Bench) -> None:  # D7
    bench.queue("orders")
    bench.queue("full")
    bench.emulator.call(lambda: setattr(bench.primary.entity("full"), "quota_bytes", 0))
    bench.put(*(aliased(f"{i}", "full" if i % 2 else "orders") for i in range(20)))
    pump, _ = bench.run()
    (waiting,) = pump.waiting()
    assert (waiting.path, waiting.left) == ("full", 10)
    assert 0 < waiting.seconds <= 30
    assert "amqp:resource-limit-exceeded" in waiting.reason
