"""`python -m bench.sender`: the CPU time of the paired sender and of the SDK's own sender, on one emulator.

Both send the same messages in many short turns, and the best turn of each counts, because noise only adds time.
On a healthy primary the paired sender may cost ten percent more. The table also shows its cost in an outage.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import click
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from rich.console import Console
from rich.table import Table

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage, QueueDescription
from syphon.sender import PairOptions, aio, pair
from syphon.sender.shared_failover import Failover

OPTIONS = PairOptions(backlog_queue_count=1, failover_interval=timedelta(0), primary_name="contoso")
WORKLOADS: dict[str, tuple[Callable[[], Any], int]] = {
    "1 of 1 KB": (lambda: ServiceBusMessage(b"x" * 1024), 1),
    "100 of 1 KB": (lambda: [ServiceBusMessage(b"x" * 1024) for _ in range(100)], 100),
}

Send = Callable[[Any], Awaitable[None]]


async def cpu_of(send: Send, make: Callable[[], Any], times: int) -> float:
    """CPU seconds of so many sends, without making the messages."""
    batches = [make() for _ in range(times)]
    began = time.process_time()
    for messages in batches:
        await send(messages)
    return time.process_time() - began


def awaited(send: Callable[[Any], None]) -> Send:
    async def call(messages: Any) -> None:
        send(messages)

    return call


async def compare(plain: Send, paired: Send, make: Callable[[], Any], times: int, turns: int) -> tuple[float, float]:
    """CPU seconds of both: the best of several turns."""
    for send in (plain, paired):
        await cpu_of(send, make, max(1, times // 10))
    took: dict[Send, list[float]] = {plain: [], paired: []}
    for turn in range(turns):
        for send in (plain, paired) if turn % 2 else (paired, plain):
            took[send].append(await cpu_of(send, make, times))
    return min(took[plain]), min(took[paired])


def serve(line: Connection) -> None:
    """Runs an emulator in its own process; `line` says when the outage of its primary begins and ends."""
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings) as emulator:
        primary = emulator["contoso"].namespace
        emulator.call(lambda: primary.create_queue(QueueDescription("orders", max_size_in_megabytes=5120)))
        line.send((emulator["contoso"].connection_string, emulator["contoso-dr"].connection_string))
        changes = {True: lambda: primary.faults.begin_outage(Outage.REFUSE), False: primary.faults.end_outage}
        while (is_away := line.recv()) is not None:
            emulator.call(changes[is_away])
            line.send(is_away)


@click.command()
@click.option("--turns", default=150, help="How often each is measured.")
def main(turns: int) -> None:
    """The CPU time of the paired sender and of the SDK's own."""
    logging.disable(logging.WARNING)
    line, other_end = multiprocessing.Pipe()
    emulator = multiprocessing.get_context("spawn").Process(target=serve, args=(other_end,))
    emulator.start()
    table = Table("API", "at a time", "SDK, µs each", "paired", "more", "in an outage")
    for cells in asyncio.run(measure(line, turns)):
        table.add_row(*cells)
    line.send(None)
    emulator.join()
    Console().print(table)


async def measure(line: Connection, turns: int) -> list[list[str]]:
    home, away = line.recv()

    def is_away(gone: bool) -> None:
        line.send(gone)
        line.recv()

    async def one(api: str, name: str, plain: Send, paired: Send, failover: Failover) -> list[str]:
        make, size = WORKLOADS[name]
        times = 20 if size == 1 else 2
        took = await compare(plain, paired, make, times, turns)
        is_away(True)
        await paired(make())  # fails the entity over, and opens the link to the backlog
        assert failover.failed_over()
        outage = min([await cpu_of(paired, make, times) for _ in range(turns)])
        is_away(False)
        return row(api, name, took, outage, times * size)

    rows = []
    async with contextlib.AsyncExitStack() as stack:
        client = stack.enter_context(ServiceBusClient.from_connection_string(home))
        other = await stack.enter_async_context(AsyncServiceBusClient.from_connection_string(home))
        for name in WORKLOADS:
            plain, sender = client.get_queue_sender("orders"), other.get_queue_sender("orders")
            with pair(client_without_retries(home, ServiceBusClient), away, OPTIONS) as both:
                paired = both.get_queue_sender("orders")
                sends = awaited(plain.send_messages), awaited(paired.send_messages)
                rows.append(await one("threads", name, *sends, both.failover))
            async with aio.pair(client_without_retries(home, AsyncServiceBusClient), away, OPTIONS) as pair_of:
                paired_too = pair_of.get_queue_sender("orders")
                sends = sender.send_messages, paired_too.send_messages
                rows.append(await one("asyncio", name, *sends, pair_of.failover))
    return rows


def client_without_retries(connection_string: str, kind: Any) -> Any:
    """A client without retries, so that its outage begins at once."""
    return kind.from_connection_string(connection_string, retry_total=0)


def row(api: str, name: str, took: tuple[float, float], outage: float, messages: int) -> list[str]:
    plain, paired = took
    each = [f"{seconds / messages * 1e6:.0f}" for seconds in (plain, paired, outage)]
    return [api, name, each[0], each[1], f"{(paired / plain - 1) * 100:+.1f} %", each[2]]


if __name__ == "__main__":
    main()
