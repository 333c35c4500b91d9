"""A scenario: injects one fault into a running transfer, at a moment that a seed decides, and checks every message.

Messages are put into the backlog before and during the fault. Then the transfer is stopped (SIGTERM) or killed
(SIGKILL), the fault is removed, the rest of the backlog is drained, and the checker compares all messages.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from syphon.model.errors import SyphonError
from syphon.servicebus.factory import namespace_of
from syphon.transfer import MovePlan
from syphon.transfer.pump import PERMANENT, Pump, PumpOptions
from tests.faults.checker import Verdict, check
from tests.faults.environment import LOCK, PRIMARY, QUEUE, SECONDARY, Site, site
from tests.faults.messages import ORDERS, Input, mixed
from tests.faults.pump_process import WINDOW, move_to
from tests.support.processes import WITHIN, Running
from tests.support.waiting import eventually

DRAINED_WITHIN = 120.0


class Ending(StrEnum):
    """How the transfer is ended during the fault."""

    CLEAN = "clean"
    UNCLEAN = "unclean"


@dataclass
class Summary:
    """The counters that a transfer prints when it ends."""

    code: int = 0
    received: int = 0
    forwarded: int = 0
    dead_lettered: int = 0
    left: int = 0
    unaccounted: int = 0
    possible_duplicates: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    error: str = ""
    megabytes: int = 0

    @classmethod
    def of(cls, code: int, printed: dict[str, Any]) -> Summary:
        known = {name: value for name, value in printed.items() if name in cls.__dataclass_fields__}
        return cls(code, **{**known, "reasons": Counter(printed.get("reasons", {}))})

    @classmethod
    def of_ended(cls, running: Running) -> Summary:
        code, out = running.end()
        assert out, f"exit code {code}: {running.said}"
        return cls.of(code, json.loads(out))

    def add(self, other: Summary) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def balances(self) -> bool:
        return self.received == self.forwarded + self.dead_lettered + self.left + self.unaccounted


COUNTED = ("received", "forwarded", "dead_lettered", "left", "unaccounted", "possible_duplicates")


class Scenario:
    """The base of all scenarios. Subclasses override what is different."""

    number: ClassVar[int]
    title: ClassVar[str]
    on: ClassVar[str] = "pump"
    """What forwards the messages: the pump in its own process, `syphon run`, or `syphon drain`."""
    volume: ClassVar[int] = 400
    rate: ClassVar[float | None] = 300
    """Messages per second: slow enough that the fault falls into the middle of the transfer."""
    code: ClassVar[int] = 0
    """The exit code when it is stopped."""
    starts_within: ClassVar[float] = WITHIN
    """Seconds until the first messages have moved."""
    durable: ClassVar[bool] = False
    """The emulator keeps its messages on disk, because it is restarted."""
    loads_before: ClassVar[bool] = False
    """All messages are in the backlog before the fault; otherwise some are added during it."""
    permanent: ClassVar[frozenset[type[SyphonError]]] = PERMANENT
    """The errors after which messages are given up, also by the drain that follows."""
    queues: ClassVar[int] = 1
    """The backlog queues of the pair. Messages are shared equally by them."""
    move: ClassVar[bool] = False
    """The queue is no backlog queue: its messages are moved to ORDERS as they are."""
    from_the_start: ClassVar[bool] = False
    """The fault is set before the transfer begins."""

    def __init__(self, site: Site, rng: random.Random, ending: Ending) -> None:
        self.site = site
        self.rng = rng
        self.ending = ending
        self.stack = ExitStack()
        """Cleanup at the end, also after a failure."""
        self.began = time.monotonic()

    # --- what a scenario may override ---------------------------------------------------------------------------------

    def inputs(self) -> list[Input]:
        return mixed(self.rng, self.volume)

    def load_first(self, inputs: list[Input]) -> None:
        """Puts the messages into the backlog that are there before the transfer begins."""
        self.site.load(inputs)

    def load_rest(self, inputs: list[Input]) -> None:
        """Puts the messages into the backlog that come during the fault."""
        self.site.load(inputs)

    def start(self) -> Running:
        return self.site.start_pump(rate=self.rate)

    def inject(self, running: Running) -> None:
        """Causes the fault."""

    def has_taken_effect(self, running: Running) -> bool:
        """Whether the fault has happened: without it the run proves nothing."""
        raise NotImplementedError

    def end(self, running: Running) -> Summary | None:
        """Ends the transfer. Returns its summary, if it was not killed."""
        if self.ending is Ending.UNCLEAN:
            kill(running)
            return None
        return self.stopped(running)

    def stopped(self, running: Running) -> Summary:
        """Stops the transfer with SIGTERM."""
        running.process.send_signal(signal.SIGTERM)
        summary = Summary.of_ended(running)
        assert summary.code == self.code, f"exit code {summary.code}: {running.said}"
        return summary

    def heal(self) -> None:
        for name in (PRIMARY, SECONDARY):
            self.site.control(name, "DELETE", "faults")

    def allowed_duplicates(self, summary: Summary | None) -> int:
        """How many duplicates there may be: those reported, or all messages in flight if the transfer was killed."""
        return summary.possible_duplicates if summary is not None else WINDOW + self.extra_duplicates()

    def extra_duplicates(self) -> int:
        """How many more duplicates the fault itself may cause, if the transfer was killed."""
        return 0

    def unreported(self) -> int:
        """How many messages a killed part of the transfer may have forwarded after its last report."""
        return 0

    def verify(self, verdict: Verdict, summary: Summary | None) -> None:
        """Further assertions of the scenario."""

    # --- for assertions ------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @classmethod
    def name(cls) -> str:
        return f"{cls.number:02d} {cls.__name__} on {cls.on}"


def run_scenario(kind: type[Scenario], ending: Ending, seed: int, folder: Path) -> Verdict:
    """Runs a scenario. Raises AssertionError, with the seed, if a check fails."""
    try:
        with site(folder, durable=kind.durable, queues=kind.queues) as place:
            scenario = kind(place, random.Random(f"{seed} {kind.name()} {ending}"), ending)
            with scenario.stack:
                return _run_phases(scenario, place)
    except AssertionError as error:
        raise AssertionError(f"{kind.name()}, {ending}, seed {seed}: {error}") from error


def _run_phases(scenario: Scenario, place: Site) -> Verdict:
    rng, inputs = scenario.rng, scenario.inputs()
    at_once = scenario.from_the_start or scenario.loads_before
    cut = len(inputs) if at_once else rng.randrange(len(inputs) // 3, 2 * len(inputs) // 3)
    scenario.load_first(inputs[:cut])
    running = _run(scenario, place, cut)
    if not at_once:
        scenario.load_rest(inputs[cut:])
    eventually(lambda: scenario.has_taken_effect(running), what=lambda: f"the fault has not struck. {running.said}")
    summary = scenario.end(running)
    scenario.heal()
    home = drain_backlog(place, scenario.permanent, move_to(ORDERS) if scenario.move else None)
    verdict = check(place.attempted, place.acknowledged, place.found(), place.removed)
    allowed_duplicates = scenario.allowed_duplicates(summary) + home.possible_duplicates
    problems = verdict.problems(at_least=len(inputs), most_duplicates=allowed_duplicates)
    if summary is not None:
        problems += _contradictions(verdict, summary, home, scenario.unreported())
    most = len(place.acknowledged) * (2 + scenario.seconds / LOCK)
    if (received := place.count(SECONDARY, "receive")) > most:
        problems.append(f"a hot loop: {received} messages were received in {scenario.seconds:.0f} s")
    assert not problems, f"{'; '.join(problems)}. {verdict}. {running.said[-3000:]}"
    scenario.verify(verdict, summary)
    return verdict


def _run(scenario: Scenario, place: Site, cut: int) -> Running:
    """Starts the transfer, and causes the fault in the middle of it."""
    running = scenario.start()
    if not scenario.from_the_start:
        moment = scenario.rng.randrange(1, cut // 2)
        eventually(lambda: place.moved() >= moment, lambda: running.said, scenario.starts_within, longest_pause=0.02)
    scenario.inject(running)
    return running


def _contradictions(verdict: Verdict, summary: Summary, home: Summary, unreported: int) -> list[str]:
    """Contradictions between the summary of the transfer and the messages found."""
    found = []
    if not summary.balances():
        found.append(f"the counters do not add up: {summary}")
    if verdict.dead != summary.dead_lettered + home.dead_lettered and not verdict.removed:
        found.append(f"{verdict.dead} dead letters, and {summary.dead_lettered} + {home.dead_lettered} were reported")
    if len(verdict.copies) > summary.forwarded + home.forwarded + verdict.dead + unreported:
        found.append(f"more arrived than {summary.forwarded} + {home.forwarded} that were reported")
    return found


def drain_backlog(
    place: Site, permanent: frozenset[type[SyphonError]] = PERMANENT, move: MovePlan | None = None
) -> Summary:
    """Forwards all messages that are left in the backlog, until a peek proves that it is empty (D4)."""
    summary = Summary()
    options = PumpOptions(quiet=1.0, lease=60.0, lock=LOCK, permanent=permanent, move=move)

    def is_empty() -> bool:
        if not any(place.contents(SECONDARY, queue) for queue in place.backlog_names):
            return True
        secondary, primary = namespace_of(place.side(SECONDARY), QUEUE), namespace_of(place.side(PRIMARY), "")
        try:
            pump = Pump(secondary, primary, lambda outcome: None, options)  # noqa: ARG005
            for queue in place.backlog_names:
                pump.serve(queue, deferred=True)
            tally = pump.run()
        finally:
            secondary.close()
            primary.close()
        summary.add(Summary.of(0, {name: getattr(tally, name, 0) for name in COUNTED}))
        return False

    eventually(is_empty, what=lambda: f"the backlog is not empty: {summary}", within=DRAINED_WITHIN)
    return summary


def kill(running: Running) -> None:
    """Kills the process and all its descendants at once."""
    victims = [pid for pid, _ in running.descendants()]
    for pid in (running.process.pid, *victims):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.process.wait()
