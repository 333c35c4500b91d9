"""`python -m bench.idle`: an idle worker, and how long the first message waits for Spark.

The worker and the emulator are processes of their own. Spark stops soon (`idle_shutdown`), so that each message finds
it stopped. Memory is proportional (PSS), over all processes of the worker.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from rich.console import Console

from bench.commands import LOG, backlog_queues, worker
from bench.stage import Place, emulator
from bench.targets import Target
from bench.usage import cpu, tree, usage

QUEUES = 10
LONE = "lone"
STOPS_AFTER = 2.0
"""Seconds without a job until Spark stops."""
WITHIN = 180.0
SETTLING = 10.0
"""Seconds after which a worker that has started is idle."""


def share_of_a_core(process: int, seconds: float) -> float:
    """The share of one core that a process and its descendants use."""
    began, before = time.monotonic(), cpu(process)
    time.sleep(seconds)
    return (cpu(process) - before) / (time.monotonic() - began)


def first_message(place: Place, queue: str) -> float:
    """Seconds until a message arrives that finds Spark stopped."""
    with (
        ServiceBusClient.from_connection_string(place.secondary) as away,
        ServiceBusClient.from_connection_string(place.primary) as home,
        home.get_queue_receiver(LONE) as receiver,
        away.get_queue_sender(queue) as sender,
    ):
        began = time.monotonic()
        sender.send_messages(ServiceBusMessage("x", application_properties={"x-ms-path": LONE}))
        messages = receiver.receive_messages(1, max_wait_time=WITHIN)
        took = time.monotonic() - began
        if not messages:
            raise RuntimeError(f"the first message has not arrived within {WITHIN:g} s")
        receiver.complete_message(messages[0])
    return took


def memory_returned(process: int, folder: Path, times: int) -> float:
    """Seconds from the moment at which Spark is to be stopped until only the worker's own process is left."""
    deadline = time.monotonic() + WITHIN
    while (folder / LOG).read_text().count("stopping Spark") < times:
        if time.monotonic() > deadline:
            raise RuntimeError(f"Spark was not stopped: {(folder / LOG).read_text()}")
        time.sleep(0.1)
    began = time.monotonic()
    while len(tree(process)) > 1:
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes are left: {tree(process)}")
        time.sleep(0.1)
    return time.monotonic() - began


def import_time(module: str, rounds: int = 7) -> float:
    """Seconds to import a module in a new process, without Python's own start."""
    code = f"import time; began = time.perf_counter(); import {module}; print(time.perf_counter() - began)"
    command = [sys.executable, "-c", code]
    found = [subprocess.run(command, capture_output=True, check=True, text=True).stdout for _ in range(rounds)]  # noqa: S603
    return statistics.median(map(float, found))


@click.command()
@click.option("--messages", default=5, show_default=True, help="Messages that find Spark stopped.")
@click.option("--idle", "seconds", default=60.0, show_default=True, help="Seconds over which CPU time is measured.")
def main(messages: int, seconds: float) -> None:
    """Measure an idle worker."""
    console, goals = Console(), []
    queues = backlog_queues(QUEUES)
    pipeline = {"idle_shutdown": f"{STOPS_AFTER:g}s"}
    with (
        tempfile.TemporaryDirectory() as name,
        emulator([LONE], queues) as place,
        worker(place, Path(name), QUEUES, pipeline=pipeline) as process,
    ):
        time.sleep(SETTLING)
        goals.append(Target("MB (PSS) of an idle worker", usage(process).megabytes, 90, at_most=True))
        share = 100 * share_of_a_core(process, seconds)
        goals.append(Target("% of a core of an idle worker", share, 0.5, at_most=True))
        took, returned = [], []
        for number in range(messages):
            took.append(first_message(place, queues[number % QUEUES]))
            returned.append(memory_returned(process, Path(name), number + 1))
            console.print(f"[dim]first message {took[-1]:.1f} s, memory returned {returned[-1]:.1f} s later[/dim]")
        goals.append(Target("seconds to the first message after idle, longest", max(took), 10, at_most=True))
        goals.append(Target("seconds until memory is returned, longest", max(returned), 60, at_most=True))
        goals.append(Target("MB (PSS) after work", usage(process).megabytes, 90, at_most=True))
    ratio = import_time("syphon.sender") / import_time("azure.servicebus")
    goals.append(Target("import time of syphon.sender over azure.servicebus", ratio, 1.3, at_most=True))
    for goal in goals:
        console.print(f"{'[green]met' if goal.is_met else '[red]not met'}[/]  {goal}")


if __name__ == "__main__":
    main()
