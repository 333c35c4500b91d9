"""A process whose wall clock is wrong: `python -m tests.faults.skewed '[AHEAD, STEP, AFTER]' OPTIONS` is the carrier.

The clock is set before anything else is imported, so that nobody keeps the right one.
"""

from __future__ import annotations

import json
import runpy
import sys
import time


def set_clock(ahead: float, step: float, after: float) -> None:
    """The wall clock goes wrong by so many seconds, and makes a step a while later."""
    seconds, nanoseconds, began = time.time, time.time_ns, time.monotonic()

    def error() -> float:
        return ahead + (step if time.monotonic() - began > after else 0.0)

    time.time = lambda: seconds() + error()
    time.time_ns = lambda: nanoseconds() + round(error() * 1e9)


if __name__ == "__main__":
    set_clock(*json.loads(sys.argv.pop(1)))
    runpy.run_module("tests.faults.carrier", run_name="__main__", alter_sys=True)
