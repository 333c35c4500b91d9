"""Pairs are supervised one by one: a worker of two pairs, a real emulator, and slots in threads instead of Spark."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from syphon.config import Config, PairSettings, load_config
from syphon.control.control_server import ControlServer
from syphon.control.protocol import HandOver
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, QueueDescription
from syphon.ledger.ledger import Ledger
from syphon.ledger.writer import LedgerWriter
from syphon.model import Faulted, NotAuthorized, SyphonError
from syphon.spark.jobs import JobResult
from syphon.spark.task import Slot, SlotAssignment
from syphon.status.logs import RecentEvents
from syphon.status.observer import Observer
from syphon.status.snapshot import BacklogQueueState, MessageFlow, PairStatus, Severity, SideState, WorkerStatus
from syphon.status.status_service import _status_line
from syphon.transfer import DestinationBackoff, PumpOptions
from syphon.worker import pair_worker
from syphon.worker.pair_worker import PairWorker
from syphon.worker.pauses import Pauses
from syphon.worker.worker import Worker
from tests.support.stub_spark import StubSpark, spark_that_runs
from tests.support.waiting import eventually

WRONG = "d3Jvbmc="


class SlotsInThreads:
    """Runs the slots of jobs without Spark, in the thread of the job."""

    def __init__(self, control: ControlServer) -> None:
        self._control = control
        self.running = Counter[str]()
        """Slots by pair."""

    def run(
        self,
        pair: PairSettings,
        queues: Sequence[HandOver],
        options: Sequence[PumpOptions],
        backing_off: Sequence[DestinationBackoff],
        *,
        rate: float | None,
        job: str,
    ) -> JobResult:
        self._control.open_job(job, tuple(queues))
        self.running[pair.name] += 1
        assignment = SlotAssignment(
            pair, tuple(queues), job, options[0], self._control.address, rate, tuple(backing_off)
        )
        for _ in Slot(assignment, 0, 0).turns():
            pass
        self.running[pair.name] -= 1
        return JobResult(tuple(self._control.close_job(job)))


@dataclass
class Scene:
    """A worker, and the namespaces of its pairs: `one` and `one-dr`, `two` and `two-dr`."""

    emulator: BackgroundEmulator
    folder: Path
    config: Config
    worker: Worker
    slots: SlotsInThreads
    observer: Observer
    result: list[SyphonError | None] = field(default_factory=list)
    """How the worker has ended."""

    def pair(self, name: str) -> PairWorker:
        return next(pair for pair in self.worker.pairs if pair.settings.name == name)

    def status(self) -> WorkerStatus:
        return self.observer._snapshot()

    def status_of(self, name: str) -> PairStatus:
        return next(pair for pair in self.status().pairs if pair.name == name)

    def works(self, name: str) -> bool:
        found = self.status_of(name)
        return found.primary.connected and found.secondary.connected and found.fault is None

    def put(self, name: str, *messages: str) -> None:
        with (
            ServiceBusClient.from_connection_string(self.emulator[f"{name}-dr"].connection_string) as client,
            client.get_queue_sender(f"{name}/x-servicebus-transfer/0") as sender,
        ):
            sender.send_messages(
                [
                    ServiceBusMessage(id_, message_id=id_, application_properties={"x-ms-path": "orders"})
                    for id_ in messages
                ]
            )

    def count(self, namespace: str, queue: str) -> int:
        return self.emulator.call(lambda: len(self.emulator[namespace].namespace.message_queue(queue).peek(0, 1000)))

    def arrived(self, name: str) -> int:
        return self.count(name, "orders")

    def start(self) -> None:
        self.worker.start()
        threading.Thread(target=lambda: self.result.append(self.worker.run()), daemon=True).start()

    def end(self) -> SyphonError | None:
        return eventually(lambda: list(self.result), what=lambda: self.status())[0]


def write_secret(folder: Path, emulator: BackgroundEmulator, namespace: str, key: str | None = None) -> None:
    text = emulator[namespace].connection_string
    (folder / namespace).write_text(text if key is None else text.replace("SAS_KEY_VALUE", key))


def create_queue(emulator: BackgroundEmulator, namespace: str, name: str) -> None:
    emulator.call(lambda: emulator[namespace].namespace.create_queue(QueueDescription(name)))


NAMESPACES = ("one", "one-dr", "two", "two-dr")


@contextmanager
def scene(
    folder: Path, *wrong: str, pairs: Sequence[str] = ("one", "two"), makes_queues: bool = True
) -> Iterator[Scene]:
    """A worker that is not started yet. The keys of the namespaces that are `wrong` are not those of the emulator."""
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name=name) for name in NAMESPACES])
    with BackgroundEmulator(settings) as emulator:
        for name in ("one", "two"):
            create_queue(emulator, name, "orders")
            create_queue(emulator, f"{name}-dr", f"{name}/x-servicebus-transfer/0")
        for name in NAMESPACES:
            write_secret(folder, emulator, name, WRONG if name in wrong else None)
        file = folder / "config.yaml"
        found = [
            {
                "name": name,
                "primary": {"connection_string": f"${{file:{name}}}", "name": name},
                "secondary": {"connection_string": f"${{file:{name}-dr}}"},
                "backlog_queue_count": 1,
            }
            for name in pairs
        ]
        file.write_text(yaml.safe_dump({"pairs": found}))
        config = load_config(file)
        with ControlServer() as control:
            slots = SlotsInThreads(control)
            worker = Worker(config, spark_that_runs(slots.run), control, makes_queues=makes_queues)
            observer = Observer(config, Pauses(), RecentEvents())
            observer.attach(worker, control, LedgerWriter(Ledger(cast(Any, None), "nowhere")))
            made = Scene(emulator, folder, config, worker, slots, observer)
            try:
                yield made
            finally:
                worker.stop()
                if made.result or worker.pairs[0]._thread.is_alive():
                    eventually(lambda: made.result)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A faulted pair is set up again soon."""
    monkeypatch.setattr(pair_worker, "FIRST_SET_UP_DELAY", 0.2)
    monkeypatch.setattr(pair_worker, "LONGEST_SET_UP_DELAY", 1.0)
    monkeypatch.setattr(pair_worker, "PROVEN_AFTER", 0.1)


