"""Measures a loop in its own process: on a fresh emulator with a filled backlog queue, with or without a delay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.fill import fill
from bench.task import Task, asked
from bench.usage import cpu
from bench.watch import Taken
from bench.workloads import STUCK, Workload

QUEUE = "contoso/x-servicebus-transfer/0"
FULL = {
    "action": "error",
    "operation": "send",
    "entity": STUCK,
    "condition": "amqp:resource-limit-exceeded",
    "description": "The maximum entity size has been reached.",
}


@dataclass(frozen=True)
class Measured:
    """The measurements of one loop with one workload."""

    workload: str
    loop: str
    messages: int
    arrived: int
    per_second: float
    """From the start of the loop to the last message, the opening of connections included."""
    steady_per_second: float
    """From the first message that arrived."""
    cpu_per_1000: float
    """Seconds of all processes of the loop, for 1000 messages that arrived."""
    megabytes: float
    """The sum of the peaks of all processes."""
    emulator_cpu_per_1000: float
    """The emulator's CPU time during the run, on the same cores."""
    stopped: str = ""
    """The error that ended the loop early."""

    @property
    def speed(self) -> float:
        """The speed for comparisons: with open connections, if the run was long enough for that."""
        return self.steady_per_second or self.per_second


@dataclass(frozen=True)
class Place:
    """Two namespaces: their addresses, and the process of their emulator."""

    primary: str
    secondary: str
    primary_http: str
    secondary_http: str
    process: int
    ca_file: str | None = None
    """The authority of its certificate, if it speaks TLS as well."""


def measure(workload: Workload, loop: str) -> Measured:
    count = workload.counts[loop]
    names = [f"d{number}" for number in range(workload.destinations)]
    queues = [f"contoso/x-servicebus-transfer/{number}" for number in range(workload.queues)]
    with emulator([*names, STUCK] if workload.is_stuck else names, queues, tls=workload.is_encrypted) as place:
        if workload.is_stuck:
            asked(place.primary_http, "faults", FULL)
        for queue in queues:
            fill(
                place.secondary,
                queue,
                count // workload.queues,
                workload.size,
                workload.destination,
                sessions=workload.sessions,
            )
        with distant(place.primary, workload.round_trip) as home, distant(place.secondary, workload.round_trip) as away:
            before = cpu(place.process)
            arriving = workload.arriving(count)
            way = place.ca_file, workload.uses_websockets
            taken = run(loop, Task(home, away, place.secondary_http, queues, count, arriving, *way))
            theirs = cpu(place.process) - before
    if taken.moved != workload.arriving(count) and not taken.stopped:
        raise RuntimeError(f"{loop} moved {taken.moved} of {workload.arriving(count)} messages")
    share = 1000 / taken.moved if taken.moved else 0.0
    return Measured(
        workload.name,
        loop,
        count,
        taken.moved,
        taken.moved / taken.seconds,
        taken.steady_per_second,
        taken.cpu * share,
        taken.megabytes,
        theirs * share,
        taken.stopped,
    )


def run(loop: str, task: Task) -> Taken:
    """Runs a loop in its own process."""
    command = [sys.executable, "-m", "bench.loops", loop]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=task.environment(), text=True, check=True)  # noqa: S603
    return Taken(**json.loads(done.stdout))


def entity(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "max_size_in_megabytes": 5120, **more}


@contextmanager
def emulator(
    destinations: Iterable[str],
    backlog: Iterable[str] = (QUEUE,),
    kind: str = "queues",
    tls: bool = False,
    lock: str = "5m",
    partitioned: bool = False,
) -> Iterator[Place]:
    """Two new namespaces in their own process; with `partitioned` each destination has sixteen fragments."""
    backlogs = [entity(name, max_delivery_count=2147483647, lock_duration=lock) for name in backlog]
    ports = {"amqp_port": 0, "http_port": 0}
    namespaces = [
        {"name": "contoso", **ports, kind: [entity(name, enable_partitioning=partitioned) for name in destinations]},
        {"name": "contoso-dr", **ports, "queues": backlogs},
    ]
    command = [sys.executable, "-m", "syphon", "emulator", "--json", "--config", "/dev/stdin"]
    command += ["--tls"] if tls else []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            json.dump({"namespaces": namespaces}, process.stdin)
            process.stdin.close()
            found = json.loads(process.stdout.readline())
            home, away = found["namespaces"]
            primary_http, secondary_http = (f"http://127.0.0.1:{side['http_port']}" for side in (home, away))
            strings = home["connection_string"], away["connection_string"]
            yield Place(*strings, primary_http, secondary_http, process.pid, found.get("ca_file"))
        finally:
            process.terminate()


@contextmanager
def distant(connection_string: str, round_trip: int) -> Iterator[str]:
    """The same namespace, through a proxy with a delay."""
    if not round_trip:
        yield connection_string
        return
    port = connection_string.partition("127.0.0.1:")[2].partition(";")[0]
    command = [sys.executable, "-m", "tests.support.proxy", port, str(round_trip / 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            yield connection_string.replace(f":{port}", f":{process.stdout.readline().strip()}")
        finally:
            process.terminate()
