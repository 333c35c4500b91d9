"""Destinations over time: their state is collected from the reports of several jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syphon.control.protocol import QueueReport, SlotReport
from syphon.control.totals import QueueAttempt, QueueTotals
from syphon.model import DestinationError
from syphon.model.outcomes import DestinationStats, QueueKey, Stats
from syphon.status.destination_history import DestinationHistory
from syphon.status.snapshot import DestinationState, DestinationStatus
from syphon.time_budget import SEEN_FOR
from syphon.transfer import WaitingMessages
from syphon.transfer.pump import DestinationBackoff

FULL = DestinationBackoff("orders", 30.0, "is full", 5)


def job(
    *destinations: DestinationStats,
    queue: str = "q",
    waiting: Iterable[DestinationBackoff] = (),
    closed: Iterable[DestinationBackoff] = (),
) -> QueueAttempt:
    found = QueueReport(queue=queue, stats=Stats(destinations={each.path: each for each in destinations}))
    slot = SlotReport(
        pair="a",
        job="j",
        slot=0,
        attempt=0,
        started_at=0,
        queues=(found,),
        backing_off=tuple(waiting),
        rejecting=tuple(closed),
    )
    return QueueAttempt(slot, found)


class Scene:
    """A pair with queues, in which jobs run one after the other."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.queue_totals: dict[QueueKey, QueueTotals] = {}
        self.history = DestinationHistory()

    def ends(self, attempt: QueueAttempt) -> None:
        self.queue_totals.setdefault(QueueKey("a", attempt.queue.queue), QueueTotals()).end_job([attempt])

    def look(
        self,
        waiting: Iterable[DestinationBackoff] = (),
        away: Mapping[tuple[str, str], WaitingMessages] | None = None,
        paused: Iterable[str] = (),
    ) -> dict[str, DestinationStatus]:
        seen = self.history.update(self.now, self.queue_totals, waiting, away or {}, paused)
        return {destination.path: destination for destination in seen}


def test_a_destination_backs_off_from_its_first_failure_until_it_accepts_a_message_retries_included() -> None:  # S4
    scene = Scene()
    scene.ends(job(DestinationStats("orders", left=5, oldest_left=900_000), waiting=[FULL]))
    first = scene.look([FULL])["orders"]
    assert (first.state, first.reason, first.left) == (DestinationState.BACKING_OFF, "is full", 5)
    scene.now += 40  # the back-off is over; a job tries again, and it is still full
    due = scene.look()["orders"]
    assert (due.state, due.next_attempt, due.since) == (DestinationState.BACKING_OFF, None, first.since)
    scene.ends(job(DestinationStats("orders", left=5, oldest_left=900_000), waiting=[FULL]))
    again = scene.look([FULL])["orders"]
    assert (again.since, again.left) == (first.since, 5)
    assert scene.history.oldest("q") == 900_000
    scene.ends(job(DestinationStats("orders", forwarded=5)))
    scene.now += 31
    taken = scene.look()["orders"]
    assert (taken.state, taken.since, taken.left, taken.forwarded) == (DestinationState.AVAILABLE, None, 0, 5)
    assert scene.history.oldest("q") is None


def test_two_jobs_in_turn_have_left_the_same_messages() -> None:
    scene = Scene()
    report = job(DestinationStats("orders", left=7), waiting=[FULL])
    scene.ends(report)
    scene.queue_totals[QueueKey("a", "q")].live = (report,)
    assert scene.look([FULL])["orders"].left == 7


def test_the_messages_left_are_added_up_over_queues() -> None:
    scene = Scene()
    for queue in ("q0", "q1"):
        scene.ends(job(DestinationStats("orders", left=7), queue=queue, waiting=[FULL]))
    assert scene.look([FULL])["orders"].left == 14
    assert (scene.history.left("q0"), scene.history.left("q2")) == (7, 0)


def test_messages_that_started_no_job_keep_their_age_until_they_are_not_seen_any_more() -> None:
    scene = Scene()
    assert scene.look([FULL], {("q", "orders"): WaitingMessages(4, 800_000)})["orders"].left == 4
    scene.now += SEEN_FOR - 1
    scene.look()
    assert scene.history.oldest("q") == 800_000
    scene.now += 2
    assert scene.look()["orders"].state is DestinationState.BACKING_OFF  # the worker has not seen it accept a message
    assert scene.history.oldest("q") is None
    scene.now += SEEN_FOR
    assert scene.look()["orders"].state is DestinationState.AVAILABLE


