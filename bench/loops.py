"""The loops that are compared. Each runs in a process of its own and prints what it took, as JSON.

`python -m bench.loops NAME QUEUE COUNT`, with two connection strings in the environment: PRIMARY and SECONDARY. The
SDK's loops are written the way its samples show: receive a hundred, send them on, complete each.

Another loop joins by a function like these, its name in `LOOPS`, and the workloads that it is to be measured with.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from pydantic import SecretStr

from syphon.bus.opening import namespace_of
from syphon.config import NamespaceSettings
from syphon.transfer.outcomes import Result
from syphon.transfer.pump import Pump, PumpOptions

PATH = b"x-ms-path"


class Watch:
    """Counts what has arrived, and remembers when the first did."""

    def __init__(self) -> None:
        self.moved = 0
        self._first = 0
        self._first_at = 0.0
        self.begin()

    def begin(self) -> None:
        """Time counts from here: what had to be started once is not a part of it."""
        self._began, self._cpu = time.monotonic(), _cpu()
        self._ended: float | None = None

    def end(self) -> None:
        """Time counts no more."""
        self._ended = time.monotonic()

    @property
    def seconds(self) -> float:
        return (self._ended or time.monotonic()) - self._began

    @property
    def cpu(self) -> float:
        return _cpu() - self._cpu

    def add(self, count: int) -> None:
        if not self.moved:
            self._first, self._first_at = count, time.monotonic()
        self.moved += count

    def steady(self) -> float:
        """Messages a second since the first had arrived."""
        now = self._ended or time.monotonic()
        return (self.moved - self._first) / (now - self._first_at) if now > self._first_at and self._first_at else 0.0


def sdk_sync(primary: str, secondary: str, queue: str, count: int, watch: Watch) -> None:
    with (
        ServiceBusClient.from_connection_string(primary) as home,
        ServiceBusClient.from_connection_string(secondary) as away,
        away.get_queue_receiver(queue) as receiver,
    ):
        senders: dict[str, Any] = {}
        while watch.moved < count:
            messages = receiver.receive_messages(max_message_count=100, max_wait_time=5)
            if not messages:
                break
            for path, group in _by_destination(messages).items():
                if path not in senders:
                    senders[path] = home.get_queue_sender(path)
                for batch in _batches(group):
                    senders[path].send_messages(batch)
            for message in messages:
                receiver.complete_message(message)
            watch.add(len(messages))
        for sender in senders.values():
            sender.close()


def sdk_async(primary: str, secondary: str, queue: str, count: int, watch: Watch) -> None:
    async def run() -> None:
        async with (
            AsyncServiceBusClient.from_connection_string(primary) as home,
            AsyncServiceBusClient.from_connection_string(secondary) as away,
            away.get_queue_receiver(queue) as receiver,
        ):
            senders: dict[str, Any] = {}
            while watch.moved < count:
                messages = await receiver.receive_messages(max_message_count=100, max_wait_time=5)
                if not messages:
                    break
                groups = _by_destination(messages)
                for path in groups:
                    if path not in senders:
                        senders[path] = home.get_queue_sender(path)
                await asyncio.gather(*(_send(senders[path], group) for path, group in groups.items()))
                await asyncio.gather(*(receiver.complete_message(message) for message in messages))
                watch.add(len(messages))
            for sender in senders.values():
                await sender.close()

    asyncio.run(run())


async def _send(sender: Any, messages: list[Any]) -> None:
    for batch in _batches(messages):
        await sender.send_messages(batch)


def pump(primary: str, secondary: str, queue: str, count: int, watch: Watch) -> None:
    home = namespace_of(NamespaceSettings(connection_string=SecretStr(primary)), "")
    away = namespace_of(NamespaceSettings(connection_string=SecretStr(secondary)), queue)
    options = PumpOptions(lease=None, limit=count)
    Pump(queue, away, home, lambda outcome: watch.add(outcome.result is Result.FORWARDED), options).run()
    away.close()
    home.close()


def pumps(primary: str, secondary: str, queue: str, count: int, watch: Watch) -> None:
    """Two processes with a pump each, started beforehand: what two slots of a drain are compared with."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_imported, range(2))
        watch.begin()
        work = [(primary, secondary, queue, count // 2)] * 2
        watch.add(sum(pool.starmap(_pumped, work)))
        watch.end()


def _imported(_: int) -> None:
    """Having come here, a process has loaded everything."""


def _pumped(primary: str, secondary: str, queue: str, count: int) -> int:
    watch = Watch()
    pump(primary, secondary, queue, count, watch)
    return watch.moved


def drain_1(primary: str, secondary: str, queue: str, count: int, watch: Watch) -> None:
    _drain(primary, secondary, queue, count, watch, 1)


def drain_2(primary: str, secondary: str, queue: str, count: int, watch: Watch) -> None:
    _drain(primary, secondary, queue, count, watch, 2)


def _drain(primary: str, secondary: str, queue: str, count: int, watch: Watch, slots: int) -> None:
    """A Spark job with so many slots, once Spark has been started."""
    from syphon.config import Config
    from syphon.pipeline.engine import engine

    with tempfile.TemporaryDirectory() as folder:
        pair = {
            "name": "contoso",
            "primary": {"connection_string": primary},
            "secondary": {"connection_string": secondary},
        }
        config = Config.model_validate({"pairs": [pair], "pipeline": {"ledger": folder}})
        with engine(config.pipeline) as ready:
            ready.jobs.warm_up()
            watch.begin()
            options = [PumpOptions(lease=None, limit=count // slots)] * slots
            done = ready.jobs.carry(config.pairs[0], queue, options)
            watch.add(done.sum("forwarded"))
            watch.end()


def _by_destination(messages: list[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for message in messages:
        groups[message.application_properties[PATH].decode()].append(message)
    return groups


def _batches(messages: list[Any]) -> Iterator[list[ServiceBusMessage]]:
    """Lists that fit into the 256 KB of a Standard namespace: the SDK refuses larger ones."""
    batch: list[ServiceBusMessage] = []
    size = 0
    for message in messages:
        length = len(b"".join(message.body)) + 1024
        if batch and size + length > 250_000:
            yield batch
            batch, size = [], 0
        batch.append(_restored(message))
        size += length
    yield batch


def _restored(message: Any) -> ServiceBusMessage:
    properties = {key.decode(): value for key, value in message.application_properties.items() if key != PATH}
    return ServiceBusMessage(
        b"".join(message.body), application_properties=properties, message_id=message.message_id,
        correlation_id=message.correlation_id, subject=message.subject, content_type=message.content_type,
    )  # fmt: skip


LOOPS: dict[str, Callable[[str, str, str, int, Watch], None]] = {
    "sdk_sync": sdk_sync,
    "sdk_async": sdk_async,
    "pump": pump,
    "two pumps": pumps,
    "drain, 1 slot": drain_1,
    "drain, 2 slots": drain_2,
}
OURS = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
"""This process, and those it has started and waited for."""


def main() -> None:
    name, queue, count = sys.argv[1:4]
    primary, secondary = os.environ["PRIMARY"], os.environ["SECONDARY"]
    watch = Watch()
    LOOPS[name](primary, secondary, queue, int(count), watch)
    print(json.dumps({
        "moved": watch.moved,
        "seconds": watch.seconds,
        "steady_per_second": watch.steady(),
        "cpu": watch.cpu,
        "megabytes": _megabytes(),
    }))  # fmt: skip


def _megabytes() -> float:
    """At the peak, of this process or the largest that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    # What getrusage says of ourselves counts the memory of the process we were forked from.
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        own = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return max(own, children) / 1024


def _cpu() -> float:
    used = [resource.getrusage(who) for who in OURS]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main()
