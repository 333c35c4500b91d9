"""Spark as the simulator sees it: tasks start late, die, are repeated, and bring their rows late or never.

The tasks are the product's own slots. The session itself, the JVM and the serialisation are not simulated.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from syphon.config import PairSettings
from syphon.config.pairs import SideSettings
from syphon.control.protocol import ControlAddress, HandOver
from syphon.control.reporter import DriverUnreachable
from syphon.model import Outcome, SyphonError
from syphon.servicebus import Pair
from syphon.spark.jobs import JobResult
from syphon.spark.task import Slot, SlotAssignment
from syphon.transfer import DestinationBackoff, Pump, PumpOptions

from .connections import simulated_namespace
from .control import SimulatedControl, SimulatedControlClient
from .incident import PAIRS, SPARK_STOPS, Kind, SimulatedFault, secondary_of
from .pump_runner import holds, next_look
from .threads import SimulatedEvent, SimulatedProcess

if TYPE_CHECKING:
    from .world import World

START = 0.3
"""Seconds until a task runs that has a place."""


def pair_settings(pair: str, queues: int = 10) -> PairSettings:
    """The settings of a pair with this name."""
    return PairSettings(
        name=pair,
        primary=SideSettings(namespace=f"{pair}.servicebus.windows.net"),
        secondary=SideSettings(namespace=f"{secondary_of(pair)}.servicebus.windows.net"),
        backlog_queue_count=queues,
    )


PAIR = pair_settings(PAIRS[0])
NOWHERE = ControlAddress("", 0, "")


class TaskAttempt:
    """One attempt of a task: a slot in a Python worker of its own."""

    def __init__(self, spark: SimulatedSpark, assignment: SlotAssignment, number: int, attempt: int) -> None:
        world = spark.world
        self.ended = SimulatedEvent(spark.driver)
        """Set when Spark takes the attempt for ended. The process may go on all the same."""
        self.error = ""
        self.is_given_up = False
        """Whether Spark does not try the task again."""
        self.outcomes: list[Outcome] = []
        self.process = SimulatedProcess(world.time, world.network, world.clock)
        self._world = world
        self._spark = spark
        self._arguments = assignment, number, attempt
        self._pump: Pump | None = None
        self.process.spawn(self._run, f"task {number}.{attempt}")

    def _run(self) -> None:
        process, world = self.process, self._world
        client = SimulatedControlClient(process, self._spark.control, world.control)
        pair = self._arguments[0].pair.name
        checker = world.checkers[pair]
        namespaces = Pair(simulated_namespace(process, pair), simulated_namespace(process, secondary_of(pair)))
        slot = Slot(*self._arguments, namespaces=namespaces, control=client, runtime=process.runtime)
        pump = self._pump = slot._pump
        process.runtime.next_look = next_look(pump)
        try:
            for _ in slot.turns():
                checker.turned(pump, len(slot._outcomes))
                checker.reported(slot, process.clock.now() - client.heard_at)
        except DriverUnreachable as error:
            self.fail(str(error))
        checker.check_pair(namespaces)
        world.note("slot ended", f"{self._spark.number_of(self._arguments[0].job)} {pump.counters}")
        self.outcomes = slot._outcomes
        self.ended.set()

    def is_in_flight(self, lock_token: bytes) -> bool:
        return self._pump is not None and not self.process.is_dead and holds(self._pump, lock_token)

    def fail(self, error: str) -> None:
        """Spark takes the attempt for lost."""
        if not self.ended.is_set():
            self.error = error
            self.ended.set()

    def kill(self, silently: bool) -> None:
        """The Python worker dies. Spark notices it when its pipe ends."""
        self.process.crash(silently)
        self._world.time.call_later(0.1, self.fail, "Python worker exited unexpectedly")


class SimulatedSpark:
    """Runs slots as tasks. Its jobs run in threads of the driver."""

    def __init__(self, world: World, driver: SimulatedProcess, control: SimulatedControl) -> None:
        self.world = world
        self.driver = driver
        self.control = control
        self.attempts: list[TaskAttempt] = []
        """The attempts that Spark knows to run."""
        self.all_attempts: list[TaskAttempt] = []
        self._numbers: dict[str, int] = {}
        self.is_full = False
        """Whether no task gets a place."""
        self.rows_delay = 0.0
        self._running = 0
        """How many jobs run."""
        self.failure: SyphonError | None = None
        """Why it is lost."""
        self.refuses = False
        """Whether it does not start."""
        self._killed = 0
        """How often its JVM was killed."""
        self._is_stopped = False
        self.most_slots = world.incident.slots
        """How many tasks run at once; the name is the product's (`Jobs.most_slots`)."""

    def start(self) -> None:
        """Starts as late as Spark does, or not at all."""
        killed = self._killed
        self._sleep(self.world.incident.spark_starts_within)
        if self.refuses or self._killed > killed:
            self.world.note("Spark not started", "")
            raise SyphonError("Spark could not be started.")
        self.world.note("Spark started", "")
        self.failure, self._is_stopped = None, False

    def stop(self) -> None:
        """Takes its time to stop."""
        self.world.note("Spark stops", "")
        self._is_stopped = True
        self._sleep(SPARK_STOPS)

    def run(
        self,
        queues: tuple[HandOver, ...],
        options: list[PumpOptions],
        backing_off: tuple[DestinationBackoff, ...],
        job: str,
        pair: PairSettings = PAIR,
    ) -> JobResult:
        """Runs a job until all its slots have ended, as `Jobs.run` does."""
        if self.failure is not None:
            return JobResult((), str(self.failure))
        if self._is_stopped:
            self.world.checkers[pair.name].fail("a job began, and Spark had been stopped")
        self._running += 1
        self.world.checker.jobs_running(self._running)
        self.control.open_job(job, queues)
        assignments = [SlotAssignment(pair, queues, job, each, NOWHERE, None, backing_off) for each in options]
        errors: list[str] = []
        if len(assignments) == 1:
            self._run_task(assignments[0], 0, errors)
        else:
            tasks = [
                self.driver.spawn(partial(self._run_task, assignment, number, errors), f"task {number}")
                for number, assignment in enumerate(assignments)
            ]
            for task in tasks:
                task.join()
        if self.rows_delay:
            self._sleep(self.rows_delay)
        reports = tuple(self.control.close_job(job))
        self._running -= 1
        result = JobResult(reports, errors[0] if errors else "")
        self.world.note("job ended", f"{self.number_of(job)} {result.error} {result.counters}")
        self.world.checkers[pair.name].job_ended(result)
        return result

    def _run_task(self, assignment: SlotAssignment, number: int, errors: list[str]) -> None:
        error = ""
        for attempt in range(self.world.incident.task_failures):
            while self.is_full or len(self.attempts) >= self.most_slots:
                self._sleep(0.5)
            self._sleep(START)
            name = f"{self.number_of(assignment.job)}.{number}.{attempt}"
            self.world.note("slot started", f"{name} on {[handed.queue for handed in assignment.queues]}")
            task = TaskAttempt(self, assignment, number, attempt)
            self.attempts.append(task)
            self.all_attempts.append(task)
            task.ended.wait()
            self.attempts.remove(task)
            if not (error := task.error):
                return
            self.world.note("task failed", f"{name}: {error}")
            if task.is_given_up:
                break
        errors.append(f"Spark gave up a job: {error}")

    def number_of(self, job: str) -> int:
        """A number for a job, whose name is random."""
        return self._numbers.setdefault(job, len(self._numbers) + 1)

    def _sleep(self, seconds: float) -> None:
        self.driver.runtime.event().wait(seconds)

    # --- faults --------------------------------------------------------------------------------------------------

    def kill_all(self, silently: bool) -> None:
        for attempt in self.all_attempts:
            attempt.kill(silently)

    def kill_one(self, silently: bool) -> None:
        """Kills the process of one task that runs."""
        if self.attempts:
            self.attempts[0].kill(silently)

    def lose_one(self) -> None:
        """Takes an executor for lost that goes on all the same: its slot runs beside the next attempt."""
        if self.attempts:
            self.attempts[0].fail("ExecutorLostFailure: heartbeat timed out")

    def lose(self) -> None:
        """Its JVM is killed, also one that is starting. Its tasks end with it."""
        self._killed += 1
        self.failure = SyphonError("Spark's JVM was killed by signal 9 (SIGKILL).")
        self.give_up()

    def give_up(self) -> None:
        """Gives up every job that runs. Its tasks end with it."""
        for attempt in list(self.attempts):
            attempt.process.crash()
            attempt.is_given_up = True
            attempt.fail("Job aborted due to stage failure")


def strike_spark(spark: SimulatedSpark, fault: SimulatedFault) -> bool:
    """Lets a fault strike. Returns whether it is one of Spark's."""
    kind, time = fault.kind, spark.world.time
    if kind is Kind.SLOT_KILLED:
        spark.kill_one(fault.how == "silently")
    elif kind is Kind.SLOT_LOST:
        spark.lose_one()
    elif kind is Kind.JOB_GIVEN_UP:
        spark.give_up()
    elif kind is Kind.SPARK_FULL:
        spark.is_full = True
        time.call_later(fault.lasts, setattr, spark, "is_full", False)
    elif kind is Kind.ROWS_LATE:
        spark.rows_delay = fault.lasts
        time.call_later(fault.lasts, setattr, spark, "rows_delay", 0.0)
    elif kind is Kind.SPARK_LOST:
        spark.lose()
    elif kind is Kind.SPARK_REFUSES:
        spark.refuses = True
        time.call_later(fault.lasts, setattr, spark, "refuses", False)
    else:
        return False
    return True
