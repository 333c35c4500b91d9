"""The loops that are compared. Each runs in its own process and prints its measurements as JSON.

`python -m bench.loops NAME`, with its task in the environment. The SDK's loops are written as in its samples: receive a
hundred messages, forward them, complete each.

To add a loop, write a function like these, add its name to `LOOPS`, and add it to workloads.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from pydantic import SecretStr

from bench.javascript import node
from bench.shovel import shovel
from bench.task import Task
from bench.watch import Watch
from bench.workloads import ORDERED
from syphon.config import SideSettings, Transport
from syphon.model import EntityPath, SessionOrder
from syphon.model.outcomes import Result
from syphon.servicebus.factory import namespace_of
from syphon.servicebus.namespace import Namespace
from syphon.transfer import MovePlan
from syphon.transfer.pump import Pump, PumpOptions

PATH = b"x-ms-path"
C = TypeVar("C", ServiceBusClient, AsyncServiceBusClient)


def sdk_sync(task: Task, watch: Watch) -> None:
    with (
        _client(ServiceBusClient, task.primary, task) as home,
        _client(ServiceBusClient, task.secondary, task) as away,
        away.get_queue_receiver(task.queue) as receiver,
    ):
        senders: dict[str, Any] = {}
        while watch.moved < task.count:
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


def sdk_async(task: Task, watch: Watch) -> None:
    async def run() -> None:
        async with (
            _client(AsyncServiceBusClient, task.primary, task) as home,
            _client(AsyncServiceBusClient, task.secondary, task) as away,
            away.get_queue_receiver(task.queue) as receiver,
        ):
            senders: dict[str, Any] = {}
            while watch.moved < task.count:
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
            await asyncio.gather(*(sender.close() for sender in senders.values()))

    asyncio.run(run())


async def _send(sender: Any, messages: list[Any]) -> None:
    for batch in _batches(messages):
        await sender.send_messages(batch)


def pump(task: Task, watch: Watch, order: SessionOrder | None = None, move: MovePlan | None = None) -> None:
    home, away = _namespace(task.primary, "", task), _namespace(task.secondary, task.queues[0], task)
    # With one queue the limit ends the pump. A limit over many would be shared, and its last part waits for silence.
    limit = task.count if len(task.queues) == 1 else None
    options = PumpOptions(lease=None, limit=limit, session_order=order, move=move)
    pump = Pump(away, home, lambda outcome: watch.add(outcome.result is Result.FORWARDED), options)
    for queue in task.queues:
        pump.serve(queue)
    for _ in pump.turns():
        # The pump would now wait for more, or for a stuck destination.
        if watch.moved == task.arriving:
            watch.end()
            pump.stop()
    away.close()
    home.close()


def pump_in_order(task: Task, watch: Watch) -> None:
    pump(task, watch, SessionOrder.KEPT)


def move(task: Task, watch: Watch) -> None:
    """The pump with another plan: the messages go to one entity, as they are."""
    pump(task, watch, move=MovePlan("bench", EntityPath.of("d0")))


def _namespace(connection_string: str, entity: str, task: Task) -> Namespace:
    ca_file = Path(task.ca_file) if task.ca_file is not None else None
    string = connection_string if ca_file is None else _encrypted(connection_string)
    transport = Transport.WEBSOCKETS if task.uses_websockets else Transport.AMQP
    return namespace_of(SideSettings(connection_string=SecretStr(string), ca_file=ca_file, transport=transport), entity)


def pumps(task: Task, watch: Watch) -> None:
    """Two processes with a pump each, started beforehand: the comparison for two slots of a drain."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(_imported, range(2))
        watch.begin()
        half = replace(task, count=task.count // 2, arriving=task.count // 2)
        watch.add(sum(pool.map(_pumped, [half] * 2)))
        watch.end()


def _imported(_: int) -> None:
    """When this runs, the process has imported everything."""


def _pumped(task: Task) -> int:
    watch = Watch()
    pump(task, watch)
    return watch.moved


def drain_1(task: Task, watch: Watch) -> None:
    _drain(task, watch, 1)


def drain_2(task: Task, watch: Watch) -> None:
    _drain(task, watch, 2)


def _drain(task: Task, watch: Watch, slots: int) -> None:
    """A Spark job with so many slots. The start of Spark does not count."""
    from syphon.config import Config
    from syphon.control import HandOver
    from syphon.worker.start_stop import running_engine

    with tempfile.TemporaryDirectory() as folder:
        pair = {
            "name": "contoso",
            "primary": {"connection_string": task.primary},
            "secondary": {"connection_string": task.secondary},
        }
        config = Config.model_validate({"pairs": [pair], "pipeline": {"ledger": folder}})
        with running_engine(config.pipeline) as ready:
            ready.jobs.warm_up()
            watch.begin()
            options = [PumpOptions(lease=None, limit=task.count // slots)] * slots
            done = ready.jobs.run(config.pairs[0], [HandOver(queue=queue) for queue in task.queues], options)
            watch.add(done.counters.forwarded)
            watch.end()


def _client(kind: type[C], connection_string: str, task: Task) -> C:
    if task.ca_file is None and not task.uses_websockets:
        return kind.from_connection_string(connection_string)
    address = connection_string.partition("Endpoint=")[2].partition(";")[0]
    return kind.from_connection_string(
        connection_string if task.ca_file is None else _encrypted(connection_string),
        connection_verify=task.ca_file,
        custom_endpoint_address=address,  # the SDK uses one fixed port for TLS and WebSockets, and ours is another
        transport_type=TransportType.AmqpOverWebsocket if task.uses_websockets else TransportType.Amqp,
    )


def _encrypted(connection_string: str) -> str:
    return connection_string.replace("UseDevelopmentEmulator=true;", "")


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
        b"".join(message.body),
        application_properties=properties,
        message_id=message.message_id,
        correlation_id=message.correlation_id,
        subject=message.subject,
        content_type=message.content_type,
    )


LOOPS: dict[str, Callable[[Task, Watch], None]] = {
    "sdk_sync": sdk_sync,
    "sdk_async": sdk_async,
    "node": node,
    "shovel": shovel,
    "pump": pump,
    ORDERED: pump_in_order,
    "move": move,
    "two pumps": pumps,
    "drain, 1 slot": drain_1,
    "drain, 2 slots": drain_2,
}


def main() -> None:
    watch = Watch()
    try:
        LOOPS[sys.argv[1]](Task.given(), watch)
    except ServiceBusError as error:
        watch.stopped = type(error).__name__
    print(json.dumps(asdict(watch.end())))


if __name__ == "__main__":
    main()