@pytest.mark.parametrize("wrong", ["two", "two-dr"])
@pytest.mark.parametrize("makes_queues", [True, False])
@pytest.mark.usefixtures("quick")
def test_a_pair_with_a_wrong_key_is_set_up_again_and_the_other_one_works_meanwhile(
    tmp_path: Path, wrong: str, makes_queues: bool, caplog: pytest.LogCaptureFixture
) -> None:  # C1, C3, X1
    caplog.set_level("INFO", "syphon")
    side = "secondary" if wrong.endswith("-dr") else "primary"
    with scene(tmp_path, wrong, makes_queues=makes_queues) as found:
        found.start()
        found.put("one", "a", "b")
        found.put("two", "c")
        eventually(lambda: found.arrived("one") == 2)
        fault = eventually(lambda: found.status_of("two").fault)
        assert (fault.side, "refused" in fault.reason or "Manage claim" in fault.reason) == (side, True)
        assert found.works("one")
        assert f"The pair two has faulted, its {side} is unusable" in caplog.text
        assert WRONG not in caplog.text
        eventually(lambda: caplog.text.count("The pair two has faulted") > 1)
        assert "Reopening it in 400 ms" in caplog.text
        write_secret(tmp_path, found.emulator, wrong)
        eventually(lambda: found.works("two"))
        eventually(lambda: found.arrived("two") == 1)
        assert found.result == []
        assert "two: the pair has recovered after" in caplog.text
        found.worker.stop()
        assert found.end() is None


def test_a_fault_shows_in_status_readiness_and_the_service_managers_line(tmp_path: Path) -> None:  # C3, X7
    with scene(tmp_path, "two") as found:
        found.start()
        eventually(lambda: found.works("one") and found.pair("two").fault and found.pair("two").listener is None)
        status, pair = found.status(), found.status_of("two")
        assert pair.fault is not None
        assert pair.fault.next_attempt is not None
        assert pair.fault.next_attempt > status.at
        assert (pair.primary.state, pair.secondary.state) == (SideState.FAULTED, SideState.CLOSED)
        assert pair.secondary.reason == "closed, because the primary has faulted"
        assert pair.queues[0].state is BacklogQueueState.TROUBLED
        assert status.outlook.flow is MessageFlow.PARTLY_BLOCKED
        (problem,) = [each for each in status.problems if each.severity is Severity.CRITICAL]
        assert problem.text.startswith("two faulted ")
        assert "Next attempt at" in problem.remedy
        assert status.not_ready == []  # one pair works
        assert found.observer.trouble() == ""
        assert _status_line(status).startswith("faulted: two: primary: ")


def test_a_fault_stops_the_slots_of_its_pair_and_loses_nothing(tmp_path: Path) -> None:  # C1, C2
    with scene(tmp_path) as found:
        for name in ("one", "two"):
            found.worker._control_server.set_rate(name, 5.0)
        found.start()
        messages = [f"m{number}" for number in range(200)]
        found.put("one", *messages)
        found.put("two", *messages)
        eventually(lambda: found.arrived("one") and found.arrived("two"))
        listener = found.pair("two").listener
        assert listener is not None
        listener.pair.primary.fault(NotAuthorized("The key was revoked."))
        eventually(lambda: not found.slots.running["two"], within=20)
        assert found.slots.running["one"]
        eventually(lambda: listener.pair.has_ended)
        moved = found.arrived("one")
        eventually(lambda: found.arrived("one") > moved)
        assert found.arrived("two") + found.count("two-dr", "two/x-servicebus-transfer/0") == 200
        assert not found.result


