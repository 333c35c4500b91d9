"""Puts aliased messages into a backlog queue quickly: through raw links, in batches."""

from __future__ import annotations

import select
from collections.abc import Callable

from azure.servicebus import ServiceBusClient

from syphon.amqp import Properties, data_section, properties_bytes
from syphon.amqp.frames import BATCH_FORMAT
from syphon.backlog import to_backlog
from syphon.servicebus.connection import Connection
from syphon.servicebus.links import RawSender


def fill(
    connection_string: str,
    queue: str,
    count: int,
    size: int,
    destination: Callable[[int], str],
    *,
    sessions: int = 0,
) -> None:
    """Sends `count` messages of `size` bytes; `destination` gives the destination of each by its number.

    With `sessions` message n has session n modulo so many.
    """
    with ServiceBusClient.from_connection_string(connection_string) as client:
        connection = Connection(client, queue)
        while not connection.tokens.allow(queue):
            _turn(connection)
        sender: RawSender[None] = RawSender(connection.wire, queue)
        per_batch = max(1, min(100, 200_000 // (size + 256)))
        body, sent, settled, batches = bytes(size), 0, 0, 0
        while sent < count or settled < batches:
            while sent < count and sender.has_room() and sender.in_flight < 16:
                numbers = range(sent, min(sent + per_batch, count))
                batch = b"".join(
                    data_section(_message(number, body, destination(number), sessions)) for number in numbers
                )
                sender.send(batch, BATCH_FORMAT, None)
                sent, batches = numbers.stop, batches + 1
            _turn(connection)
            while sender.results:
                error = sender.results.popleft().error
                settled += 1
                if error is not None:
                    raise error
        connection.close()


def _message(number: int, body: bytes, destination: str, sessions: int) -> bytes:
    session = f"s{number % sessions}" if sessions else None
    properties = Properties(message_id=f"m{number}", group_id=session)
    plain = properties_bytes(properties) + data_section(body)
    return to_backlog(plain, destination)


def _turn(connection: Connection) -> None:
    connection.wire.flush()
    select.select([connection.wire], [connection.wire] if connection.wire.wants_to_write() else [], [], 0.2)
    connection.read()
    if connection.wire.failure is not None:
        raise connection.wire.failure
