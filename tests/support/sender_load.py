"""Twenty senders under load, in their own process.

`python -m tests.support.sender_load API RECORD`, with two connection strings in the environment.
It sends until its input ends. It writes each call to RECORD when the call returns, so that the record survives a kill.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TextIO

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from syphon.sender import PairOptions, aio, pair

SENDERS, BATCH, PAUSE = 20, 20, 0.2
"""20 senders × 20 messages × 5 times per second: 2,000 messages per second."""
DESTINATIONS = ("orders", "invoices", "parts", "news")
"""A queue, one with sessions, a partitioned one, and a topic."""

OPTIONS = PairOptions(
    backlog_queue_count=2,
    failover_interval=timedelta(0),
    ping_primary_interval=timedelta(seconds=1),
    operation_timeout=timedelta(seconds=15),
    primary_name="contoso",
)


@dataclass
class Call:
    """A call that returned, or raised: a line of the record."""

    identities: list[str]
    began: float
    ended: float
    error: str | None = None


def calls(record: Path) -> list[Call]:
    """Of a process that was killed the last line may be half written: it is no call that anybody was told of."""
    lines = record.read_text().splitlines(keepends=True)
    return [Call(**json.loads(line)) for line in lines if line.endswith("\n")]


def batch_of(sender: int, turn: int) -> list[ServiceBusMessage]:
    destination = DESTINATIONS[sender % len(DESTINATIONS)]
    key = f"key-{sender}"
    options: dict[str, Any] = {"invoices": {"session_id": key}, "parts": {"partition_key": key}}.get(destination, {})
    return [
        ServiceBusMessage(b"x" * 200, message_id=f"{destination}/{sender}/{turn}/{number}", **options)
        for number in range(BATCH)
    ]


def note(record: TextIO, batch: list[ServiceBusMessage], began: float, error: Exception | None) -> None:
    identities = [str(message.message_id) for message in batch]
    said = None if error is None else f"{type(error).__name__}: {error}"
    record.write(json.dumps(asdict(Call(identities, began, time.monotonic(), said))) + "\n")


def run_threads(primary: str, secondary: str, record: TextIO, stopping: threading.Event) -> None:
    home, away = (ServiceBusClient.from_connection_string(text, retry_total=0) for text in (primary, secondary))

    def work(client: Any, number: int) -> None:
        turn, due = 0, time.monotonic()
        with client.get_queue_sender(DESTINATIONS[number % len(DESTINATIONS)]) as sender:
            while not stopping.wait(max(0.0, due - time.monotonic())):
                due = max(due + PAUSE, time.monotonic())
                batch, began = batch_of(number, turn := turn + 1), time.monotonic()
                try:
                    sender.send_messages(batch)
                    note(record, batch, began, None)
                except Exception as error:
                    note(record, batch, began, error)

    with home, away, pair(home, away, OPTIONS) as client:
        workers = [threading.Thread(target=work, args=(client, number)) for number in range(SENDERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


def run_tasks(primary: str, secondary: str, record: TextIO, stopping: threading.Event) -> None:
    async def work(client: aio.PairedClient, number: int) -> None:
        turn, due = 0, time.monotonic()
        async with client.get_queue_sender(DESTINATIONS[number % len(DESTINATIONS)]) as sender:
            while not stopping.is_set():
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due = max(due + PAUSE, time.monotonic())
                batch, began = batch_of(number, turn := turn + 1), time.monotonic()
                try:
                    await sender.send_messages(batch)
                    note(record, batch, began, None)
                except Exception as error:
                    note(record, batch, began, error)

    async def run() -> None:
        make = AsyncServiceBusClient.from_connection_string
        home, away = make(primary, retry_total=0), make(secondary, retry_total=0)
        async with home, away, aio.pair(home, away, OPTIONS) as client:
            await asyncio.gather(*(work(client, number) for number in range(SENDERS)))

    asyncio.run(run())


APIS: dict[str, Callable[[str, str, TextIO, threading.Event], None]] = {"sync": run_threads, "aio": run_tasks}


def main() -> None:
    api, path = sys.argv[1:]
    stopping = threading.Event()

    def until_the_input_ends() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=until_the_input_ends, daemon=True).start()
    with Path(path).open("w", buffering=1) as record:
        APIS[api](os.environ["PRIMARY"], os.environ["SECONDARY"], record, stopping)


if __name__ == "__main__":
    main()
