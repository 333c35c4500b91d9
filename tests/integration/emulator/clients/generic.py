"""What a generic AMQP client does, here qpid-proton: with transactions and a temporary queue.

`python generic.py PLACE`, where PLACE is JSON: host, port, policy and key. It prints a JSON object: for each part null,
or the error. It imports nothing of this project.

`python generic.py types PLACE` only sends messages with properties and bodies of every type to the queue "typed".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

import proton  # type: ignore[import-not-found]  # in an environment of its own
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler  # type: ignore[import-not-found]
from proton.reactor import Container  # type: ignore[import-not-found]
from proton.utils import BlockingConnection  # type: ignore[import-not-found]

WAIT = 20
QUEUE = "orders"


def connect(place: dict[str, Any]) -> BlockingConnection:
    url = f"amqp://{place['host']}:{place['port']}"
    return BlockingConnection(url, timeout=WAIT, user=place["policy"], password=place["key"], allowed_mechs="PLAIN")


def send(place: dict[str, Any]) -> None:
    connection = connect(place)
    sender = connection.create_sender(QUEUE)
    for body in ("one", "two"):
        sender.send(Message(body=body))
    connection.close()


def receive(place: dict[str, Any]) -> None:
    """Receives both messages, abandons one and completes both."""
    connection = connect(place)
    receiver = connection.create_receiver(QUEUE, credit=1)
    assert receiver.receive(timeout=WAIT).body == "one"
    receiver.release(delivered=True)
    found = []
    for _ in range(2):
        message = receiver.receive(timeout=WAIT)
        found.append((message.body, message.delivery_count))
        receiver.accept()
    assert sorted(found) == [("one", 1), ("two", 0)], found
    connection.close()


def temporary_queue(place: dict[str, Any]) -> None:
    """A request that names a temporary queue for its reply."""
    connection = connect(place)
    replies = connection.create_receiver(None, dynamic=True)
    connection.create_sender(QUEUE).send(Message(body="ask", reply_to=replies.link.remote_source.address))
    receiver = connection.create_receiver(QUEUE, credit=1)
    request = receiver.receive(timeout=WAIT)
    receiver.accept()
    connection.create_sender(request.reply_to).send(Message(body="answer"))
    assert replies.receive(timeout=WAIT).body == "answer"
    replies.accept()
    connection.close()


class Transactions(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """Sends two messages in a transaction that is rolled back, and two in one that is committed."""

    def __init__(self, place: dict[str, Any]) -> None:
        super().__init__()
        self.place = place
        self.outcomes: list[str] = []
        self.settled = 0

    def on_start(self, event: Any) -> None:
        url = f"amqp://{self.place['host']}:{self.place['port']}"
        self.connection = event.container.connect(
            url, user=self.place["policy"], password=self.place["key"], allowed_mechs="PLAIN", reconnect=False
        )
        self.sender = event.container.create_sender(self.connection, QUEUE)
        self.container = event.container
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.settled = 0
        for body in ("three", "four"):
            self.transaction.send(self.sender, Message(body=body))

    def on_settled(self, event: Any) -> None:
        if event.sender == self.sender:
            self.settled += 1
            if self.settled == 2:
                (self.transaction.commit if self.outcomes else self.transaction.abort)()

    def on_transaction_aborted(self, event: Any) -> None:
        self.outcomes.append("aborted")
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_committed(self, event: Any) -> None:
        self.outcomes.append("committed")
        self.connection.close()

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.outcomes.append("declare failed")
        self.connection.close()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.outcomes.append("commit failed")
        self.connection.close()


def transactions(place: dict[str, Any]) -> None:
    handler = Transactions(place)
    Container(handler).run()
    assert handler.outcomes == ["aborted", "committed"], handler.outcomes
    connection = connect(place)
    receiver = connection.create_receiver(QUEUE, credit=1)
    for body in ("three", "four"):
        assert receiver.receive(timeout=WAIT).body == body
        receiver.accept()
    connection.close()


def run(place: dict[str, Any]) -> dict[str, str | None]:
    parts: dict[str, Callable[[dict[str, Any]], None]] = {
        "send": send,
        "receive": receive,
        "temporary_queue": temporary_queue,
        "transactions": transactions,
    }
    results: dict[str, str | None] = {}
    for name, part in parts.items():
        try:
            part(place)
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"[:300]
            break  # later parts would find the messages of this one
        results[name] = None
    return results


def send_types(place: dict[str, Any]) -> dict[str, str | None]:
    types = {
        "string": "ärger",
        "binary": b"\xff\xfe",
        "symbol": proton.symbol("sym"),
        "true": True,
        "char": proton.char("c"),
        "byte": proton.byte(-128),
        "short": proton.short(-32768),
        "int": proton.int32(-5),
        "long": 2**40,
        "ubyte": proton.ubyte(255),
        "ushort": proton.ushort(65535),
        "uint": proton.uint(2**31),
        "ulong": proton.ulong(2**63),
        "float": proton.float32(1.5),
        "double": 1e300,
        "decimal32": proton.decimal32(7),
        "decimal64": proton.decimal64(7),
        "decimal128": proton.decimal128(bytes(15) + b"\x07"),
        "timestamp": proton.timestamp(1_767_323_045_678),
        "uuid": UUID(int=7),
        "null": None,
    }
    bodies = {"text": "plain", "data": b"a", "value": {"list": [1, "x"], "yes": True}, "list": [1, "x", None]}
    connection = connect(place)
    sender = connection.create_sender("typed")
    for name, body in bodies.items():
        message = Message(
            body=body, id=name, properties=types, ttl=3600, subject="s", group_id="s", reply_to="there", durable=True
        )
        message.inferred = isinstance(body, bytes)  # a data section
        sender.send(message)
    connection.close()
    return {"types": None}


if __name__ == "__main__":
    where = json.loads(sys.argv[-1])
    print(json.dumps(send_types(where) if sys.argv[1] == "types" else run(where)))
