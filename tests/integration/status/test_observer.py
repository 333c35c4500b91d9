"""The status of a worker while namespaces come and go: a real worker and a real emulator, without Spark.

No message comes in these tests, so no job ever runs.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from syphon.config import Config
from syphon.control.control_server import ControlServer
from syphon.control.protocol import QueueReport, SlotReport
from syphon.control.totals import QueueAttempt, QueueTotals, Totals
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage
from syphon.ledger.ledger import Ledger
from syphon.ledger.writer import LedgerWriter
from syphon.model.outcomes import DestinationStats, QueueKey, Stats
from syphon.status.backlog_counts import BacklogCount, BacklogCounts, QueueActivity
from syphon.status.logs import RecentEvents
from syphon.status.observer import Observer
from syphon.status.snapshot import BacklogQueueState, DestinationState, MessageFlow, Severity, SideState
from syphon.status.status_service import StatusService
from syphon.status.telemetry import Telemetry
from syphon.time_budget import (
    COUNT_AGAIN_AFTER,
    COUNT_DEAD_LETTERS_EVERY,
    COUNT_EVERY,
    COUNT_HELD_UP_EVERY,
    HUNG_AFTER,
)
from syphon.transfer import DestinationBackoff, WaitingMessages
from syphon.worker.pair_worker import PairWorker
from syphon.worker.pauses import Pause, Pauses
from syphon.worker.worker import Worker
from tests.support.stub_spark import spark_that_runs
from tests.support.waiting import eventually

QUEUE = "contoso/x-servicebus-transfer/0"


@dataclass
class Scene:
    emulator: BackgroundEmulator
    worker: Worker
    observer: Observer
    pauses: Pauses
    later: float = 0.0
    """Seconds by which the observer's clock is ahead."""

    def outage(self, name: str) -> None:
        self.emulator.call(lambda: self.emulator[name].namespace.faults.begin_outage(Outage.REFUSE))

    def back(self, name: str) -> None:
        self.emulator.call(lambda: self.emulator[name].namespace.faults.end_outage())

    def look(self) -> Any:
        """The worker's loop turns, a second later."""
        self.later += 1.0
        self.observer.loop_turned()
        return self.observer.status

    def not_ready(self) -> list[str]:
        found: list[str] = self.look().not_ready
        return found


