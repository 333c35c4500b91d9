"""A process whose wall clock is wrong: `python -m tests.faults.skewed_clock '[AHEAD, STEP]' OPTIONS`.

It runs `pump_process`. The clock is so many seconds ahead, and makes the step on SIGUSR1. It is set before all other
imports, so that no module keeps the right one.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
import time


def set_clock(ahead: float, step: float) -> None:
    seconds, nanoseconds, error = time.time, time.time_ns, ahead

    def make_step(*_: object) -> None:
        nonlocal error
        error += step

    signal.signal(signal.SIGUSR1, make_step)
    time.time = lambda: seconds() + error
    time.time_ns = lambda: nanoseconds() + round(error * 1e9)


if __name__ == "__main__":
    set_clock(*json.loads(sys.argv.pop(1)))
    runpy.run_module("tests.faults.pump_process", run_name="__main__", alter_sys=True)
