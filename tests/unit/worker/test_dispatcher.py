"""Which slot serves which queue, without Spark and without a network: reports and job results are given (D15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syphon.control.protocol import HandOver, QueueReport, SlotOrder, SlotReport
from syphon.control.slot_control import SlotControl
from syphon.model import EntityPath
from syphon.model.outcomes import Counters, DestinationStats, Stats
from syphon.servicebus import SideFault
from syphon.spark.jobs import JobResult
from syphon.spark.session_access import SparkLost
from syphon.time_budget import FIRST_JOB_RETRY, SHORT_LEASE, SLOT_STARTS_WITHIN
from syphon.transfer import DestinationBackoff, Ended, Ring, WaitingMessages
from syphon.worker.dispatcher import Dispatcher
from syphon.worker.pausable_gate import PausableGate
from syphon.worker.slots import SlotBudget

QUEUES = tuple(f"contoso/x-servicebus-transfer/{number}" for number in range(4))
FIRST, SECOND, THIRD, _ = QUEUES
LEASE = 60.0


class Listening:
    """Notes what the dispatcher tells the listener."""

    def __init__(self) -> None:
        self.armed = list[tuple[str, bool]]()
        self.faults = list[SideFault]()
        self.times_reached = self.times_missed = 0

    def arm(self, queue: str, scan: bool = False) -> None:
        self.armed.append((queue, scan))

    def waiting(self, queue: str) -> dict[str, WaitingMessages]:
        return {"deferred": WaitingMessages(1, 0)}

    def fault(self, fault: SideFault) -> None:
        self.faults.append(fault)

    def reached_primary(self) -> None:
        self.times_reached += 1

    def missed_primary(self) -> None:
        self.times_missed += 1


class Running:
    """A job that was started. The test reports for its slot, and ends it."""

    def __init__(self, scene: Scene, job: str, queues: tuple[HandOver, ...]) -> None:
        self._scene = scene
        self.job = job
        self.queues = {handed.queue: handed for handed in queues}
        self.counters = dict[str, Counters]()
        self.numbered = 0

    @property
    def orders(self) -> dict[str, HandOver]:
        """The queues that the control server tells it to serve."""
        return {handed.queue: handed for handed in self._order().queues}

    @property
    def is_told_to_stop(self) -> bool:
        return self._order().stop

    def _order(self) -> SlotOrder:
        return self._scene.control.order_for(self._report())

    def reports(self, **more: Any) -> None:
        """It reports that it serves all that it was handed, unless told otherwise."""
        self._scene.control.receive(self._report(**more))
        self._scene.dispatcher.turn()

    def ends_service(self, queue: str, ended: Ended, left: int = 0, error: str = "", **more: Any) -> None:
        before = self.counters.get(queue, Counters())
        self.counters[queue] = Counters(received=before.received + left, left=before.left + left)
        self.reports(over={queue: (ended, error)}, **more)

    def ends(self, error: str = "", fault: SideFault | None = None, **more: Any) -> None:
        report = self._report(finished=True, fault=fault, error=error, **more)
        self._scene.control.receive(report)
        self._scene.results[self.job] = JobResult(tuple(self._scene.control.close_job(self.job)))
        self._scene.jobs.remove(self)
        self._scene.background.pop(self.job)()
        self._scene.dispatcher.turn()

    def _report(self, over: dict[str, tuple[Ended, str]] | None = None, **more: Any) -> SlotReport:
        over = over or {}
        handed = {**self.queues, **self._scene.control._jobs.get(self.job, {})}
        busy = more.pop("busy", 0)
        found = tuple(
            QueueReport(
                queue=name,
                number=each.number,
                is_served=name not in over and "finished" not in more,
                ended=over[name][0] if name in over and not over[name][1] else more.get("ended"),
                error=over[name][1] if name in over else "",
                counters=self.counters.get(name, Counters()),
                in_flight=busy,
            )
            for name, each in handed.items()
        )
        more.pop("ended", None)
        self.numbered += 1
        report = {"attempt": 0, "queues": found, "number": self.numbered, **more}
        return SlotReport(pair="contoso", job=self.job, slot=0, started_at=0, **report)


class Scene:
    def __init__(self, most_slots: int = 2, one_slot_per_queue: bool = False) -> None:
        self.now = 1000.0
        self.paused = set[str]()
        self.listening = Listening()
        self.control = SlotControl()
        self.results = dict[str, JobResult | Exception]()
        self.jobs = list[Running]()
        self.background = dict[str, Callable[[], None]]()
        self.budget = SlotBudget(most_slots)
        self.backoffs = PausableGate("contoso", now=lambda: self.now)
        self._starting = list[Callable[[], None]]()
        self.dispatcher = Dispatcher(
            "contoso",
            QUEUES,
            self.listening,
            self.control,
            run_job=self._run_job,
            backoffs=self.backoffs,
            budget=self.budget,
            lease=LEASE,
            is_paused=self.paused.__contains__,
            background=self._start,
            one_slot_per_queue=one_slot_per_queue,
            now=lambda: self.now,
        )

    def _start(self, run: Callable[[], None]) -> None:
        slot = list(self.dispatcher._slots.values())[-1]
        self.background[slot.job] = run
        self.control.open_job(slot.job, tuple(slot.queues.values()))
        self.jobs.append(Running(self, slot.job, tuple(slot.queues.values())))

    def _run_job(
        self,
        job: str,
        queues: tuple[HandOver, ...],
        backing_off: tuple[DestinationBackoff, ...],
    ) -> JobResult:
        result = self.results[job]
        if isinstance(result, Exception):
            raise result
        return result

    def rings(self, *queues: str, ring: Ring = Ring.NEW) -> None:
        for queue in queues:
            self.dispatcher.ring(queue, ring)
        self.dispatcher.turn()

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.dispatcher.turn()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_queue_that_rings_starts_a_job_and_the_next_one_is_handed_to_its_slot(scene: Scene) -> None:  # S10
    scene.rings(FIRST)
    (job,) = scene.jobs
    assert list(job.orders) == [FIRST]
    scene.rings(SECOND)  # the slot is being started: it takes this one in a moment
    assert len(scene.jobs) == 1
    job.reports()
    assert sorted(job.orders) == [FIRST, SECOND]
    assert len(scene.jobs) == 1


def test_queues_that_ring_together_share_a_slot(scene: Scene) -> None:
    scene.rings(*QUEUES)
    assert [sorted(job.orders) for job in scene.jobs] == [sorted(QUEUES)]


def test_a_slot_hears_which_destinations_have_failed_and_may_have_deferred_messages(scene: Scene) -> None:  # S7
    full = DestinationBackoff("Full", 30.0, "is full", 1)
    scene.backoffs.record([full])
    scene.passes(31)  # its back-off is over, and it is still the one that has failed
    scene.rings(FIRST)
    order = scene.jobs[0].orders[FIRST]
    assert order.waiting == ("deferred", "full")
    assert order.failing == (full._replace(seconds=0.0),)


def test_a_slot_that_has_not_heard_of_a_retry_does_not_bring_the_back_off_back(scene: Scene) -> None:  # S9
    full = DestinationBackoff("Full", 30.0, "is full", 1)
    scene.rings(FIRST)
    (job,) = scene.jobs
    job.reports(backing_off=(full,))
    assert not scene.backoffs.can_move("full")
    scene.control.retry("contoso", EntityPath.of("full"))
    scene.backoffs.retry("full")
    job.reports(backing_off=(full,))
    assert scene.backoffs.can_move("full")
    job.reports(backing_off=(full,), retries=1)  # it was retried in vain
    assert not scene.backoffs.can_move("full")


def test_a_quiet_queue_is_listened_to_again_and_can_be_handed_out_again(scene: Scene) -> None:
    scene.rings(FIRST, SECOND)
    (job,) = scene.jobs
    job.reports()
    job.ends_service(FIRST, Ended.QUIET)
    assert scene.listening.armed == [(FIRST, False)]
    assert list(job.orders) == [SECOND]
    number = scene.dispatcher.queues[FIRST].number
    scene.rings(FIRST)
    assert job.orders[FIRST].number == number + 1
    assert scene.dispatcher.queues[FIRST].is_working


def test_a_queue_from_which_messages_were_received_is_scanned_by_peeking(scene: Scene) -> None:  # S7
    scene.rings(FIRST)
    scene.jobs[0].reports()
    scene.jobs[0].ends_service(FIRST, Ended.QUIET, left=3)
    assert scene.listening.armed == [(FIRST, True)]
    scene.rings(FIRST)
    scene.jobs[0].ends_service(FIRST, Ended.QUIET)  # it received nothing this time
    assert scene.listening.armed[1:] == [(FIRST, False)]


def test_each_try_of_a_dead_destination_that_fails_doubles_the_pause(scene: Scene) -> None:  # S9
    full = (DestinationBackoff("orders", 30.0, "is full", 1),)
    scene.rings(FIRST)
    scene.jobs[0].reports(backing_off=full)
    scene.jobs[0].reports(backing_off=full)  # the same failure
    scene.jobs[0].ends_service(FIRST, Ended.QUIET, left=3)
    scene.jobs[0].ends()
    pauses = []
    for _ in range(3):
        scene.passes(scene.backoffs.backing_off()[0].seconds)
        scene.rings(*QUEUES, ring=Ring.DEFERRED)  # its messages are in all queues: it is one failure all the same
        scene.jobs[0].reports(backing_off=full)  # a new slot, for which it is the first failure
        for queue in QUEUES:
            scene.jobs[0].ends_service(queue, Ended.QUIET, left=1, backing_off=full)
        scene.jobs[0].ends(backing_off=full)
        pauses.append(scene.backoffs.backing_off()[0].seconds)
    assert pauses == [60, 120, 120]


def test_a_destination_that_has_worked_begins_with_the_shortest_pause_again(scene: Scene) -> None:  # S9
    full = (DestinationBackoff("orders", 30.0, "is full", 1),)
    scene.rings(FIRST)
    scene.jobs[0].reports(backing_off=full)
    scene.passes(30)
    worked = Stats(destinations={"orders": DestinationStats("orders", forwarded=1)})
    scene.jobs[0].reports(queues=(QueueReport(queue=FIRST, number=1, stats=worked),))
    scene.jobs[0].reports(backing_off=full)
    assert scene.backoffs.backing_off()[0].seconds == 30


def test_a_queue_whose_slot_was_killed_is_scanned_although_the_next_attempt_received_nothing(
    scene: Scene,
) -> None:  # D16
    """It may have deferred messages before it could report them."""
    scene.rings(FIRST)
    scene.jobs[0].reports()
    scene.jobs[0].ends_service(FIRST, Ended.QUIET, attempt=1)
    assert scene.listening.armed == [(FIRST, True)]


def test_an_attempt_that_died_is_no_end_of_its_services(scene: Scene) -> None:
    scene.rings(FIRST)
    scene.jobs[0].reports()
    scene.jobs[0].reports(queues=(QueueReport(queue=FIRST, number=1, is_served=False),))
    assert scene.listening.armed == []
    scene.jobs[0].ends(error="Spark gave up a job")
    assert scene.dispatcher.queues[FIRST].trouble == "Spark gave up a job"


def test_a_slot_that_misses_the_primary_gets_no_queue_until_it_has_reached_it(scene: Scene) -> None:  # D16
    scene.rings(FIRST, SECOND)
    (job,) = scene.jobs
    job.reports()
    job.ends_service(FIRST, Ended.PRIMARY_UNREACHABLE)
    scene.rings(FIRST)
    assert len(scene.jobs) == 2
    scene.rings(THIRD)
    scene.jobs[1].reports()
    assert sorted(scene.jobs[1].orders) == [FIRST, THIRD]


def test_a_slot_that_spark_has_no_place_for_holds_up_no_queue(scene: Scene) -> None:
    scene.rings(FIRST)
    scene.jobs[0].reports()
    scene.passes(LEASE + 1)  # its successor has been started, and does not report
    scene.rings(SECOND)
    assert SECOND in scene.jobs[0].orders
    scene.passes(SLOT_STARTS_WITHIN)
    assert scene.jobs[0].is_told_to_stop  # its place is free then
    scene.jobs[0].ends(ended=Ended.STOPPED)
    assert any(SECOND in job.orders for job in scene.jobs)


def test_a_second_slot_starts_only_when_every_slot_is_saturated(scene: Scene) -> None:  # D15
    scene.rings(FIRST, SECOND)
    (job,) = scene.jobs
    job.reports(busy=10)
    assert len(scene.jobs) == 1
    job.reports(busy=10, is_saturated=True)
    first, second = scene.jobs
    assert sorted(second.orders) == [FIRST, SECOND]
    second.reports(is_saturated=True, busy=1)
    assert len(scene.jobs) == 2  # no more may run at once
    first.ends_service(FIRST, Ended.QUIET)
    assert scene.listening.armed == []  # the other slot serves it
    second.ends_service(FIRST, Ended.QUIET)
    assert scene.listening.armed == [(FIRST, False)]


def test_with_an_order_of_sessions_no_second_slot_helps_a_saturated_one() -> None:  # D21
    scene = Scene(one_slot_per_queue=True)
    scene.rings(FIRST)
    (job,) = scene.jobs
    job.reports(busy=10, is_saturated=True)
    assert len(scene.jobs) == 1


def test_what_one_slot_has_deferred_is_looked_for_when_another_one_ends_the_service(scene: Scene) -> None:  # S7
    scene.rings(FIRST)
    (first,) = scene.jobs
    first.reports(busy=10, is_saturated=True)
    second = scene.jobs[1]
    second.reports()
    first.ends_service(FIRST, Ended.QUIET, left=1)
    second.ends_service(FIRST, Ended.QUIET)
    assert scene.listening.armed == [(FIRST, True)]


@pytest.mark.parametrize("most_slots", [1, 2])
def test_a_queue_that_rings_beside_a_saturated_slot_waits_for_no_other_slot(most_slots: int) -> None:  # S10
    scene = Scene(most_slots=most_slots)
    scene.rings(FIRST)
    scene.jobs[0].reports(is_saturated=True, busy=1)
    assert len(scene.jobs) == most_slots  # another one starts, and takes seconds for it
    scene.rings(SECOND)
    assert sorted(scene.jobs[0].orders) == [FIRST, SECOND]


def test_at_the_end_of_its_lease_a_slot_is_replaced_before_it_stops(scene: Scene) -> None:  # D15
    scene.rings(FIRST)
    (old,) = scene.jobs
    old.reports()
    scene.passes(LEASE + 1)
    _, new = scene.jobs
    assert list(new.orders) == [FIRST]
    assert not old.is_told_to_stop
    new.reports()
    assert old.is_told_to_stop
    old.ends(ended=Ended.STOPPED)
    assert scene.listening.armed == []
    assert scene.jobs == [new]


def test_where_only_one_slot_may_run_its_queues_go_on_when_it_has_ended() -> None:
    scene = Scene(most_slots=1)
    scene.rings(FIRST)
    (old,) = scene.jobs
    old.reports()
    scene.passes(LEASE + 1)
    assert old.is_told_to_stop
    old.ends(ended=Ended.STOPPED)
    (new,) = scene.jobs
    assert list(new.orders) == [FIRST]
    assert scene.listening.armed == []


def test_a_slot_that_ended_its_own_lease_goes_on_in_another(scene: Scene) -> None:
    scene.rings(FIRST)
    scene.jobs[0].reports()
    scene.jobs[0].ends(ended=Ended.LEASE)
    (new,) = scene.jobs
    assert list(new.orders) == [FIRST]


def test_a_queue_that_came_too_late_for_a_slot_goes_to_the_next_one(scene: Scene) -> None:
    scene.rings(FIRST)
    (job,) = scene.jobs
    job.reports()
    scene.rings(SECOND)
    job.reports(queues=(QueueReport(queue=FIRST, number=1),), is_accepting=False)
    _, new = scene.jobs
    assert list(new.orders) == [SECOND]


def test_a_job_that_ends_with_an_error_is_retried_later_and_later(scene: Scene) -> None:
    pause = FIRST_JOB_RETRY
    for _ in range(3):
        scene.rings(FIRST)
        scene.jobs[0].reports()
        scene.jobs[0].ends(error="the queue is disabled")
        assert scene.dispatcher.queues[FIRST].trouble == "the queue is disabled"
        scene.passes(pause - 0.5)
        assert scene.listening.armed == []
        scene.passes(1.0)
        assert scene.listening.armed == [(FIRST, True)]
        scene.listening.armed.clear()
        pause *= 2


def test_an_error_of_one_queue_does_not_touch_the_others(scene: Scene) -> None:
    scene.rings(FIRST, SECOND)
    (job,) = scene.jobs
    job.reports()
    job.ends_service(FIRST, Ended.QUIET, error="the queue does not exist")
    assert scene.dispatcher.queues[FIRST].trouble == "the queue does not exist"
    assert scene.dispatcher.queues[SECOND].trouble == ""
    assert list(job.orders) == [SECOND]
    scene.passes(FIRST_JOB_RETRY)
    assert scene.listening.armed == [(FIRST, True)]


def test_a_fault_that_a_slot_finds_is_passed_on(scene: Scene) -> None:  # C1
    fault = SideFault("primary", denied=True, text="the key was refused")
    scene.rings(FIRST)
    scene.jobs[0].reports()
    scene.jobs[0].ends(fault=fault, error="the key was refused")
    assert scene.listening.faults == [fault]


def test_the_success_of_a_slot_is_a_success_of_the_side(scene: Scene) -> None:  # D16
    scene.rings(FIRST)
    scene.jobs[0].reports(is_primary_connected=False)
    assert scene.listening.times_reached == 0
    scene.jobs[0].reports(is_primary_connected=True)
    assert scene.listening.times_reached == 1


def test_a_fault_is_passed_on_before_its_slot_has_ended(scene: Scene) -> None:  # C1, X9
    scene.rings(FIRST)
    fault = SideFault("primary", True, "The key was refused.")
    scene.jobs[0].reports(fault=fault)
    assert (scene.listening.faults, scene.dispatcher.is_working) == ([fault], True)


def test_a_dispatcher_that_ends_stops_its_slots_and_starts_none(scene: Scene) -> None:  # C2
    scene.rings(FIRST)
    (slot,) = scene.jobs
    slot.reports()
    scene.dispatcher.end()
    scene.rings(SECOND)
    assert (slot.is_told_to_stop, scene.jobs) == (True, [slot])
    slot.ends(ended=Ended.STOPPED)
    assert (scene.dispatcher.is_working, scene.jobs) == (False, [])


def test_without_the_primary_a_queue_is_listened_to_again_soon_and_not_at_once(scene: Scene) -> None:  # D16
    scene.rings(FIRST)
    scene.jobs[0].reports()
    scene.jobs[0].ends_service(FIRST, Ended.PRIMARY_UNREACHABLE)
    assert (scene.listening.armed, scene.listening.times_missed) == ([], 1)
    scene.passes(FIRST_JOB_RETRY)
    assert scene.listening.armed == [(FIRST, True)]


def test_when_spark_has_stopped_the_worker_must_end(scene: Scene) -> None:
    lost = SparkLost("Spark stopped")
    scene.rings(FIRST)
    (job,) = scene.jobs
    scene.results[job.job] = lost
    scene.background.pop(job.job)()
    scene.dispatcher.turn()
    assert scene.dispatcher.failure is lost
    assert not scene.dispatcher.is_working


def test_a_paused_queue_starts_no_job(scene: Scene) -> None:
    scene.paused.add(FIRST)
    scene.rings(FIRST)
    assert scene.jobs == []
    assert scene.listening.armed == [(FIRST, False)]


def test_changed_settings_end_every_slot_and_its_queues_go_on_in_new_ones(scene: Scene) -> None:
    scene.rings(FIRST)
    (old,) = scene.jobs
    old.reports()
    scene.dispatcher.renew()
    scene.dispatcher.turn()
    assert old.is_told_to_stop
    old.ends(ended=Ended.STOPPED)
    (new,) = scene.jobs
    assert list(new.orders) == [FIRST]


def test_a_dispatcher_that_stops_starts_no_more_jobs(scene: Scene) -> None:
    scene.dispatcher.stop()
    scene.rings(FIRST)
    assert scene.jobs == []


def test_a_pair_without_a_slot_gets_one_from_a_pair_that_has_all() -> None:  # S10
    scene = Scene(most_slots=1)
    scene.rings(FIRST)
    (job,) = scene.jobs
    job.reports()
    scene.budget.ask("another pair")
    scene.passes(SHORT_LEASE - 1)
    assert not job.is_told_to_stop
    scene.passes(2)
    assert job.is_told_to_stop
    job.ends(ended=Ended.STOPPED)
    assert scene.jobs == []  # the slot is for the other pair
    assert scene.budget.take("another pair")
    scene.budget.release("another pair")
    scene.dispatcher.turn()
    assert list(scene.jobs[0].orders) == [FIRST]


def test_a_pair_without_a_slot_ends_one_slot_and_not_all(scene: Scene) -> None:  # X1
    scene.rings(FIRST)
    scene.jobs[0].reports(is_saturated=True, busy=10)
    assert len(scene.jobs) == 2
    for job in scene.jobs:
        job.reports(is_saturated=True, busy=10)
    scene.budget.ask("another pair")
    scene.passes(SHORT_LEASE + 1)
    scene.passes(SHORT_LEASE + 1)
    leaving = [job for job in scene.jobs if job.is_told_to_stop]
    assert len(leaving) == 1
    leaving[0].ends(ended=Ended.STOPPED)
    assert scene.budget.take("another pair")
    scene.passes(1)
    (job,) = scene.jobs
    assert list(job.orders) == [FIRST]
    assert not job.is_told_to_stop


def test_the_end_of_a_job_says_what_it_did_and_not_how_many_messages_are_left(
    caplog: pytest.LogCaptureFixture,
) -> None:  # X7
    caplog.set_level("INFO")
    scene = Scene()
    scene.rings(FIRST)
    (job,) = scene.jobs
    job.counters[FIRST] = Counters(received=22_053, forwarded=1, dead_lettered=3, left=22_049)
    scene.now += 60
    job.ends()
    assert (
        f"job ended after 1 min: 1 forwarded from {FIRST}, 3 dead-lettered, 22,049 abandoned or deferred" in caplog.text
    )
