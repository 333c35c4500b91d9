"""`python -m bench.sender`: what the paired sender costs beside the SDK's own, in CPU time, on one emulator.

Both send the same messages from one thread, in turns, and the best turn of each counts: noise only ever adds.
On a healthy primary the paired sender may cost ten percent more. What it costs in an outage is shown beside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import click
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from rich.console import Console
from rich.table import Table

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage, QueueDescription
from syphon.sender import PairOptions, aio, pair

OPTIONS = PairOptions(backlog_queue_count=1, failover_interval=timedelta(0), primary_name="contoso")
LOADS: dict[str, tuple[Callable[[], Any], int]] = {
    "1 of 1 KB": (lambda: ServiceBusMessage(b"x" * 1024), 1),
    "100 of 1 KB": (lambda: [ServiceBusMessage(b"x" * 1024) for _ in range(100)], 100),
}

Send = Callable[[Any], Awaitable[None]]


async def cpu_of(send: Send, make: Callable[[], Any], times: int) -> float:
    """CPU seconds of so many sends, in the sender's thread: the emulator has another, and making messages is not in."""
    loads = [make() for _ in range(times)]
    began = time.thread_time()
    for load in loads:
        await send(load)
    return time.thread_time() - began


def awaited(send: Callable[[Any], None]) -> Send:
    async def call(load: Any) -> None:
        send(load)

    return call


async def compare(plain: Send, paired: Send, make: Callable[[], Any], times: int, turns: int) -> tuple[float, float]:
    """CPU seconds of both, by the best of several turns."""
    for send in (plain, paired):
        await cpu_of(send, make, max(1, times // 10))
    took = [(await cpu_of(plain, make, times), await cpu_of(paired, make, times)) for _ in range(turns)]
    return min(one for one, _ in took), min(other for _, other in took)


@click.command()
@click.option("--scale", default=1.0, help="How many messages, as a share of the usual number.")
@click.option("--turns", default=15, help="How often each is measured.")
def main(scale: float, turns: int) -> None:
    """What the paired sender costs beside the SDK's own."""
    logging.disable(logging.WARNING)
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings) as emulator:
        primary = emulator["contoso"].namespace
        emulator.call(lambda: primary.create_queue(QueueDescription("orders", max_size_in_megabytes=5120)))
        rows = asyncio.run(measure(emulator, scale, turns))
    table = Table("front", "at a time", "SDK, µs each", "paired", "more", "in an outage")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


async def measure(emulator: BackgroundEmulator, scale: float, turns: int) -> list[list[str]]:
    home, away = emulator["contoso"].connection_string, emulator["contoso-dr"].connection_string
    faults = emulator["contoso"].namespace.faults
    rows = []
    async with contextlib.AsyncExitStack() as stack:
        client = stack.enter_context(ServiceBusClient.from_connection_string(home))
        other = await stack.enter_async_context(AsyncServiceBusClient.from_connection_string(home))
        for name, (make, size) in LOADS.items():
            times = max(5, round((300 if size == 1 else 10) * scale))
            with pair(home, away, OPTIONS) as both:
                plain, paired = client.get_queue_sender("orders"), both.get_queue_sender("orders")
                fronts = awaited(plain.send_messages), awaited(paired.send_messages)
                took = await compare(*fronts, make, times, turns)
                emulator.call(lambda: faults.begin_outage(Outage.REFUSE))
                both.failover.failed(both.failover.entity("orders"), OSError("the bench says so"))
                outage = await cpu_of(fronts[1], make, times)
                emulator.call(faults.end_outage)
                rows.append(row("threads", name, took, outage, times * size))
            async with aio.pair(home, away, OPTIONS) as pair_of:
                sender, paired_too = other.get_queue_sender("orders"), pair_of.get_queue_sender("orders")
                took = await compare(sender.send_messages, paired_too.send_messages, make, times, turns)
                emulator.call(lambda: faults.begin_outage(Outage.REFUSE))
                pair_of.failover.failed(pair_of.failover.entity("orders"), OSError("the bench says so"))
                outage = await cpu_of(paired_too.send_messages, make, times)
                emulator.call(faults.end_outage)
                rows.append(row("asyncio", name, took, outage, times * size))
    return rows


def row(front: str, name: str, took: tuple[float, float], outage: float, messages: int) -> list[str]:
    plain, paired = took
    each = [f"{seconds / messages * 1e6:.0f}" for seconds in (plain, paired, outage)]
    return [front, name, each[0], each[1], f"{(paired / plain - 1) * 100:+.1f} %", each[2]]


if __name__ == "__main__":
    main()
