"""What is seen of a worker while namespaces come and go: a real worker and a real emulator, without Spark.

No message comes in these tests, and so no job is ever run.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest

from syphon.config import Config
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage
from syphon.ledger.store import Ledger
from syphon.ledger.writer import LedgerWriter
from syphon.model.stats import QueueKey
from syphon.ops.backlog_counts import EVERY, SOON, Count, Counting
from syphon.ops.events import MOST, RecentEvents
from syphon.ops.history import SPAN, SPANS, History
from syphon.ops.observer import HUNG, Observer
from syphon.ops.runtime import Attendant
from syphon.ops.status import QueueState, SideState
from syphon.spark.control_server import ControlServer
from syphon.spark.jobs import Jobs
from syphon.worker.pair_worker import PairWorker
from syphon.worker.pauses import Pause, Pauses
from syphon.worker.run import Worker
from tests.support.processes import eventually

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
        self.observer.turned()
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
    with ControlServer() as desk:
        spark = cast(Any, None)
        clerk = LedgerWriter(Ledger(spark, "nowhere"))
        worker = Worker(config, Jobs(spark, desk, clerk), desk, pauses=pauses)
        found = Scene(emulator, worker, cast(Any, None), pauses)
        found.observer = Observer(config, pauses, RecentEvents(), now=lambda: time.monotonic() + found.later)
        found.observer.attend(worker, desk, clerk)
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
        assert (queue.name, queue.state) == (QUEUE, QueueState.LISTENING)
        found.outage("contoso")
        (why,) = eventually(lambda: [why for why in found.not_ready() if "refused" in why])
        assert why.startswith("contoso: primary 127.0.0.1:")
        found.outage("contoso-dr")
        eventually(lambda: len(found.not_ready()) == 2)
        found.later = 0.0
        found.observer.turned()
        assert found.observer.trouble() == ""
        primary = found.look().pairs[0].primary
        assert (primary.state, primary.connected) == (SideState.OPENED, False)
        for name in ("contoso", "contoso-dr"):
            found.back(name)
        eventually(lambda: not found.not_ready())
        assert found.look().pairs[0].primary.since > primary.since


def test_a_secondary_that_is_out_at_the_start_is_told_by_what_stands_in_the_way(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairWorker, "_rest", lambda *_: None)  # 30 s between tries to make queues (P5)
    emulator.call(lambda: emulator["contoso-dr"].namespace.faults.begin_outage(Outage.REFUSE))
    with scene(emulator) as found:
        eventually(lambda: any("secondary" in why and "starting" not in why for why in found.not_ready()))
        assert found.look().pairs[0].queues[0].state is QueueState.TROUBLED


def test_while_queues_are_being_made_readiness_says_so_and_health_is_green(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:  # P3
    asked, make = threading.Event(), PairWorker._queues
    monkeypatch.setattr(PairWorker, "_queues", lambda duty: asked.wait() and make(duty))
    with scene(emulator) as found:
        primary, secondary = found.not_ready()
        pair = found.look().pairs[0]
        assert (pair.primary.state, pair.queues[0].state) == (SideState.STARTING, QueueState.STARTING)
        assert primary.endswith(": starting: the backlog queues are being found or made")
        assert secondary.endswith(": starting: the backlog queues are being found or made")
        assert found.observer.trouble() == ""
        asked.set()
        eventually(lambda: not found.not_ready())


def test_a_worker_goes_on_whatever_happens_to_who_looks_on_and_says_so_once(
    emulator: BackgroundEmulator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with scene(emulator) as found:
        config = Config.model_validate({"pairs": [found.worker.duties[0].settings]})
        attendant = Attendant(config, found.pauses, RecentEvents())
        looks: list[float] = []

        def fail() -> None:
            looks.append(time.monotonic())
            raise ZeroDivisionError("a look that fails")

        monkeypatch.setattr(attendant.observer, "turned", fail)
        ended: list[object] = []
        thread = threading.Thread(target=lambda: ended.append(found.worker.run(attendant.turned)))
        thread.start()
        eventually(lambda: len(looks) > 2 or not thread.is_alive())
        assert thread.is_alive()
        found.worker.stop()
        thread.join()
        attendant.telemetry.close()
    assert ended == [None]
    assert caplog.text.count("messages are carried as before") == 1


def test_a_loop_that_hangs_is_told_and_so_is_a_watch(emulator: BackgroundEmulator) -> None:
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        found.later = 0.0
        found.observer.turned()
        assert found.observer.trouble() == ""
        found.later = HUNG + 5
        assert silent_for(r"the worker's loop has not turned for (\d+) s", found) >= HUNG + 5
        found.observer.turned()  # the loop is back, and by this clock the watch has been silent for as long
        assert silent_for(r"the watch over contoso has not turned for (\d+) s", found) >= HUNG + 5


def silent_for(words: str, scene: Scene) -> int:
    """The seconds in what the observer says."""
    told = re.fullmatch(words, scene.observer.trouble())
    assert told is not None
    return int(told[1])


def test_a_paused_queue_is_not_listened_to_and_is_again_afterwards(emulator: BackgroundEmulator) -> None:  # S1
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        watch = found.worker.duties[0].watch
        assert watch is not None
        bell = watch._doorbells[QUEUE]
        found.pauses.add([Pause(pair="contoso", queue=QUEUE)])
        eventually(lambda: bell.is_silent)
        first, second = found.look().pairs[0].queues
        assert (first.state, second.state) == (QueueState.PAUSED, QueueState.LISTENING)
        found.pauses.end(found.pauses.all())
        eventually(lambda: bell.is_armed)
        assert found.look().pairs[0].queues[0].state is QueueState.LISTENING


def test_a_queue_with_nothing_to_do_is_not_counted_and_one_with_work_is(emulator: BackgroundEmulator) -> None:  # D4
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        found.observer.counting.ask()
        assert found.observer.counting.counts == {}
        key = QueueKey("contoso", QUEUE)
        clock = 100.0
        counting = Counting([duty.settings for duty in found.worker.duties], lambda: {key: 5}, lambda: clock)
        counting.ask()
        assert counting.counts[key] == Count(left=0, moved=5)
        assert (counting.counts[key].after(5), counting.counts[key].after(6)) == (0, None)
        emulator.call(lambda: emulator["contoso-dr"].namespace.faults.begin_outage(Outage.REFUSE))
        clock += EVERY - 1
        counting.ask()
        assert key in counting.counts  # it was not asked again
        clock += 1
        counting.ask()
        assert counting.counts == {}  # what is not known any more is not told


def test_a_count_that_was_overtaken_is_not_told_and_is_asked_for_again_soon(emulator: BackgroundEmulator) -> None:  # D4
    with scene(emulator) as found:
        eventually(lambda: not found.not_ready())
        key, clock, moved = QueueKey("contoso", QUEUE), 100.0, 5
        counting = Counting([duty.settings for duty in found.worker.duties], lambda: {key: moved}, lambda: clock)
        counting.ask()
        clock, moved = clock + SOON, 7  # two more than there were
        assert counting.counts[key].after(moved) is None
        counting.ask()
        assert counting.counts[key] == Count(left=0, moved=7)
        clock += SOON
        counting.ask()
        assert counting._asked_at[key] == clock - SOON  # as long as it holds there is no need


def test_history_keeps_ten_minutes_in_spans_whatever_the_clock_does() -> None:
    history = History(1000.0)
    history.note(1001.0, 10, 0)
    history.note(1000.0 + SPAN, 30, 2)
    history.note(500.0, 31, 2)  # the clock steps back
    assert history.throughput().forwarded == [10, 21]
    history.note(1000.0 + SPAN * SPANS * 3, 31, 2)
    throughput = history.throughput()
    assert (len(throughput.forwarded), sum(throughput.forwarded), sum(throughput.dead_lettered)) == (SPANS, 0, 0)


def test_events_are_bounded_and_the_same_thing_again_is_one() -> None:
    events, logger = RecentEvents(), logging.getLogger("syphon.tests.events")
    logger.addHandler(events)
    logger.setLevel(logging.INFO)
    for number in range(MOST + 20):
        logger.info("event %d", number)
    for _ in range(3):
        logger.warning("again %s", "x" * 1000)
    logger.removeHandler(events)
    newest = events.newest_first()
    assert len(newest) == MOST
    assert (newest[0].level, newest[0].times, len(newest[0].text)) == ("warning", 3, 500)
    assert newest[1].text == f"event {MOST + 19}"


def test_a_log_line_that_makes_no_sense_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("syphon.tests.events")
    events = RecentEvents()
    logger.addHandler(events)
    logger.propagate = False
    try:
        logger.warning("%d", "no number")
        logger.warning("and on")
    finally:
        logger.removeHandler(events)
        logger.propagate = True
    assert [event.text for event in events.newest_first()] == ["and on"]
    assert "no number" in capsys.readouterr().err
