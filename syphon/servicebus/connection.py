"""A connection to one namespace: its wire with its tokens.

`try_sender` and `try_receiver` attach a link and close it again, to find out whether our rights suffice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from azure.servicebus import ServiceBusClient

from syphon.model import DestinationSilent, SyphonError
from syphon.time_budget import ATTACH_WITHIN, OPEN_WITHIN

from .cbs_tokens import Tokens
from .clocks_and_threads import wait_for_traffic
from .links import LinkState, RawLink, RawReceiver, RawSender
from .sdk_sockets import open_socket
from .wire_session import Wire


class Connection:
    """An open connection. Exactly one thread uses it."""

    is_isolating = False
    """Its user tries something that may cut it. Then it is reopened without a delay."""

    def __init__(
        self,
        client: ServiceBusClient,
        entity: str,
        timeout: float = OPEN_WITHIN,
        now: Callable[[], float] = time.monotonic,
        handshake_within: float | None = None,
        credential: Callable[[], Any] | None = None,
    ) -> None:
        """`credential` gives the credential for tokens, which may change; by default, it is the client's own."""
        sdk: Any = client  # it keeps the credential from the connection string in a private attribute
        self.host: str = client.fully_qualified_namespace
        self.wire = Wire(open_socket(client, entity, timeout, handshake_within), self.host, now)
        self.tokens = Tokens(self.wire, self.host, credential or (lambda: sdk._credential))

    def read(self) -> None:
        self.wire.read()
        self.tokens.work()

    def wait(self, seconds: float) -> None:
        """Writes pending frames, and waits for traffic."""
        wait_for_traffic([self.wire], seconds)

    def tick(self) -> None:
        self.wire.tick()
        self.tokens.work()

    def close(self) -> None:
        self.tokens.close()
        self.wire.close()


def try_sender(connection: Connection, path: str) -> SyphonError | None:
    """The reason why messages cannot be sent to an entity; None if they can. Sends no message."""
    return _try_link(connection, path, lambda: RawSender(connection.wire, path))


def largest_accepted(connection: Connection, path: str) -> int | SyphonError:
    """The bytes of the largest message that an entity takes; or the reason why messages cannot be sent to it."""
    senders: list[RawSender[object]] = []

    def attach() -> RawSender[object]:
        senders.append(RawSender(connection.wire, path))
        return senders[-1]

    error = _try_link(connection, path, attach)
    return senders[-1].max_size if error is None else error


def try_receiver(connection: Connection, path: str) -> SyphonError | None:
    """The reason why messages cannot be received from an entity; None if they can. Requests no message."""
    return _try_link(connection, path, lambda: RawReceiver(connection.wire, path))


def _try_link(connection: Connection, path: str, attach: Callable[[], RawLink]) -> SyphonError | None:
    wire = connection.wire
    deadline = wire.now() + ATTACH_WITHIN
    link: RawLink | None = None
    try:
        while wire.now() < deadline:
            if wire.failure is not None:
                return wire.failure
            if link is None and connection.tokens.allow(path):
                link = attach()
            if link is not None and link.state is not LinkState.ATTACHING:
                return link.error
            wait_for_traffic([wire], 0.2)
            connection.read()
        return DestinationSilent(f"{wire.name}: '{path}' has not answered for {ATTACH_WITHIN:.0f} seconds.")
    except SyphonError as error:
        return error
    finally:
        if link is not None:
            link.close()
            wire.flush()
