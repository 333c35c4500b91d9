"""Messages of every language through backlog and drain: what must not change is compared byte by byte.

Each client sends its messages to the queue "typed" of an emulator process. From there they go, with the aliases of a
sender that has failed over, to a backlog queue, and one `syphon drain` forwards them to "orders".
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from syphon.amqp import Message, Section
from syphon.amqp.frames import Accepted
from syphon.backlog import to_backlog
from tests.conformance.wire import peeked
from tests.support.raw_client import Place, raw_client_at

SYPHON = (sys.executable, "-c", "from syphon.cli import main; main()")
KEPT = (
    Section.PROPERTIES,
    Section.APPLICATION_PROPERTIES,
    Section.DATA,
    Section.SEQUENCE,
    Section.VALUE,
    Section.FOOTER,
)
"""The sections that belong to the sender. The broker rewrites the header and the annotations for each delivery."""
BACKLOG = "contoso/x-servicebus-transfer/0"


class Pair:
    """Two namespaces of an emulator process, and the messages that went through them."""

    def __init__(self, ready: dict[str, Any], folder: Path) -> None:
        self.ready = ready
        self.strings = {each["name"]: each["connection_string"] for each in ready["namespaces"]}
        self.ports = {each["name"]: each["amqp_port"] for each in ready["namespaces"]}
        self._folder = folder
        self._sent: dict[str, list[bytes]] = {}

    def take(self, language: str) -> list[bytes]:
        """Takes the messages that a client has just sent, and puts them into the backlog queue."""
        sent = asyncio.run(self._to_backlog())
        self._sent[language] = sent
        return sent

    async def _to_backlog(self) -> list[bytes]:
        sent = await self._received("contoso", "typed")
        async with raw_client_at(Place("127.0.0.1", self.ports["contoso-dr"])) as client:
            sender = await client.attach_sender(BACKLOG)
            for payload in sent:
                outcome = await client.send(sender, to_backlog(_of_the_sender(payload), "orders"))
                assert outcome == Accepted(), outcome
        return sent

    async def _received(self, namespace: str, queue: str) -> list[bytes]:
        """Receives all messages of a queue."""
        found = []
        async with raw_client_at(Place("127.0.0.1", self.ports[namespace])) as client:
            receiver = await client.attach_receiver(queue, deletes=True)
            for _ in await peeked(client, queue, 250):
                client.grant(receiver, 1)
                found.append((await client.receive(receiver)).payload)
        return found

    def drain(self) -> dict[str, list[str]]:
        """Drains the backlog, and returns by language the messages that did not arrive as they were."""
        settings = self._folder / "config.yaml"
        sides = {side: {"name": side, "connection_string": self.strings[side]} for side in self.strings}
        pair = {
            "name": "contoso",
            "primary": sides["contoso"],
            "secondary": sides["contoso-dr"],
            "backlog_queue_count": 1,
        }
        settings.write_text(yaml.safe_dump({"pairs": [pair], "pipeline": {"master": "local[2]"}}))
        drained = subprocess.run(
            [*SYPHON, "drain", "-c", str(settings), "--yes"],
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
        )
        if drained.returncode:
            raise SystemExit(f"drain failed:\n{drained.stdout}{drained.stderr}")
        arrived = Counter(map(_kept, asyncio.run(self._received("contoso", "orders"))))
        problems: dict[str, list[str]] = {}
        for language, sent in self._sent.items():
            problems[language] = []
            for payload in sent:
                if arrived[_kept(payload)]:
                    arrived[_kept(payload)] -= 1
                else:
                    problems[language].append(f"{Message(payload).properties().message_id!r} did not arrive as it was")
        return problems


@contextmanager
def pair() -> Iterator[Pair]:
    queues = {"contoso": ["typed", "orders"], "contoso-dr": [BACKLOG]}
    namespaces = [
        {"name": name, "amqp_port": 0, "http_port": 0, "queues": [{"name": queue} for queue in of]}
        for name, of in queues.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "emulator.yaml"
        config.write_text(yaml.safe_dump({"namespaces": namespaces}))
        command = [*SYPHON, "emulator", "--json", "--tls", "--config", str(config)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                yield Pair(json.loads(process.stdout.readline()), Path(folder))
            finally:
                process.terminate()


def send(command: list[str], ca_file: str) -> str | None:
    """Lets a client send its messages, and returns its error."""
    environment = os.environ | {"NODE_EXTRA_CA_CERTS": ca_file}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)
    lines = ended.stdout.strip().splitlines()
    if ended.returncode or not lines:
        return (ended.stderr.strip().splitlines() or ["no output"])[-1][:300]
    result: dict[str, str | None] = json.loads(lines[-1])
    return result["types"]


def _of_the_sender(payload: bytes) -> bytes:
    """A delivery without what the broker has added."""
    message = Message(payload)
    mine = (span for span in message.spans if span.section in (Section.HEADER, *KEPT))
    return b"".join(payload[span.start : span.end] for span in mine)


def _kept(payload: bytes) -> bytes:
    message = Message(payload)
    return b"".join(payload[span.start : span.end] for span in message.spans if span.section in KEPT)


def property_count(payloads: list[bytes]) -> int:
    return sum(len(list(Message(payload).application_properties())) for payload in payloads)