@contextmanager
def scene(emulator: BackgroundEmulator) -> Iterator[Scene]:
    primary, secondary = (emulator[name].connection_string for name in ("contoso", "contoso-dr"))
    pair = {
        "name": "contoso",
        "primary": {"connection_string": primary},
        "secondary": {"connection_string": secondary},
        "backlog_queue_count": 2,
    }
    config = Config.model_validate({"pairs": [pair]})
    pauses = Pauses()
    with ControlServer(pauses=pauses) as control_server:
        spark = cast(Any, None)
        ledger_writer = LedgerWriter(Ledger(spark, "nowhere"))
        worker = Worker(config, spark_that_runs(), control_server, pauses=pauses)
        found = Scene(emulator, worker, cast(Any, None), pauses)
        found.observer = Observer(config, pauses, RecentEvents(), now=lambda: time.monotonic() + found.later)
        found.observer.attach(worker, control_server, ledger_writer)
        worker.start()
        try:
            yield found
        finally:
            worker.stop()
            worker.run()


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    namespaces = [NamespaceSettings(name=name) for name in ("contoso", "contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=namespaces)) as running:
        yield running


def test_readiness_names_the_side_that_is_out_and_health_stays_green(emulator: BackgroundEmulator) -> None:  # C3
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        queue = found.look().pairs[0].queues[0]
        assert (queue.name, queue.state) == (QUEUE, BacklogQueueState.LISTENING)
        found.outage("contoso")
        (why,) = eventually(lambda: [why for why in found.not_ready() if "refused" in why])
        assert why.startswith("contoso: primary 127.0.0.1:")
        found.outage("contoso-dr")
        eventually(lambda: len(found.not_ready()) == 2)
        found.later = 0.0
        found.observer.loop_turned()
        assert found.observer.trouble() == ""
        primary = found.look().pairs[0].primary
        assert (primary.state, primary.connected) == (SideState.OPENED, False)
        for name in ("contoso", "contoso-dr"):
            found.back(name)
        eventually(lambda: not found.not_ready())
        assert found.look().pairs[0].primary.since > primary.since


def test_a_secondary_that_is_unreachable_at_the_start_is_reported_with_its_error(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairWorker, "_rest", lambda *_: None)  # 30 s between tries to make queues (P5)
    emulator.call(lambda: emulator["contoso-dr"].namespace.faults.begin_outage(Outage.REFUSE))
    with scene(emulator) as found:
        eventually(lambda: any("secondary" in why and "starting" not in why for why in found.not_ready()))
        assert found.look().pairs[0].queues[0].state is BacklogQueueState.TROUBLED


def test_while_the_worker_creates_queues_readiness_says_so_and_health_is_green(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:  # P3
    asked, make = threading.Event(), PairWorker._queues
    monkeypatch.setattr(PairWorker, "_queues", lambda pair: asked.wait() and make(pair))
    with scene(emulator) as found:
        primary, secondary = found.not_ready()
        pair = found.look().pairs[0]
        assert (pair.primary.state, pair.queues[0].state) == (SideState.STARTING, BacklogQueueState.STARTING)
        assert primary.endswith(": starting: the worker finds or creates the backlog queues")
        assert secondary.endswith(": starting: the worker finds or creates the backlog queues")
        assert found.observer.trouble() == ""
        asked.set()
        eventually(lambda: not found.not_ready())


def test_an_error_in_the_observer_does_not_stop_the_worker_and_is_logged_once(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with scene(emulator) as found:
        config = Config.model_validate({"pairs": [found.worker.pairs[0].settings]})
        ops = StatusService(config, found.pauses, RecentEvents())
        looks: list[float] = []

        def fail() -> None:
            looks.append(time.monotonic())
            raise ZeroDivisionError("a look that fails")

        monkeypatch.setattr(ops.observer, "loop_turned", fail)
        ended: list[object] = []
        thread = threading.Thread(target=lambda: ended.append(found.worker.run(ops.loop_turned)))
        thread.start()
        eventually(lambda: len(looks) > 2 or not thread.is_alive())
        assert thread.is_alive()
        found.worker.stop()
        thread.join()
        ops.telemetry.close()
    assert ended == [None]
    assert caplog.text.count("the worker still forwards messages") == 1


def test_a_loop_that_hangs_is_reported_and_so_is_a_listener(emulator: BackgroundEmulator) -> None:
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        found.later = 0.0
        found.observer.loop_turned()
        assert found.observer.trouble() == ""
        found.later = HUNG_AFTER + 5
        assert silent_for(r"the worker's loop has not turned for (\d+) s", found) >= HUNG_AFTER + 5
        found.observer.loop_turned()  # the loop is back, and by this clock the listener has been silent for as long
        assert silent_for(r"the listener of contoso has not turned for (\d+) s", found) >= HUNG_AFTER + 5


def silent_for(words: str, scene: Scene) -> int:
    """The seconds that the observer names."""
    found = re.fullmatch(words, scene.observer.trouble())
    assert found is not None
    return int(found[1])


def test_a_paused_queue_is_not_listened_to_and_is_again_afterwards(emulator: BackgroundEmulator) -> None:  # S1
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        watch = found.worker.pairs[0].listener
        assert watch is not None
        bell = watch._doorbells[QUEUE]
        found.pauses.add([Pause(pair="contoso", queue=QUEUE)])
        eventually(lambda: bell.is_silent)
        first, second = found.look().pairs[0].queues
        assert (first.state, second.state) == (BacklogQueueState.PAUSED, BacklogQueueState.LISTENING)
        found.pauses.end(found.pauses.all())
        eventually(lambda: not bell.is_silent)
        assert found.look().pairs[0].queues[0].state is BacklogQueueState.LISTENING


def test_deferred_messages_that_the_listener_knows_of_are_shown_for_as_long_as_they_wait(  # S7
    emulator: BackgroundEmulator,
) -> None:
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        worker = found.worker.pairs[0]
        assert worker.listener is not None
        bell = worker.listener._doorbells[QUEUE]
        eventually(lambda: not bell._scan.is_scanning)
        worker.backoffs.record([DestinationBackoff("orders", 600, "full", 1)])
        bell._scan.waiting["orders"] = WaitingMessages(1000, 1_700_000_000_000)
        bell._scan.waiting["billing"] = WaitingMessages(0, 1_700_000_000_000)  # it knows of none that is deferred
        status = found.look().pairs[0]
        (destination,) = status.destinations
        assert (destination.path, destination.state, destination.left) == ("orders", "backing_off", 1000)
        oldest = status.queues[0].oldest
        assert oldest is not None
        assert oldest.timestamp() == 1_700_000_000


def test_a_primary_that_a_slot_has_reached_is_not_unreachable(emulator: BackgroundEmulator) -> None:  # D16
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        emulator.call(lambda: emulator["contoso"].namespace.faults.begin_outage(Outage.REFUSE))
        eventually(found.not_ready)
        listener = found.worker.pairs[0].listener
        assert listener is not None
        eventually(lambda: listener.pair.primary.error is not None)
        listener.reached_primary()
        assert found.not_ready() == []


def test_sessions_that_wait_for_an_earlier_message_are_shown_with_their_queue(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:  # D21
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        report = SlotReport(pair="contoso", job="job-1", slot=0, attempt=0, started_at=0)
        live = tuple(QueueAttempt(report, QueueReport(queue=QUEUE, held_sessions=count)) for count in (1, 2))
        assert found.observer._observed is not None
        control_server = found.observer._observed.control_server
        totals = {QueueKey("contoso", QUEUE): QueueTotals(live=live)}
        monkeypatch.setattr(control_server, "queue_totals", lambda: totals)
        status = found.look()
        assert [queue.held_sessions for queue in status.pairs[0].queues] == [3, 0]
        assert any("3 sessions" in problem.text for problem in status.problems)


class CountedQueue:
    """The counts of one queue, with a clock and an activity that the test sets."""

    def __init__(self, found: Scene, *, is_busy: bool) -> None:
        self.clock = 100.0
        self.activity = QueueActivity(moved=5, dead_lettered=1, is_busy=is_busy)
        self.key = QueueKey("contoso", QUEUE)
        settings = [pair.settings for pair in found.worker.pairs]
        self.counts = BacklogCounts(settings, lambda: {self.key: self.activity}, lambda: self.clock)

    def asks(self, after: float) -> bool:
        """Whether the worker asks when this much time has passed."""
        before = self.counts._counted_at.get(self.key)
        self.clock += after
        self.counts.count()
        return self.counts._counted_at.get(self.key) != before

    def count(self) -> BacklogCount:
        return self.counts.counts[self.key]


def dead_letter(emulator: BackgroundEmulator, count: int) -> None:
    with ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string) as client:
        with client.get_queue_sender(QUEUE) as sender:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(count)])
        with client.get_queue_receiver(QUEUE) as receiver:
            for _ in range(count):
                (message,) = receiver.receive_messages(1)
                receiver.dead_letter_message(message)


def test_every_queue_is_counted_once_and_one_with_nothing_to_do_is_not_asked_about_again(
    emulator: BackgroundEmulator,
) -> None:  # D4, S1
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        found.observer.backlog_counts.count()
        assert {key.queue for key in found.observer.backlog_counts.counts} == set(found.worker.pairs[0].queues)
        queue = CountedQueue(found, is_busy=False)
        assert queue.asks(after=0)
        assert not queue.asks(after=100 * COUNT_DEAD_LETTERS_EVERY)


def test_a_queue_with_work_is_counted_each_minute_and_an_old_count_is_dropped_if_there_is_no_answer(
    emulator: BackgroundEmulator,
) -> None:  # D4
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        queue = CountedQueue(found, is_busy=True)
        assert queue.asks(after=0)
        assert (queue.count().remaining(queue.activity), queue.count().dead_letters(queue.activity)) == (0, 0)
        emulator.call(lambda: emulator["contoso-dr"].namespace.faults.begin_outage(Outage.REFUSE))
        assert not queue.asks(after=COUNT_EVERY - 1)
        assert queue.asks(after=1)
        assert queue.counts.counts == {}


def test_a_count_made_wrong_by_new_messages_is_not_shown_and_is_soon_repeated(
    emulator: BackgroundEmulator,
) -> None:  # D4
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        queue = CountedQueue(found, is_busy=True)
        queue.asks(after=0)
        queue.activity = queue.activity._replace(moved=7)  # two more than the queue held
        assert queue.count().remaining(queue.activity) is None
        assert queue.asks(after=COUNT_AGAIN_AFTER)
        assert queue.count().remaining(queue.activity) == 0
        assert not queue.asks(after=COUNT_AGAIN_AFTER)  # the count holds


def test_dead_letters_are_counted_and_counted_again_later_because_a_person_may_put_them_back(
    emulator: BackgroundEmulator,
) -> None:  # X4
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        dead_letter(emulator, 2)
        queue = CountedQueue(found, is_busy=False)
        queue.asks(after=0)
        assert queue.count().dead_letters(queue.activity) == 2
        assert queue.count().dead_letters(queue.activity._replace(dead_lettered=4)) == 5  # three since the count
        assert not queue.asks(after=COUNT_EVERY)
        assert queue.asks(after=COUNT_DEAD_LETTERS_EVERY)


def test_while_the_primary_is_unreachable_no_destination_looks_available_and_the_worker_is_blocked(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:  # X7
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        taken = QueueTotals(stats=Stats({"orders": DestinationStats("orders", forwarded=3)}))
        assert found.observer._observed is not None
        control_server = found.observer._observed.control_server
        monkeypatch.setattr(control_server, "queue_totals", lambda: {QueueKey("contoso", QUEUE): taken})
        status = found.look()
        assert (status.outlook.flow, status.pairs[0].destinations[0].state) == (
            MessageFlow.IDLE,
            DestinationState.AVAILABLE,
        )
        found.outage("contoso")
        eventually(found.not_ready)
        status = found.look()
        assert (status.outlook.flow, status.problems[0].severity) == (MessageFlow.BLOCKED, Severity.CRITICAL)
        assert "the primary 127.0.0.1:" in status.problems[0].text
        assert status.pairs[0].destinations[0].state is DestinationState.UNKNOWN
        assert all(activity.is_busy for activity in found.observer._activity().values())  # the backlog grows now
        found.back("contoso")
        eventually(lambda: not found.not_ready())
        status = found.look()
        assert (status.outlook.flow, status.problems) == (MessageFlow.IDLE, [])
        assert status.pairs[0].destinations[0].state is DestinationState.AVAILABLE


def put(emulator: BackgroundEmulator, count: int, path: str) -> None:
    with (
        ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        sender.send_messages([ServiceBusMessage("", application_properties={"x-ms-path": path}) for _ in range(count)])


def prometheus(found: Scene) -> str:
    telemetry = Telemetry(found.observer._config, found.observer)
    try:
        return telemetry.prometheus().decode()
    finally:
        telemetry.close()


def test_an_outage_that_meets_an_idle_worker_shows_the_backlog_its_age_growth_and_destinations(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:  # X7
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        clock = 1000.0
        counts = found.observer.backlog_counts
        counts._now = counts._wall = lambda: clock
        counts.count()
        found.outage("contoso")
        eventually(found.not_ready)
        put(emulator, 20, "orders")
        clock += COUNT_HELD_UP_EVERY - 1
        counts.count()
        assert counts.oldest == {}, "it is not due"
        clock += 1
        counts.count()
        status = found.look()
        (queue, empty), (orders,) = status.pairs[0].queues, status.pairs[0].destinations
        assert (queue.left, queue.arriving_per_second, queue.counted.timestamp()) == (20, 2.0, clock)
        assert queue.oldest is not None
        assert empty.oldest is None
        assert (orders.path, orders.state, orders.left) == ("orders", DestinationState.UNKNOWN, 1)
        outlook = status.outlook
        assert (outlook.left, outlook.arriving_per_second, outlook.oldest) == (20, 2.0, queue.oldest)
        found.observer.status = status.model_copy(update={"at": queue.oldest + timedelta(seconds=1000)})
        ages = dict(re.findall(r'syphon_backlog_age_seconds\{.*queue="(.*)"\} (.*)', prometheus(found)))
        assert ages == {QUEUE: "1000.0", empty.name: "0.0"}, "SyphonNoSuccess and SyphonBacklogOld fire after 900 s"

        found.back("contoso")
        eventually(lambda: not found.not_ready())
        assert found.look().outlook.oldest == queue.oldest, "it waits until a slot has moved it"
        assert found.observer._observed is not None
        control_server = found.observer._observed.control_server
        accepted = Stats({"orders": DestinationStats("orders", forwarded=20)})
        moved = QueueTotals(Totals(received=20, forwarded=20), accepted)
        monkeypatch.setattr(control_server, "queue_totals", lambda: {QueueKey("contoso", QUEUE): moved})
        assert found.look().pairs[0].queues[0].oldest is None
        clock += COUNT_HELD_UP_EVERY
        found.look()
        counts.count()
        assert counts.oldest == {}, "slots report what they see"
