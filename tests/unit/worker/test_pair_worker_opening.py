"""A worker looks for its backlog queues for as long as it takes, and says what is in the way. Without a network."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from syphon.config import PairSettings, PipelineSettings, SideSettings
from syphon.model import Faulted, Interrupted, SyphonError
from syphon.servicebus import SideFault
from syphon.time_budget import FIRST_JOB_RETRY, LONGEST_JOB_RETRY
from syphon.worker import pair_worker
from syphon.worker.pair_worker import PairWorker
from syphon.worker.pauses import Pauses
from tests.support.stub_spark import spark_that_runs

PAIR = PairSettings.model_validate(
    {"name": "contoso", "primary": {"namespace": "contoso.example"}, "secondary": {"namespace": "contoso-dr.example"}}
)


def worker_of_pair(stopping: threading.Event) -> PairWorker:
    none = cast(Any, None)  # neither jobs nor a control server are used before a queue rings
    return PairWorker(
        PAIR,
        PipelineSettings(),
        spark_that_runs(),
        none,
        stopping=stopping,
        makes_queues=False,
        pauses=Pauses(),
    )


class Opening(threading.Event):
    """Lets a pair worker look for its queues, and notes what it says and for how long it waits after each failure."""

    def __init__(self, *failures: SyphonError, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.failures = list(failures)
        self.pauses: list[float] = []
        self.said: list[SyphonError | None] = []
        self.listens_to: Sequence[str] | None = None
        self.worker = worker_of_pair(self)
        monkeypatch.setattr(self.worker, "_queues", self.queues)
        monkeypatch.setattr(self.worker, "_listen_to", self.listen_to)
        self.fault = self.worker._open()

    def queues(self) -> Sequence[str]:
        if self.failures:
            raise self.failures.pop(0)
        return ["backlog"]

    def listen_to(self, queues: Sequence[str]) -> None:
        self.listens_to = queues

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        self.said.append(self.worker.trouble)
        return self.is_set()


def test_an_outage_is_reported_while_it_lasts_and_does_not_end_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # C3
    away = Interrupted("The secondary cannot be reached.")
    opening = Opening(*[away] * 9, monkeypatch=monkeypatch)
    assert opening.said == [away] * 9
    assert (opening.worker.trouble, opening.fault) == (None, None)
    assert opening.listens_to == ["backlog"]
    assert opening.pauses[:3] == [FIRST_JOB_RETRY, 2 * FIRST_JOB_RETRY, 4 * FIRST_JOB_RETRY]
    assert max(opening.pauses) == opening.pauses[-1] == LONGEST_JOB_RETRY


def test_a_namespace_that_cannot_be_used_is_a_fault_at_once(monkeypatch: pytest.MonkeyPatch) -> None:  # C3
    refused = Faulted("The credentials are refused.")
    opening = Opening(refused, monkeypatch=monkeypatch)
    assert opening.fault == SideFault("secondary", False, "The credentials are refused.")
    assert (opening.pauses, opening.listens_to) == ([], None)


def test_the_listener_of_a_worker_notices_the_return_of_either_side(monkeypatch: pytest.MonkeyPatch) -> None:  # D16
    """Its connections try often enough for that, however long the outage is. Those of slots do not."""
    opened: list[tuple[str, bool]] = []

    def note(side: SideSettings, entity: str, *, notices_return: bool = False) -> object:
        opened.append((side.host, notices_return))
        return SimpleNamespace()

    monkeypatch.setattr(pair_worker, "namespace_of", note)
    monkeypatch.setattr(pair_worker, "Pair", lambda *_: SimpleNamespace())
    monkeypatch.setattr(pair_worker, "Listener", lambda name, *_, **__: SimpleNamespace(name=name, start=lambda: None))
    worker_of_pair(threading.Event())._listen_to(["backlog"])
    assert opened == [("contoso.example", True), ("contoso-dr.example", True)]
