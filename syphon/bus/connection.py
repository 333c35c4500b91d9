"""A wire with its tokens: what a pump holds of one namespace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from azure.servicebus import ServiceBusClient

from .sdk_internals import open_socket
from .tokens import Tokens
from .wire import Wire

OPEN_WITHIN = 30.0


class Connection:
    """An open connection. One thread uses it, and only that one."""

    def __init__(
        self,
        client: ServiceBusClient,
        entity: str,
        timeout: float = OPEN_WITHIN,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        sdk: Any = client  # the credential it made of the connection string is on its private side
        self.host: str = client.fully_qualified_namespace
        self.wire = Wire(open_socket(client, entity, timeout), self.host, now)
        self.tokens = Tokens(self.wire, self.host, sdk._credential)

    def read(self) -> None:
        self.wire.read()
        self.tokens.work()

    def tick(self) -> None:
        self.wire.tick()
        self.tokens.work()

    def close(self) -> None:
        self.tokens.close()
        self.wire.close()
