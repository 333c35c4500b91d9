"""A worker of several pairs as the thing under test: the product's own `Worker` supervises them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from syphon.backlog import queue_names
from syphon.config import Config, PairSettings, PipelineSettings
from syphon.control import Ending
from syphon.control.protocol import HandOver
from syphon.model import SyphonError
from syphon.servicebus import Pair
from syphon.spark.jobs import JobResult
from syphon.time_budget import NOTICING_DELAY
from syphon.transfer import DestinationBackoff, PumpOptions
from syphon.worker import Worker
from syphon.worker.spark_lifecycle import SparkLifecycle

from .connections import simulated_namespace
from .control import SimulatedControl
from .incident import secondary_of
from .spark import SimulatedSpark, pair_settings
from .threads import SimulatedProcess
from .worker_runner import LISTENER_OPENS_WITHIN, WorkerLife, WorkerRunner

if TYPE_CHECKING:
    from .world import World


IDLE_SHUTDOWN = 3.0
"""Seconds without a job after which Spark stops: short, so that it starts several times in an incident."""


def backlog_queues(pair: str, count: int) -> tuple[str, ...]:
    return tuple(queue_names(pair_settings(pair, count)))


class WorkerSpark:
    """Starts the simulated Spark for the product's own lifecycle, and runs jobs on it."""

    is_ours = True

    def __init__(self, spark: SimulatedSpark, window: int) -> None:
        self._spark = spark
        self._window = window

    def start(self) -> WorkerSpark:
        self._spark.start()
        return self

    def kill(self) -> None:
        """The end of the simulated process ends a start."""

    def stop(self) -> None:
        self._spark.stop()

    @property
    def most_slots(self) -> int:
        return self._spark.most_slots

    @property
    def failure(self) -> SyphonError | None:
        return self._spark.failure

    def run(
        self,
        pair: PairSettings,
        queues: Sequence[HandOver],
        options: Sequence[PumpOptions],
        backing_off: Sequence[DestinationBackoff] = (),
        *,
        rate: float | None = None,
        job: str = "",
    ) -> JobResult:
        return self._spark.run(
            tuple(queues), [replace(each, window=self._window) for each in options], tuple(backing_off), job, pair
        )


class WorkerOfPairs:
    """One life of a worker that serves all pairs of an incident."""

    def __init__(self, world: World, runner: PairsRunner) -> None:
        incident, clock = world.incident, world.clock
        self._world = world
        self._runner = runner
        self.process = process = SimulatedProcess(world.time, world.network, clock)
        self.control = SimulatedControl(world.time, clock)
        self.spark = SimulatedSpark(world, process, self.control)
        self._opened: list[tuple[str, Pair]] = []
        ending = Ending(clock.now)
        config = Config(
            pairs=[pair_settings(pair, incident.queues) for pair in incident.pairs],
            pipeline=PipelineSettings(lease=round(1000 * (incident.lease or 60.0))),
        )
        self._worker = Worker(
            config,
            SparkLifecycle(WorkerSpark(self.spark, incident.window), IDLE_SHUTDOWN, runtime=process.runtime),
            self.control,  # type: ignore[arg-type]  # the control of slots, without HTTP
            makes_queues=False,
            ending=ending,
            runtime=process.runtime,
            open_pair=self._open,
        )
        for checker in world.checkers.values():
            checker.worker_started()
        process.spawn(self._run, "worker")

    def _open(self, settings: PairSettings, _: str) -> Pair:
        name, world = settings.name, self._world
        world.note("pair set up", name)
        world.checkers[name].set_up()
        pair = Pair(
            *(
                simulated_namespace(self.process, side, NOTICING_DELAY, LISTENER_OPENS_WITHIN)
                for side in (name, secondary_of(name))
            )
        )
        self._opened.append((name, pair))
        return pair

    def _run(self) -> None:
        self._worker.start()
        reason = self._worker.run()
        checkers = self._world.checkers
        for name, pair in self._opened:
            checkers[name].check_pair(pair)
        for checker in checkers.values():
            checker.check_totals(self.control)
            if reason is not None:
                checker.worker_faulted(str(reason))
        self._runner.ended(self, reason)

    def stop(self) -> None:
        self._worker.stop()

    def crash(self, silently: bool, with_slots: bool) -> None:
        self.control.is_gone = True
        self.process.crash(silently)
        if with_slots:
            self.spark.kill_all(silently)


class PairsRunner(WorkerRunner):
    """Runs a worker of several pairs, and starts it again when it has ended."""

    def _new_life(self) -> WorkerLife:
        return WorkerOfPairs(self._world, self)
