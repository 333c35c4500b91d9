"""The cost of starting and of waiting for messages."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.commands import SYPHON, backlog_queues, settings, worker
from bench.idle import SETTLING, share_of_a_core
from bench.stage import emulator
from bench.usage import usage

QUEUES = 10
IDLE = 60.0


@dataclass(frozen=True)
class Cost:
    what: str
    value: float
    unit: str

    def __str__(self) -> str:
        return f"{self.what}: {self.value:.3g} {self.unit}"


def costs(patient: bool) -> Iterator[Cost]:
    """The costs. The measurement of an idle worker takes minutes, so it runs only if `patient`."""
    yield Cost("syphon --help", _seconds([*SYPHON, "--help"]), "s")
    began = time.monotonic()
    with emulator([]):
        yield Cost("syphon emulator, until it listens", time.monotonic() - began, "s")
    with tempfile.TemporaryDirectory() as folder, emulator(["d0"], backlog_queues(QUEUES)) as place:
        command = [*SYPHON, "drain", "--yes", "--config", str(settings(place, Path(folder), QUEUES))]
        yield Cost(f"syphon drain, {QUEUES} empty queues", _seconds(command), "s")
        if not patient:
            return
        with worker(place, Path(folder), QUEUES) as process:
            time.sleep(SETTLING)
            used = share_of_a_core(process, IDLE)
            waiting = f"an idle worker, {QUEUES} queues"
            yield Cost(f"{waiting}: share of one core", used * 100, "%")
            yield Cost(f"{waiting}: memory (PSS)", usage(process).megabytes, "MB")


def _seconds(command: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)  # noqa: S603
    return time.monotonic() - began
