"""Destinations over time: what is put together from the sheets of several jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from syphon.model.stats import DestinationStats, QueueKey, Stats
from syphon.ops.destinations import FRESH, Destinations
from syphon.ops.status import Destination, DestinationState
from syphon.spark.control_protocol import SlotReport
from syphon.spark.totals import QueueTotals
from syphon.transfer.pump import DestinationBackoff
from syphon.worker.backoffs import TurnedAway

FULL = DestinationBackoff("orders", 30.0, "is full", 5)


def job(
    *tallies: DestinationStats,
    queue: str = "q",
    waiting: Iterable[DestinationBackoff] = (),
    closed: Iterable[DestinationBackoff] = (),
) -> SlotReport:
    census = Stats(destinations={tally.path: tally for tally in tallies})
    return SlotReport(
        pair="a",
        queue=queue,
        job="j",
        slot=0,
        attempt=0,
        started_at=0,
        stats=census,
        backing_off=tuple(waiting),
        rejecting=tuple(closed),
    )


class Scene:
    """A pair with queues, in which jobs run one after the other."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.standings: dict[QueueKey, QueueTotals] = {}
        self.destinations = Destinations()

    def ends(self, sheet: SlotReport) -> None:
        self.standings.setdefault(QueueKey("a", sheet.queue), QueueTotals()).end_job([sheet])

    def look(
        self,
        waiting: Iterable[DestinationBackoff] = (),
        away: Mapping[tuple[str, str], TurnedAway] | None = None,
        paused: Iterable[str] = (),
    ) -> dict[str, Destination]:
        seen = self.destinations.look(self.now, self.standings, waiting, away or {}, paused)
        return {destination.path: destination for destination in seen}


def test_a_destination_waits_from_its_first_failure_until_it_takes_a_message_tries_in_between_included() -> None:  # S4
    scene = Scene()
    scene.ends(job(DestinationStats("orders", left=5, oldest_left=900_000), waiting=[FULL]))
    first = scene.look([FULL])["orders"]
    assert (first.state, first.reason, first.left) == (DestinationState.WAITING, "is full", 5)
    scene.now += 40  # its wait is over; a job tries again, and it is still full
    due = scene.look()["orders"]
    assert (due.state, due.next_try, due.since) == (DestinationState.WAITING, None, first.since)
    scene.ends(job(DestinationStats("orders", left=5, oldest_left=900_000), waiting=[FULL]))
    again = scene.look([FULL])["orders"]
    assert (again.since, again.left) == (first.since, 5)
    assert scene.destinations.oldest("q") == 900_000
    scene.ends(job(DestinationStats("orders", forwarded=5)))
    scene.now += 31
    taken = scene.look()["orders"]
    assert (taken.state, taken.since, taken.left, taken.forwarded) == (DestinationState.OPEN, None, 0, 5)
    assert scene.destinations.oldest("q") is None


def test_what_two_jobs_have_left_one_after_the_other_is_the_same() -> None:
    scene = Scene()
    sheet = job(DestinationStats("orders", left=7), waiting=[FULL])
    scene.ends(sheet)
    scene.standings[QueueKey("a", "q")].live = (sheet,)
    assert scene.look([FULL])["orders"].left == 7


def test_what_is_left_is_added_up_over_queues() -> None:
    scene = Scene()
    for queue in ("q0", "q1"):
        scene.ends(job(DestinationStats("orders", left=7), queue=queue, waiting=[FULL]))
    assert scene.look([FULL])["orders"].left == 14
    assert (scene.destinations.left("q0"), scene.destinations.left("q2")) == (7, 0)


def test_messages_that_started_no_job_keep_their_age_until_they_are_seen_no_more() -> None:
    scene = Scene()
    assert scene.look([FULL], {("q", "orders"): TurnedAway(4, 800_000)})["orders"].left == 4
    scene.now += FRESH - 1
    scene.look()
    assert scene.destinations.oldest("q") == 800_000
    scene.now += 2
    assert scene.look()["orders"].state is DestinationState.WAITING  # it may have taken nothing, for all we know
    assert scene.destinations.oldest("q") is None
    scene.now += FRESH
    assert scene.look()["orders"].state is DestinationState.OPEN


def test_a_destination_that_refuses_everything_is_closed_until_it_is_looked_at_again() -> None:  # S4
    scene = Scene()
    gone = DestinationBackoff("gone", 30.0, "not found", 0)
    scene.ends(job(DestinationStats("gone", dead_lettered=3), closed=[gone]))
    closed = scene.look()["gone"]
    assert (closed.state, closed.reason, closed.dead_lettered) == (DestinationState.CLOSED, "not found", 3)
    scene.now += 31
    assert scene.look()["gone"].state is DestinationState.OPEN


def test_a_paused_destination_is_shown_even_if_no_message_has_named_it() -> None:
    scene = Scene()
    paused = scene.look(paused=["Billing"])["Billing"]
    assert (paused.state, paused.reason) == (DestinationState.PAUSED, "paused by the operator")
    scene.now += 500
    assert scene.look(paused=["Billing"])["Billing"].since == paused.since
    assert scene.look()["Billing"].state is DestinationState.OPEN


def test_names_that_have_nothing_to_tell_any_more_do_not_pile_up() -> None:
    scene = Scene()
    for start in range(0, 1000, 100):
        scene.now += 1000
        names = [DestinationBackoff(f"d{number}", 1.0, "is full", 0) for number in range(start, start + 100)]
        scene.look(names)
    scene.now += 1000
    assert len(scene.look()) <= 200
