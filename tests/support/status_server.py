"""A status server without a worker, and a bare HTTP client: it sends exactly the given bytes, also malformed ones."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syphon.config import Config
from syphon.status.logs import RecentEvents
from syphon.status.observer import Observer
from syphon.status.operator_api import DeadLetterApi, OperatorApis, PauseApi, WorkerApi
from syphon.status.status_server import StatusServer
from syphon.status.telemetry import Telemetry
from syphon.worker.pauses import Pauses

PAIRS = [
    {"name": name, "primary": {"namespace": f"{name}.example"}, "secondary": {"namespace": f"{name}-dr.example"}}
    for name in ("contoso", "fabrikam")
]


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: str


@dataclass
class Served:
    port: int
    observer: Observer
    pauses: Pauses
    host: str = "127.0.0.1"

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, host: str | None = None, **headers: str
    ) -> Answer:
        """Sends a whole request, and returns the answer."""
        fields = {"Host": host or f"{self.host}:{self.port}"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None:
            fields["Content-Length"] = str(len(body.encode()))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", body or ""]
        return answer_of(self.say("\r\n".join(lines).encode()))

    def say(self, text: bytes) -> bytes:
        """Sends these bytes, and returns all bytes until the server closes the connection."""
        with self.connect() as connection:
            with suppress(ConnectionError):  # the server may close before it has read everything
                connection.sendall(text)
            return rest_of(connection)

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=30)


def rest_of(connection: socket.socket) -> bytes:
    heard = b""
    try:
        while part := connection.recv(65536):
            heard += part
    except ConnectionResetError:
        pass
    return heard


def answer_of(heard: bytes) -> Answer:
    head, _, body = heard.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), headers, body.decode())


@contextmanager
def served(
    listen: str = "127.0.0.1:0",
    token: str | None = None,
    state: Path | None = None,
    pairs: Sequence[Mapping[str, Any]] = PAIRS,
) -> Iterator[Served]:
    config = Config.model_validate({"pairs": pairs, "status": {"listen": listen, "token": token}})
    pauses = Pauses(state)
    observer = Observer(config, pauses, RecentEvents())
    telemetry = Telemetry(config, observer)
    try:
        apis = OperatorApis(PauseApi(config.pairs, pauses), DeadLetterApi(config.pairs), WorkerApi())
        with (
            closing(apis.dead_letters),
            StatusServer(config.status, observer, apis, telemetry.prometheus) as server,
        ):
            yield Served(server.port, observer, pauses)
    finally:
        telemetry.close()
