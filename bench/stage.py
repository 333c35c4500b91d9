"""Where loops are measured: a fresh emulator with a filled backlog queue, near or far, and a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .fill import fill
from .workloads import Workload

QUEUE = "contoso/x-servicebus-transfer/0"


@dataclass(frozen=True)
class Measured:
    """What one loop took for one workload."""

    workload: str
    loop: str
    messages: int
    per_second: float
    """From the start of the loop to its end: connections are opened in that time, too."""
    steady_per_second: float
    """From the first message that had arrived."""
    cpu_per_1000: float
    """Seconds of the loop's process and of those it started and waited for."""
    megabytes: float
    """At the peak, of the largest of them."""


def measure(workload: Workload, loop: str) -> Measured:
    count = workload.counts[loop]
    with emulator(workload.destinations) as (primary, secondary):
        fill(secondary, QUEUE, count, workload.size, workload.destinations)
        with distant(primary, workload.round_trip) as home, distant(secondary, workload.round_trip) as away:
            command = [sys.executable, "-m", "bench.loops", loop, QUEUE, str(count)]
            environment = {**os.environ, "PRIMARY": home, "SECONDARY": away}
            done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True)  # noqa: S603
    result = json.loads(done.stdout)
    if result["moved"] != count:
        raise RuntimeError(f"{loop} moved {result['moved']} of {count} messages")
    return Measured(
        workload.name, loop, count, count / result["seconds"], result["steady_per_second"],
        result["cpu"] / count * 1000, result["megabytes"],
    )  # fmt: skip


@contextmanager
def emulator(destinations: int) -> Iterator[tuple[str, str]]:
    """Two namespaces, fresh: connection strings of the primary and the secondary."""
    queues = "".join(f"      - {{name: d{i}, max_size_in_megabytes: 5120}}\n" for i in range(destinations))
    settings = (
        "namespaces:\n  - name: contoso\n    amqp_port: 0\n    http_port: 0\n    queues:\n" + queues
        + "  - name: contoso-dr\n    amqp_port: 0\n    http_port: 0\n    queues:\n"
        + f"      - {{name: {QUEUE}, max_delivery_count: 2147483647, max_size_in_megabytes: 5120, lock_duration: 5m}}\n"
    )  # fmt: skip
    command = [sys.executable, "-m", "syphon", "emulator", "--json", "--config", "/dev/stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(settings)
            process.stdin.close()
            found = json.loads(process.stdout.readline())["namespaces"]
            yield found[0]["connection_string"], found[1]["connection_string"]
        finally:
            process.terminate()


@contextmanager
def distant(connection_string: str, round_trip: int) -> Iterator[str]:
    """The same namespace, further away."""
    if not round_trip:
        yield connection_string
        return
    port = connection_string.partition("127.0.0.1:")[2].partition(";")[0]
    command = [sys.executable, "-m", "bench.proxy", port, str(round_trip / 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            yield connection_string.replace(f":{port}", f":{process.stdout.readline().strip()}")
        finally:
            process.terminate()
