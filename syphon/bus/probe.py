"""Trying a door without going through it: whether a link to an entity could be opened, with the rights we have."""

from __future__ import annotations

from collections.abc import Callable

from syphon.model import DestinationSilent, SyphonError

from .connection import Connection
from .links import LinkState, RawLink, RawReceiver, RawSender
from .polling import wait_for_traffic

ANSWER_WITHIN = 15.0


def try_sender(connection: Connection, path: str) -> SyphonError | None:
    """Why messages could not be sent to an entity; None if they could. None is sent."""
    return _try(connection, path, lambda: RawSender(connection.wire, path))


def try_receiver(connection: Connection, path: str) -> SyphonError | None:
    """Why messages could not be received from an entity; None if they could. None is asked for."""
    return _try(connection, path, lambda: RawReceiver(connection.wire, path))


def _try(connection: Connection, path: str, attach: Callable[[], RawLink]) -> SyphonError | None:
    wire = connection.wire
    deadline = wire.now() + ANSWER_WITHIN
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
        return DestinationSilent(f"{wire.name}: '{path}' has not answered for {ANSWER_WITHIN:.0f} seconds.")
    except SyphonError as error:
        return error
    finally:
        if link is not None:
            link.close()
            wire.flush()
