"""One backlog queue of a running worker: what it does when its doorbell rings, without Spark and without a network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from syphon.bus import SideFault
from syphon.config import PairSettings, PipelineSettings
from syphon.spark.control_protocol import SlotReport
from syphon.spark.jobs import JobResult
from syphon.spark.jvm_watch import SparkLost
from syphon.worker.pauses import Pauses
from syphon.worker.queue_worker import PairJobs, QueueWorker
from tests.support.waiting import eventually

QUEUE = "contoso/x-servicebus-transfer/0"
SIDE = {"connection_string": "Endpoint=sb://127.0.0.1;SharedAccessKeyName=k;SharedAccessKey=a2V5"}
FAULT = SideFault("primary", denied=True, text="the key was refused")


def settings(**more: Any) -> PairSettings:
    return PairSettings.model_validate({"name": "contoso", "primary": SIDE, "secondary": SIDE, **more})


def report(**more: Any) -> SlotReport:
    return SlotReport(pair="contoso", queue=QUEUE, job="j", slot=0, attempt=0, started_at=0, finished=True, **more)


class Results(PairJobs):
    """The jobs of a pair, with results that are known before."""

    def __init__(self, *results: JobResult | Exception) -> None:
        super().__init__(settings(), PipelineSettings(), Any, Pauses())  # type: ignore[arg-type]
        self.slots: list[int] = []
        self._results = list(results)

    @property
    def most_slots(self) -> int:
        return 3

    def run(self, queue: str, slots: int) -> JobResult:
        assert queue == QUEUE
        self.slots.append(slots)
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


@pytest.fixture
def stopping() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def worker(jobs: PairJobs, stopping: threading.Event, done: list[str], faults: list[SideFault]) -> QueueWorker:
    return QueueWorker(QUEUE, jobs, stopping, done.append, faults.append)


def test_jobs_get_twice_the_slots_while_there_is_more_and_the_doorbell_is_armed_afterwards(
    stopping: threading.Event,
) -> None:
    more, quiet = JobResult((report(busy=True),)), JobResult((report(),))
    jobs, done = Results(more, more, more, quiet), list[str]()
    found = worker(jobs, stopping, done, [])
    found.ring()
    assert jobs.slots == []  # no thread runs before start()
    found.start()
    eventually(lambda: done, within=10)
    assert jobs.slots == [1, 2, 3, 3]
    assert (done, found.is_working, found.failure) == ([QUEUE], False, None)


def test_a_fault_that_a_job_finds_is_passed_on(stopping: threading.Event) -> None:  # C1
    faults = list[SideFault]()
    found = worker(Results(JobResult((report(fault=FAULT),))), stopping, [], faults)
    found.start()
    found.ring()
    eventually(lambda: faults, within=10)
    assert faults == [FAULT]


def test_an_error_that_no_job_returns_ends_the_thread_and_is_kept_for_the_worker(stopping: threading.Event) -> None:
    lost, done = SparkLost("Spark stopped"), list[str]()
    found = worker(Results(lost), stopping, done, [])
    found.start()
    found.ring()
    eventually(lambda: found.failure, within=10)
    assert found.failure is lost
    assert (found.is_working, done) == (False, [])


def test_settings_are_taken_over_by_a_command_and_it_says_whether_the_destinations_differ() -> None:
    jobs = Results()
    assert not jobs.reload(settings(rate=5))
    assert jobs.settings.rate == 5
    assert jobs.reload(settings(destinations={"allow": ["orders"]}))
    assert jobs.settings.destinations.allow == ["orders"]
