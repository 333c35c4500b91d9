"""The $cbs node: clients put their tokens here, and get what these open."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from syphon.amqp import Int

from ..broker.refusals import BadArgument, Refusal
from .requests import Reply, Request

if TYPE_CHECKING:
    from .connection import AmqpConnection

log = logging.getLogger(__name__)


class CbsNode:
    """Claims-based security for one connection."""

    def __init__(self, connection: AmqpConnection) -> None:
        self._connection = connection

    def answer(self, request: Request) -> Reply:
        if request.operation != "put-token":
            raise BadArgument(f"$cbs knows put-token, not '{request.operation}'.")
        address = request.application_properties.get("name")
        if not isinstance(request.body, str) or not isinstance(address, str):
            raise BadArgument("put-token wants the token as its body and the address as 'name'.")
        self._connection.grant(self._connection.namespace.access.token(request.body, address))
        return _reply(202, "Accepted")

    def lose_locks(self, request: Request) -> None:
        """A token is about no lock."""

    def failure(self, refusal: Refusal) -> Reply:
        log.info("namespace %s refused a token: %s", self._connection.namespace.name, refusal.description)
        return _reply(refusal.status, refusal.description)


def _reply(code: int, description: str) -> Reply:
    return Reply({"status-code": Int(code), "status-description": description})
