"""A Spark for tests that need none: it starts at once, and its jobs are a function of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from syphon.model import SyphonError
from syphon.spark import JobResult
from syphon.worker.spark_lifecycle import SparkLifecycle


class StubSpark:
    """Starts and runs as the test says."""

    most_slots = 2

    def __init__(self, run: Callable[..., JobResult] | None = None) -> None:
        self._run = run
        self.is_ours = True
        self.failure: SyphonError | None = None
        self.refusal: Exception | None = None
        """Why it does not start."""
        self.when_stopped: Callable[[], object] = lambda: None
        self.started = self.stopped = self.killed = 0

    def start(self) -> StubSpark:
        if self.refusal is not None:
            raise self.refusal
        self.started += 1
        self.failure = None
        return self

    def kill(self) -> None:
        self.killed += 1

    def run(self, *arguments: Any, **named: Any) -> JobResult:
        assert self._run is not None
        return self._run(*arguments, **named)

    def stop(self) -> None:
        self.stopped += 1
        self.when_stopped()


def spark_that_runs(run: Callable[..., JobResult] | None = None, idle_shutdown: float = 900.0) -> SparkLifecycle:
    """Spark on demand for a worker whose jobs are this function."""
    return SparkLifecycle(StubSpark(run), idle_shutdown)
