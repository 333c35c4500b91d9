"""Where the pump's CPU time goes: samples the running module every few milliseconds of CPU time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from types import FrameType

from bench.fill import fill
from bench.loops import pump
from bench.stage import QUEUE, emulator
from bench.task import Task
from bench.usage import cpu
from bench.watch import Watch
from bench.workloads import Workload

EVERY = 0.002
"""Seconds of CPU time between two samples; the kernel may make it four milliseconds."""


def where(count: int) -> dict[str, float]:
    """Microseconds per message by module, the largest first: 1 KB, 8 destinations, no delay."""
    workload = Workload("sampled", {"pump": count})
    with emulator([f"d{number}" for number in range(workload.destinations)]) as place:
        fill(place.secondary, QUEUE, count, workload.size, workload.destination)
        task = Task(place.primary, place.secondary, place.secondary_http, [QUEUE], count, count)
        command = [sys.executable, "-m", "bench.sampling"]
        done = subprocess.run(command, env=task.environment(), stdout=subprocess.PIPE, check=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    task, seen, before = Task.given(), Counter[str](), cpu(os.getpid())
    signal.signal(signal.SIGPROF, lambda _, frame: seen.update([_module(frame)]))
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    pump(task, Watch())
    signal.setitimer(signal.ITIMER_PROF, 0)
    each = (cpu(os.getpid()) - before) / task.count * 1e6 / seen.total()
    print(json.dumps({module: samples * each for module, samples in seen.most_common()}))


def _module(frame: FrameType | None) -> str:
    """The innermost module of syphon on the stack."""
    while frame is not None:
        name = str(frame.f_globals["__name__"])
        if name.startswith("syphon."):
            return name.removeprefix("syphon.")
        frame = frame.f_back
    return "outside of syphon"


if __name__ == "__main__":
    main()
