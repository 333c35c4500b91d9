"""The time that a shutdown may take, and the share that each of its steps has (X9).

A worker or a drain ends in steps: slots finish or abandon the messages in flight; both sides of every pair are
closed; the ledger's last rows are written; Spark stops. A step that is done early leaves its time to the others, and
no step can take the time of those that follow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum


class Step(IntEnum):
    """The steps of an ending, in their order."""

    SLOTS = 0
    SIDES = 1
    LEDGER = 2
    SPARK = 3


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds for each step of an ending."""

    slots: float
    sides: float
    ledger: float
    spark: float

    def until_end_of(self, step: Step) -> float:
        """Seconds from the start of the shutdown to the end of a step, if each step before used all of its share."""
        return sum((self.slots, self.sides, self.ledger, self.spark)[: step + 1])


STOPPED = Shares(slots=16.5, sides=1.0, ledger=3.0, spark=2.5)
"""Told to stop. The command has ended after 25 s: a service manager that kills after 30 s never has to."""
FAULTED = Shares(slots=2.0, sides=0.5, ledger=1.5, spark=1.5)
"""A fault. The other side ends as well within five seconds (C1), and the command within eight."""
LEAVE_AFTER = 1.5
"""Seconds after the last step in which the process must have exited. Then a watch ends it (`SparkWatch`)."""
SPARK_STOPS_WITHIN = 5.0
"""Seconds that Spark has at most, however much is left: it needs two, or it is frozen."""
CUT_SHORT = 70
UNHURRIED = 30.0
"""Seconds for each step of an ending that nothing has hurried: a drain whose work is done."""


class Ending:
    """When the steps must be over. Until `begin`, the command has not been told to end: each step has `UNHURRIED`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began: tuple[float, Shares] | None = None
        self.exit_code = CUT_SHORT
        """The exit code of a process that a watch has to end. The command sets its own as soon as it knows it."""

    @property
    def has_begun(self) -> bool:
        return self._began is not None

    def begin(self, shares: Shares) -> None:
        """Starts the clock. Safe in a signal handler. Later calls can only shorten the time."""
        now = self._now()
        if self._began is not None:
            began, before = self._began
            if began + before.until_end_of(Step.SPARK) <= now + shares.until_end_of(Step.SPARK):
                return
        self._began = now, shares

    def left_for(self, step: Step) -> float:
        """Seconds that a step may take, with what the steps before it have left over."""
        if self._began is None:
            return UNHURRIED
        began, shares = self._began
        left = max(0.0, began + shares.until_end_of(step) - self._now())
        return min(left, SPARK_STOPS_WITHIN) if step is Step.SPARK else left

    @property
    def overdue_at(self) -> float:
        """When the process must have exited."""
        if self._began is None:
            return math.inf
        began, shares = self._began
        return began + shares.until_end_of(Step.SPARK) + LEAVE_AFTER

    @property
    def is_overdue(self) -> bool:
        return self._now() > self.overdue_at
