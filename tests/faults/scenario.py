"""A scenario: one fault of OPS, let loose on a transfer at a moment that a seed decides, healed, and accounted for.

Messages are put into the backlog before and while it strikes; the transfer is then ended with care (SIGTERM) or without
(SIGKILL); the fault is healed; what is left is carried home; and the checker looks at all of it.
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

from syphon.bus.factory import namespace_of
from syphon.transfer.pump import Pump, PumpOptions
from tests.faults.checker import Verdict, check
from tests.faults.environment import LOCK, PRIMARY, QUEUE, SECONDARY, Site, site
from tests.faults.messages import Input, mixed
from tests.faults.pump_process import WINDOW
from tests.support.processes import WITHIN, Running, eventually

AT_HOME_WITHIN = 120.0


class Ending(StrEnum):
    """How the transfer is ended while the fault is on."""

    CLEAN = "clean"
    UNCLEAN = "unclean"


@dataclass
class Told:
    """What a transfer says it has done."""

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
    def of(cls, code: int, said: dict[str, Any]) -> Told:
        known = {name: value for name, value in said.items() if name in cls.__dataclass_fields__}
        return cls(code, **{**known, "reasons": Counter(said.get("reasons", {}))})

    @classmethod
    def at_the_end_of(cls, running: Running) -> Told:
        code, out = running.end()
        assert out, f"exit code {code}: {running.said}"
        return cls.of(code, json.loads(out))

    def add(self, other: Told) -> None:
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def balances(self) -> bool:
        return self.received == self.forwarded + self.dead_lettered + self.left + self.unaccounted


COUNTED = ("received", "forwarded", "dead_lettered", "left", "unaccounted", "possible_duplicates")


class Scenario:
    """What all have in common. Those below say what is different about them."""

    number: ClassVar[int]
    words: ClassVar[str]
    on: ClassVar[str] = "pump"
    """What carries the messages: the pump in a process of its own, `syphon run`, or `syphon drain`."""
    volume: ClassVar[int] = 400
    rate: ClassVar[float | None] = 300
    """Messages a second, so that there is a middle to strike in."""
    code: ClassVar[int] = 0
    """How it ends when it is told to."""
    starts_within: ClassVar[float] = WITHIN
    """Seconds until the first messages have moved."""
    durable: ClassVar[bool] = False
    """The emulator keeps its messages on disk, for it is restarted."""
    loads_before: ClassVar[bool] = False
    """All messages are in the backlog before the fault strikes; else some of them are put there meanwhile."""
    from_the_start: ClassVar[bool] = False
    """The fault is there before the transfer begins."""

    def __init__(self, site: Site, rng: random.Random, ending: Ending) -> None:
        self.site = site
        self.rng = rng
        self.ending = ending
        self.stack = ExitStack()
        """What must be undone in the end, however it ends."""
        self.began = time.monotonic()

    # --- what a scenario decides ---------------------------------------------------------------------------------

    def inputs(self) -> list[Input]:
        return mixed(self.rng, self.volume)

    def start(self) -> Running:
        return self.site.carrier(rate=self.rate)

    def strike(self, running: Running) -> None:
        """Lets the fault loose."""

    def has_struck(self, running: Running) -> bool:
        """A fault that never happened proves nothing."""
        raise NotImplementedError

    def end(self, running: Running) -> Told | None:
        """Ends the transfer; what it says for itself, if it still can."""
        if self.ending is Ending.UNCLEAN:
            kill(running)
            return None
        return self.stopped(running)

    def stopped(self, running: Running) -> Told:
        """Ends it with care."""
        running.process.send_signal(signal.SIGTERM)
        told = Told.at_the_end_of(running)
        assert told.code == self.code, f"exit code {told.code}: {running.said}"
        return told

    def heal(self) -> None:
        for name in (PRIMARY, SECONDARY):
            self.site.control(name, "DELETE", "faults")

    def explained(self, told: Told | None) -> int:
        """How many duplicates there may be: those that were told of, or what was in hand when nobody could tell."""
        return told.possible_duplicates if told is not None else WINDOW + self.untold()

    def untold(self) -> int:
        """How many more the fault itself explains, when nobody could tell."""
        return 0

    def unheard(self) -> int:
        """How many a part of the transfer may have forwarded after it was last heard of."""
        return 0

    def judge(self, verdict: Verdict, told: Told | None) -> None:
        """What else must be so."""

    # --- words for assertions ------------------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @classmethod
    def name(cls) -> str:
        return f"{cls.number:02d} {cls.__name__} on {cls.on}"


def play(kind: type[Scenario], ending: Ending, seed: int, folder: Path) -> Verdict:
    """A scenario from beginning to end. Raises AssertionError, with the seed, if something is not as it must be."""
    try:
        with site(folder, durable=kind.durable) as place:
            scenario = kind(place, random.Random(f"{seed} {kind.name()} {ending}"), ending)
            with scenario.stack:
                return _played(scenario, place)
    except AssertionError as error:
        raise AssertionError(f"{kind.name()}, {ending}, seed {seed}: {error}") from error


def _played(scenario: Scenario, place: Site) -> Verdict:
    rng, inputs = scenario.rng, scenario.inputs()
    at_once = scenario.from_the_start or scenario.loads_before
    cut = len(inputs) if at_once else rng.randrange(len(inputs) // 3, 2 * len(inputs) // 3)
    place.load(inputs[:cut])
    running = _run(scenario, place, cut)
    if not at_once:
        place.load(inputs[cut:])
    eventually(lambda: scenario.has_struck(running), explain=lambda: f"the fault has not struck. {running.said}")
    told = scenario.end(running)
    scenario.heal()
    home = carry_home(place)
    verdict = check(place.attempted, place.acknowledged, place.found(), place.removed)
    explained = scenario.explained(told) + home.possible_duplicates
    problems = verdict.problems(at_least=len(inputs), most_duplicates=explained)
    if told is not None:
        problems += _untruths(verdict, told, home, scenario.unheard())
    most = len(place.acknowledged) * (2 + scenario.seconds / LOCK)
    if (received := place.count(SECONDARY, "receive")) > most:
        problems.append(f"a hot loop: {received} messages were received in {scenario.seconds:.0f} s")
    assert not problems, f"{'; '.join(problems)}. {verdict}. {running.said[-3000:]}"
    scenario.judge(verdict, told)
    return verdict


def _run(scenario: Scenario, place: Site, cut: int) -> Running:
    """The transfer, with the fault let loose on it in its midst."""
    running = scenario.start()
    if not scenario.from_the_start:
        moment = scenario.rng.randrange(1, cut // 2)
        eventually(lambda: place.moved() >= moment, scenario.starts_within, lambda: running.said)
    scenario.strike(running)
    return running


def _untruths(verdict: Verdict, told: Told, home: Told, unheard: int) -> list[str]:
    """Where what was told and what is found do not agree."""
    found = []
    if not told.balances():
        found.append(f"the account does not balance: {told}")
    if verdict.dead != told.dead_lettered + home.dead_lettered and not verdict.removed:
        found.append(f"{verdict.dead} dead letters, and {told.dead_lettered} + {home.dead_lettered} were told of")
    if len(verdict.copies) > told.forwarded + home.forwarded + verdict.dead + unheard:
        found.append(f"more arrived than {told.forwarded} + {home.forwarded} that were told of")
    return found


def carry_home(place: Site) -> Told:
    """All that is left in the backlog, until a peek proves that nothing is (D4)."""
    told = Told()
    options = PumpOptions(quiet=1.0, lease=60.0, lock=LOCK)

    def is_empty() -> bool:
        if not place.contents(SECONDARY, QUEUE):
            return True
        secondary, primary = namespace_of(place.side(SECONDARY), QUEUE), namespace_of(place.side(PRIMARY), "")
        try:
            tally = Pump(QUEUE, secondary, primary, lambda outcome: None, options).run()  # noqa: ARG005
        finally:
            secondary.close()
            primary.close()
        told.add(Told.of(0, {name: getattr(tally, name, 0) for name in COUNTED}))
        return False

    eventually(is_empty, AT_HOME_WITHIN, lambda: f"the backlog is not empty: {told}")
    return told


def kill(running: Running) -> None:
    """The process and all that it has started, at once and without a word."""
    victims = [pid for pid, _ in running.descendants()]
    for pid in (running.process.pid, *victims):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.process.wait()
