"""The order of a job: it is on record before its first receive, and closed after its last (D17). Without Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from syphon.control.protocol import ControlAddress, HandOver, QueueReport, SlotReport
from syphon.ledger import Attempt, OpenJob
from syphon.model import Counters
from syphon.spark import jobs as jobs_module
from syphon.spark.jobs import Jobs
from syphon.spark.session_access import SparkLost
from syphon.spark.task import Task
from syphon.transfer import PumpOptions
from tests.unit.worker.test_pair_drain import PAIR

QUEUE = "contoso/x-servicebus-transfer/0"
ROWS = [b"rows of a slot"]
BEGUN = ["on record", "known to the control server", "tasks"]
ENDED = ["reports taken", "closed"]


class Scene:
    """Everything that a job uses. It notes the steps in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.opened: list[OpenJob] = []
        self.closed: list[tuple[str, Sequence[bytes], Sequence[Attempt]]] = []
        self.tasks: Callable[[], list[bytes]] = lambda: ROWS
        self.is_spark_lost = False
        self.sent: list[bytes] = []
        counted = QueueReport(queue=QUEUE, counters=Counters(received=3, forwarded=3))
        self.report = SlotReport(
            pair=PAIR.name,
            job="job-1",
            slot=0,
            attempt=0,
            started_at=0,
            reported_at=7,
            queues=(counted,),
            finished=True,
        )
        access = SimpleNamespace(
            inherit=lambda: None,
            describe_job=lambda *_: None,
            watched=lambda *_: nullcontext(),
            is_lost=lambda: self.is_spark_lost,
        )
        monkeypatch.setattr(jobs_module, "access_to", lambda _: access)
        monkeypatch.setattr(jobs_module, "run_tasks", self.run_tasks)
        control = SimpleNamespace(
            address=ControlAddress("127.0.0.1", 1, ""),
            open_job=self.open_control,
            settle_job=self.settle_control,
            close_job=self.close_control,
            rows_of=lambda _: self.sent,
        )
        writer = SimpleNamespace(open_job=self.open_record, close_job=self.close_record)
        self.jobs = Jobs(cast(Any, None), cast(Any, control), cast(Any, writer))

    def run(self) -> jobs_module.JobResult:
        return self.jobs.run(PAIR, [HandOver(queue=QUEUE)], [PumpOptions()], job="job-1")

    def open_record(self, job: OpenJob) -> None:
        self.steps.append("on record")
        self.opened.append(job)

    def open_control(self, job: str, queues: tuple[HandOver, ...]) -> None:
        self.steps.append("known to the control server")

    def run_tasks(self, spark: object, task: Task, count: int) -> list[bytes]:
        self.steps.append("tasks")
        return self.tasks()

    def settle_control(self, job: str, within: float) -> None:
        self.steps.append("slots have ended")

    def close_control(self, job: str) -> list[SlotReport]:
        self.steps.append("reports taken")
        return [self.report]

    def close_record(self, job: str, files: Sequence[bytes], attempts: Sequence[Attempt]) -> None:
        self.steps.append("closed")
        self.closed.append((job, files, attempts))


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_a_job_is_on_record_before_its_tasks_begin_and_closed_after_they_have_ended(scene: Scene) -> None:  # D17
    result = scene.run()
    assert scene.steps == BEGUN + ENDED
    (opened,) = scene.opened
    assert (opened.job, opened.pair, opened.queues, opened.slots) == ("job-1", PAIR.name, (QUEUE,), 1)
    ((job, files, attempts),) = scene.closed
    assert (job, files) == ("job-1", ROWS)
    assert [(each.job, each.queue, each.counters.forwarded) for each in attempts] == [("job-1", QUEUE, 3)]
    assert [each.ended_at for each in attempts] == [7], "when it last reported, and not when the job was over"
    assert result.reports == (scene.report,)


def test_a_job_that_spark_gives_up_is_closed_with_what_its_attempts_had_counted(scene: Scene) -> None:  # D9, D17
    scene.tasks = fail
    result = scene.run()
    assert scene.steps == [*BEGUN, "slots have ended", *ENDED]
    ((_, files, attempts),) = scene.closed
    assert files == []
    assert [each.counters.received for each in attempts] == [3]
    assert "Spark gave up a job" in result.spark_error
    assert not result.is_cancelled


def test_rows_that_slots_have_sent_are_on_record_once_however_the_job_ends(scene: Scene) -> None:  # D9
    scene.sent = [b"sent", b"sent", *ROWS]
    scene.run()
    scene.tasks = fail
    scene.run()
    assert [files for _, files, _ in scene.closed] == [[b"sent", *ROWS]] * 2


def test_a_job_that_loses_spark_stays_open(scene: Scene) -> None:  # D17
    """Its slots may go on for some seconds. Only an open job lets the report say that not all of it is known."""
    scene.tasks, scene.is_spark_lost = fail, True
    with pytest.raises(SparkLost, match="Spark stopped while it worked on"):
        scene.run()
    assert scene.steps == BEGUN


def fail() -> list[bytes]:
    raise RuntimeError("Job aborted due to stage failure")