def test_a_destination_that_refuses_everything_is_rejecting_until_it_is_retried() -> None:  # S4
    scene = Scene()
    gone = DestinationBackoff("gone", 30.0, "not found", 0)
    scene.ends(job(DestinationStats("gone", dead_lettered=3), closed=[gone]))
    rejecting = scene.look()["gone"]
    assert (rejecting.state, rejecting.reason, rejecting.dead_lettered) == (DestinationState.REJECTING, "not found", 3)
    scene.now += 31
    assert scene.look()["gone"].state is DestinationState.UNKNOWN  # it has not accepted anything (X7)
    scene.ends(job(DestinationStats("gone", forwarded=1)))
    assert scene.look()["gone"].state is DestinationState.AVAILABLE


def test_a_destination_whose_messages_all_go_to_the_dead_letters_does_not_look_available() -> None:  # X7
    scene = Scene()
    scene.ends(job(DestinationStats("orders", dead_lettered=64)))
    found = scene.look()["orders"]
    assert (found.state, found.reason) == (
        DestinationState.UNKNOWN,
        "64 messages for it went to the dead letters and none was forwarded",
    )
    scene.ends(job(DestinationStats("orders", forwarded=1)))
    assert scene.look()["orders"].state is DestinationState.AVAILABLE
    scene.ends(job(DestinationStats("orders", dead_lettered=2)))
    assert scene.look()["orders"].state is DestinationState.AVAILABLE, "that may be the fault of these messages"
    scene.ends(job(DestinationStats("orders", dead_lettered=1)))
    found = scene.look()["orders"]
    assert found.state is DestinationState.UNKNOWN
    assert found.reason == "3 messages for it went to the dead letters since it last accepted one"


def test_messages_that_were_left_and_then_dead_lettered_do_not_wait_any_more() -> None:  # X7
    scene = Scene()
    scene.ends(job(DestinationStats("orders", left=64, oldest_left=900_000), waiting=[FULL]))
    assert scene.look([FULL])["orders"].left == 64
    scene.ends(job(DestinationStats("orders", dead_lettered=60)))
    assert scene.look()["orders"].left == 4
    assert scene.look()["orders"].left == 4  # the same report counts once
    scene.ends(job(DestinationStats("orders", dead_lettered=4)))
    found = scene.look()["orders"]
    assert (found.left, found.dead_lettered) == (0, 64)
    assert scene.history.oldest("q") is None


def test_a_missing_destination_is_told_from_a_full_one_by_its_error() -> None:  # S4
    scene = Scene()
    missing = DestinationBackoff("gone", 30.0, "amqp:not-found: no such entity", 4, 1, DestinationError.MISSING)
    scene.ends(job(DestinationStats("gone", left=4), waiting=[missing]))
    gone = scene.look([missing])["gone"]
    assert (gone.state, gone.error, gone.left) == (DestinationState.BACKING_OFF, "DestinationMissing", 4)
    assert gone.since is not None
    assert scene.look(paused=["gone"])["gone"].error is None  # it is not known while nothing is tried
    scene.ends(job(DestinationStats("gone", forwarded=4)))
    assert scene.look()["gone"].error is None


def test_a_paused_destination_is_shown_even_if_no_message_has_named_it() -> None:
    scene = Scene()
    paused = scene.look(paused=["Billing"])["Billing"]
    assert (paused.state, paused.reason) == (DestinationState.PAUSED, "paused by the operator")
    scene.now += 500
    assert scene.look(paused=["Billing"])["Billing"].since == paused.since
    assert scene.look() == {}, "its name may have been mistyped"
    scene.look(paused=["Billing"])
    scene.ends(job(DestinationStats("Billing", dead_lettered=1)))
    assert scene.look()["Billing"].dead_lettered == 1


def test_destinations_with_nothing_to_report_do_not_pile_up() -> None:
    scene = Scene()
    for start in range(0, 1000, 100):
        scene.now += 1000
        names = [DestinationBackoff(f"d{number}", 1.0, "is full", 0) for number in range(start, start + 100)]
        scene.look(names)
    scene.now += 1000
    assert len(scene.look()) <= 200