@pytest.mark.usefixtures("quick")
def test_a_pair_is_set_up_again_only_when_its_old_slots_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # C2
    may_end = threading.Event()
    run = SlotsInThreads.run

    def run_slowly(*arguments: Any, **named: Any) -> JobResult:
        result = run(*arguments, **named)
        if not may_end.is_set():
            may_end.wait()
        return result

    monkeypatch.setattr(SlotsInThreads, "run", run_slowly)
    with scene(tmp_path) as found:
        found.start()
        found.put("two", "a")
        eventually(lambda: found.slots.running["two"])
        pair = found.pair("two")
        listener, dispatcher = pair.listener, pair._dispatcher
        assert listener is not None
        listener.pair.primary.fault(NotAuthorized("The key was revoked."))
        eventually(lambda: pair.listener is None)
        eventually(lambda: (fault := found.status_of("two").fault) and fault.next_attempt is None)
        assert (pair.listener, pair._dispatcher) == (None, dispatcher)
        may_end.set()
        eventually(lambda: found.works("two"))
        assert pair._dispatcher is not dispatcher
        found.put("two", "b")
        eventually(lambda: found.arrived("two") == 2)


def test_a_reload_sets_a_faulted_pair_up_at_once_and_a_stop_does_not_wait_for_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # X9
    monkeypatch.setattr(pair_worker, "PROVEN_AFTER", 0.1)
    with scene(tmp_path, "two") as found:
        found.start()
        eventually(lambda: (fault := found.status_of("two").fault) and fault.next_attempt)
        found.worker.reload(found.config)
        eventually(lambda: (fault := found.pair("two").fault) and fault.retry == 60.0)  # it was tried once more
        write_secret(tmp_path, found.emulator, "two")
        found.worker.reload(found.config)
        eventually(lambda: found.works("two"), within=25)
        listener = found.pair("two").listener
        assert listener is not None
        listener.pair.secondary.fault(NotAuthorized("The key was revoked."))
        eventually(lambda: found.pair("two").listener is None)
        found.worker.stop()
        eventually(lambda: found.result, within=15)
        assert found.end() is None


@pytest.mark.parametrize("makes_queues", [True, False])
@pytest.mark.parametrize(
    ("pairs", "wrong"),
    [
        (("one",), ("one",)),
        (("one",), ("one-dr",)),
        (("one", "two"), ("one", "two")),
        (("one", "two"), ("one-dr", "two-dr")),
        (("one", "two"), ("one", "two-dr")),
    ],
)
def test_a_worker_whose_credentials_are_all_refused_at_its_start_is_not_authorized(
    tmp_path: Path, pairs: Sequence[str], wrong: Sequence[str], makes_queues: bool
) -> None:  # C3, D12
    with scene(tmp_path, *wrong, pairs=pairs, makes_queues=makes_queues) as found:
        found.start()
        reason = found.end()
        assert isinstance(reason, NotAuthorized)
        assert all(name in str(reason) for name in pairs)


def test_a_worker_ends_when_its_last_working_pair_faults(tmp_path: Path) -> None:  # C1, C3
    with scene(tmp_path, "two") as found:
        found.start()
        eventually(lambda: found.works("one") and found.pair("two").fault)
        listener = found.pair("one").listener
        assert listener is not None
        listener.pair.secondary.fault(NotAuthorized("The key was revoked."))
        reason = found.end()
        assert isinstance(reason, Faulted)
        assert not isinstance(reason, NotAuthorized), "it has worked: 70, so that it is started again"
        assert str(reason).startswith("All pairs have faulted")


def test_a_pair_that_waited_for_a_slot_does_not_keep_one_from_others_when_it_faults(tmp_path: Path) -> None:  # D15
    with scene(tmp_path) as found:
        found.start()
        eventually(lambda: found.works("one") and found.works("two"))
        pair, listener = found.pair("two"), found.pair("two").listener
        assert listener is not None
        budget = pair._budget
        budget.open(StubSpark.most_slots)  # as if Spark ran
        assert all(budget.take("one") for _ in range(StubSpark.most_slots))
        found.put("two", "a")
        eventually(lambda: "two" in budget._waiting)
        listener.pair.primary.fault(NotAuthorized("The key was revoked."))
        eventually(lambda: pair.listener is None)
        budget.release("one")
        assert budget.take("one"), "the free slot is not kept for a pair that is closed"
