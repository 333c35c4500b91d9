"""A scenario of eight parts for one installed version of azure-servicebus. It runs in that version's environment.

`python scenario.py sync|asyncio PLACE` where PLACE is JSON: connection_string, host, port and ca_file. It prints a JSON
object: for each part null, or the error. It imports nothing of this project and runs with azure-servicebus 7.0.

`python scenario.py types PLACE` only sends messages to the queue "typed": properties and bodies of every type that the
client can send. Versions before 7.3 lack these bodies.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import json
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import azure.servicebus
from azure.servicebus import ServiceBusMessage

WAIT = 20
LARGE = 200_000
"""Bytes of a message that takes several frames."""


async def done(result: Any) -> Any:
    """The result of a call, whether the client is synchronous or not."""
    return await result if inspect.isawaitable(result) else result


def client_class(flavour: str) -> Any:
    name = "azure.servicebus.aio" if flavour == "asyncio" else "azure.servicebus"
    return importlib.import_module(name).ServiceBusClient


def make_client(flavour: str, place: dict[str, Any]) -> Any:
    """A client for the emulator. Versions that do not know UseDevelopmentEmulator=true use TLS."""
    version = tuple(map(int, azure.servicebus.__version__.split(".")[:2]))
    plain: str = place["connection_string"]
    if version >= (7, 14):
        return client_class(flavour).from_connection_string(plain)
    encrypted = plain.replace("UseDevelopmentEmulator=true;", "").replace(f":{place['port']};", ";")
    redirect = redirect_uamqp if version < (7, 10) else redirect_pyamqp
    redirect(place)
    return client_class(flavour).from_connection_string(encrypted, connection_verify=place["ca_file"])


def redirect_uamqp(place: dict[str, Any]) -> None:
    """Sends uamqp to the emulator: these versions have no setting for a port, some none for a certificate."""
    module = importlib.import_module("uamqp.authentication")
    for name in ("JWTTokenAuth", "JWTTokenAsync"):
        original = getattr(module, name)

        def make(*args: Any, original: Any = original, **named: Any) -> Any:
            return original(*args, **{**named, "port": place["port"], "verify": place["ca_file"]})

        setattr(module, name, functools.wraps(original)(make))


def redirect_pyamqp(place: dict[str, Any]) -> None:
    """Sends versions 7.10 to 7.13 to the emulator: their setting for a port is one for WebSockets."""
    for name in ("_transport", "aio._transport_async"):
        module: Any = importlib.import_module(f"azure.servicebus._pyamqp.{name}")
        module.to_host_port = lambda host, _port=None: (host, place["port"])


class Scenario:
    """The eight parts. Each leaves its queue empty."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def send(self) -> None:
        async with Opened(self.client.get_queue_sender("orders")) as sender:
            await done(sender.send_messages(ServiceBusMessage("one", application_properties={"colour": "red", "n": 7})))
            await done(sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")]))
            batch = await done(sender.create_message_batch())
            batch.add_message(ServiceBusMessage("four"))
            await done(sender.send_messages(batch))
            await done(sender.send_messages(ServiceBusMessage(b"x" * LARGE)))

    async def receive(self) -> None:
        async with Opened(self.client.get_queue_receiver("orders")) as receiver:
            found = await take(receiver, 5)
            bodies = [body(message) for message in found]
            assert bodies == [b"one", b"two", b"three", b"four", b"x" * LARGE], [text[:20] for text in bodies]
            properties = {plain(key): plain(value) for key, value in found[0].application_properties.items()}
            assert properties == {"colour": "red", "n": 7}, properties
            for message in found:
                await done(receiver.complete_message(message))
        assert await self.count() == 0

    async def settle(self) -> None:
        await self.put("again")
        async with Opened(self.client.get_queue_receiver("orders")) as receiver:
            (message,) = await take(receiver, 1)
            before = message.locked_until_utc
            await done(receiver.renew_message_lock(message))
            assert message.locked_until_utc >= before
            await done(receiver.abandon_message(message))
            (message,) = await take(receiver, 1)
            assert message.delivery_count == 1, message.delivery_count
            await done(receiver.complete_message(message))
        assert await self.count() == 0

    async def defer(self) -> None:
        await self.put("completed", "dead-lettered", "abandoned")
        async with Opened(self.client.get_queue_receiver("orders")) as receiver:
            numbers = []
            for message in await take(receiver, 3):
                numbers.append(message.sequence_number)
                await done(receiver.defer_message(message))
            first, second, third = await done(receiver.receive_deferred_messages(numbers))
            assert body(first) == b"completed", body(first)
            await done(receiver.complete_message(first))
            await done(receiver.dead_letter_message(second, reason="why"))
            await done(receiver.abandon_message(third))
            (third,) = await done(receiver.receive_deferred_messages(numbers[2]))
            await done(receiver.complete_message(third))
        assert await self.count() == 0
        await self.read_dead_letter(b"dead-lettered", "why")

    async def peek(self) -> None:
        await self.put("one", "two")
        async with Opened(self.client.get_queue_receiver("orders")) as receiver:
            peeked = await done(receiver.peek_messages(10))
            assert [body(message) for message in peeked] == [b"one", b"two"], peeked
            later = await done(receiver.peek_messages(10, sequence_number=peeked[1].sequence_number))
            assert [body(message) for message in later] == [b"two"], later
            for message in await take(receiver, 2):
                await done(receiver.complete_message(message))

    async def schedule(self) -> None:
        now = datetime.now(UTC)
        async with Opened(self.client.get_queue_sender("orders")) as sender:
            later = [ServiceBusMessage("cancelled"), ServiceBusMessage("cancelled too")]
            numbers = await done(sender.schedule_messages(later, now + timedelta(hours=1)))
            assert len(numbers) == 2, numbers
            assert await self.count() == 2
            await done(sender.cancel_scheduled_messages(numbers))
            assert await self.count() == 0
            await done(sender.schedule_messages(ServiceBusMessage("soon"), now + timedelta(seconds=1)))
        async with Opened(self.client.get_queue_receiver("orders")) as receiver:
            (message,) = await take(receiver, 1)
            assert body(message) == b"soon"
            await done(receiver.complete_message(message))

    async def sessions(self) -> None:
        async with Opened(self.client.get_queue_sender("chats")) as sender:
            await done(sender.send_messages([ServiceBusMessage(text, session_id="a") for text in ("one", "two")]))
        async with Opened(self.client.get_queue_receiver("chats", session_id="a")) as receiver:
            session = receiver.session
            await done(session.set_state(b"half"))
            assert await done(session.get_state()) == b"half"
            await done(session.renew_lock())
            one, two = await take(receiver, 2)
            await done(receiver.complete_message(one))
            await done(receiver.defer_message(two))
            (two,) = await done(receiver.receive_deferred_messages(two.sequence_number))
            await done(receiver.complete_message(two))

    async def dead_letter(self) -> None:
        await self.put("bad")
        async with Opened(self.client.get_queue_receiver("orders")) as receiver:
            (message,) = await take(receiver, 1)
            await done(receiver.dead_letter_message(message, reason="broken", error_description="really"))
        await self.read_dead_letter(b"bad", "broken")

    async def read_dead_letter(self, text: bytes, reason: str) -> None:
        async with Opened(self.client.get_queue_receiver("orders", sub_queue="deadletter")) as receiver:
            (message,) = await take(receiver, 1)
            assert body(message) == text, body(message)
            assert message.dead_letter_reason == reason, message.dead_letter_reason
            await done(receiver.complete_message(message))

    async def put(self, *texts: str) -> None:
        async with Opened(self.client.get_queue_sender("orders")) as sender:
            await done(sender.send_messages([ServiceBusMessage(text) for text in texts]))

    async def count(self) -> int:
        async with Opened(self.client.get_queue_receiver("orders")) as receiver:
            return len(await done(receiver.peek_messages(10)))


PARTS = ("send", "receive", "settle", "defer", "peek", "schedule", "sessions", "dead_letter")


class Opened:
    """`async with` for both flavours."""

    def __init__(self, resource: Any) -> None:
        self.resource = resource

    async def __aenter__(self) -> Any:
        return await done(getattr(self.resource, "__aenter__", getattr(self.resource, "__enter__", None))())  # type: ignore[misc]

    async def __aexit__(self, *_: object) -> None:
        await done(self.resource.close())


async def take(receiver: Any, count: int) -> list[Any]:
    """Receives exactly so many messages, in as many calls as that takes."""
    found: list[Any] = []
    while len(found) < count:
        got = await done(receiver.receive_messages(max_message_count=count - len(found), max_wait_time=WAIT))
        assert got, f"{len(found)} of {count} messages arrived within {WAIT} s"
        found += got
    return found


def body(message: Any) -> bytes:
    return b"".join(message.body)


def plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


async def run(flavour: str, place: dict[str, Any]) -> dict[str, str | None]:
    results: dict[str, str | None] = {}
    async with Opened(make_client(flavour, place)) as client:
        scenario = Scenario(client)
        for part in PARTS:
            try:
                await getattr(scenario, part)()
            except Exception as error:
                results[part] = f"{type(error).__name__}: {error}"[:300]
                break  # later parts would find the messages of this one
            results[part] = None
    return results


TYPES: dict[Any, Any] = {
    "string": "ärger",
    "binary": b"raw",  # the client cannot send bytes that are no text
    "true": True,
    "int": -5,
    "double": 1e300,
    "uuid": UUID(int=7),
    "timestamp": datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC),
    "decimal": Decimal("3.14"),
    "null": None,
}


def send_types(place: dict[str, Any]) -> dict[str, str | None]:
    from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

    bodies: list[dict[str, Any]] = [
        {"data_body": [b"a", b"b"]},
        {"value_body": {"list": [1, "x"], "yes": True}},
        {"sequence_body": [[1, "x"], [2.5]]},
    ]
    messages: list[Any] = [
        AmqpAnnotatedMessage(
            **body,
            header={"durable": True, "priority": 7, "time_to_live": 3_600_000},
            properties=AmqpMessageProperties(message_id=f"body-{number}", subject="s", correlation_id="c"),
            application_properties=TYPES,
        )
        for number, body in enumerate(bodies)
    ]
    messages.append(
        ServiceBusMessage(
            "plain",
            application_properties=TYPES,
            message_id="plain",
            session_id="s",
            time_to_live=timedelta(hours=1),
            reply_to="there",
            content_type="text/plain",
            subject="s",
        )
    )
    with make_client("sync", place) as client, client.get_queue_sender("typed") as sender:
        for message in messages:
            sender.send_messages(message)
    return {"types": None}


if __name__ == "__main__":
    flavour, where = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(send_types(where) if flavour == "types" else asyncio.run(run(flavour, where))))
