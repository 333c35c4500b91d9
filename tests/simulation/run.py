"""Runs many incidents, and reports the ones that fail a check."""

from __future__ import annotations

import gc
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .checker import Violation
from .generator import GENERATORS, generate
from .incident import Incident, Kind, Mode
from .replays import ReplayWorld
from .shrink import shrink
from .world import World

LAST_STEPS = 60
FULL_COLLECTION = 100
"""Incidents between two collections of all garbage."""


@dataclass
class Summary:
    """What many runs have found."""

    runs: int = 0
    messages: int = 0
    copies: int = 0
    virtual_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)
    """The seeds of the incidents that failed a check, and which one."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Summary:
        """A summary from the values of its fields, as JSON has them."""
        counted = {name: Counter(values[name]) for name in ("faults", "modes")}
        failed = {int(seed): violation for seed, violation in values["failed"].items()}
        return cls(**{**values, **counted, "failed": failed})

    def values(self) -> dict[str, Any]:
        """Its fields as JSON has them, and as `of` reads them."""
        counted = {name: dict(getattr(self, name).most_common()) for name in ("faults", "modes")}
        failed = {str(seed): violation for seed, violation in sorted(self.failed.items())}
        return {**vars(self), **counted, "failed": failed}

    def add(self, other: Summary) -> None:
        self.runs += other.runs
        self.messages += other.messages
        self.copies += other.copies
        self.virtual_seconds += other.virtual_seconds
        self.faults.update(other.faults)
        self.modes.update(other.modes)
        self.failed.update(other.failed)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in self.faults.most_common())
        return (
            f"{self.runs} incidents, {self.messages} messages, {self.copies} copies accepted, "
            f"{self.virtual_seconds / 3600:.1f} virtual hours, {len(self.failed)} failed checks\n  {kinds}"
        )


@contextmanager
def quietly() -> Iterator[None]:
    """Switches off the log and the garbage collection: a simulation does not need the one, and does the other itself.

    A collection in the middle of an incident would also be an event that the incident has not decided.
    """
    before, was_enabled = logging.root.manager.disable, gc.isenabled()
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        yield
    finally:
        logging.disable(before)
        if was_enabled:
            gc.enable()


def violation_of(incident: Incident, trace: Callable[[str], None] | None = None) -> str | None:
    """Which check an incident fails; None if it fails none."""
    violation = _run(incident, trace)[1]
    gc.collect()
    return violation


def _run(incident: Incident, trace: Callable[[str], None] | None = None) -> tuple[World, str | None]:
    world = (World if incident.replays is None else ReplayWorld)(incident, trace)
    try:
        world.run()
    except Violation as violation:
        return world, str(violation)
    except Exception as error:  # an unexpected error of the product is a finding, too
        return world, f"failed: {type(error).__name__}: {error}"
    return world, None


def run_many(
    first: int,
    runs: int | None,
    seconds: float | None = None,
    most_failures: int = 1,
    mode: Mode | None = None,
    kind: Kind | None = None,
) -> Summary:
    """Runs the incidents of consecutive seeds, until there were so many, the time is over, or enough have failed.

    With a mode, only the incidents of this mode are run; with a kind, only those of the generator of this fault.
    """
    summary, began, seed = Summary(), time.monotonic(), first
    with quietly():
        while (runs is None or summary.runs < runs) and (seconds is None or time.monotonic() - began < seconds):
            incident = incident_of(seed, kind)
            if mode is not None and incident.mode is not mode:
                seed += 1
                continue
            world, violation = _run(incident)
            summary.runs += 1
            summary.messages += len(incident.messages)
            summary.copies += sum(len(story.copies) for story in world.stories())
            summary.virtual_seconds += world.time.now
            summary.modes[incident.mode.value] += 1
            summary.faults.update(fault.kind.value for fault in incident.faults)
            del world
            # The world is the youngest garbage, and still in the processor's cache. What has finalizers survives that.
            gc.collect(0 if summary.runs % FULL_COLLECTION else 2)
            if violation is not None:
                summary.failed[seed] = violation
                if len(summary.failed) >= most_failures:
                    break
            seed += 1
    return summary


def incident_of(seed: int, kind: Kind | None) -> Incident:
    """The incident of a seed: of the generator of a kind, if that is given."""
    return generate(seed) if kind is None else GENERATORS[kind](seed, random.Random(seed))


def explain(seed: int, is_to_be_shrunk: bool = True, kind: Kind | None = None) -> Iterator[str]:
    """The incident of a seed that fails a check: what it consists of, and its last steps."""
    incident = incident_of(seed, kind)
    with quietly():
        violation = violation_of(incident)
        if violation is None:
            yield f"seed {seed} fails no check"
            return
        yield f"seed {seed} fails a check: {violation}"
        if is_to_be_shrunk:
            promise = _kind(violation)
            incident = shrink(incident, lambda smaller: _kind(violation_of(smaller) or "") == promise)
        steps: deque[str] = deque(maxlen=LAST_STEPS)
        found = violation_of(incident, steps.append)
        yield from incident.describe()
        yield from (f"  {step[:200]}" for step in steps)
        yield f"→ {found}"


def _kind(violation: str) -> str:
    """The promise that is broken, without the names and times: the words before the first digit."""
    return "".join(letter for letter in violation.split(" at ")[0] if not letter.isdigit())[:24]
