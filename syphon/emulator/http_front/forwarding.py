"""Where entities forward to: the service writes a full address, a description has a path in the same namespace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from aiohttp import web

from ..broker.descriptions import Claim, QueueDescription, SubscriptionDescription
from ..broker.refusals import BadArgument
from .directory import Directory

Forwarding = TypeVar("Forwarding", QueueDescription, SubscriptionDescription)

_PERMISSION = {
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_lettered_messages_to": "ServiceBusDlqSupplementaryAuthorization",
}
"""The header in which a client shows that it may send where the entity is to forward."""


def with_local_targets(entity: Forwarding, request: web.Request, directory: Directory) -> Forwarding:
    """The description with paths for addresses. Refused: another namespace's, and where the client may not send."""
    targets: dict[str, Any] = {}
    for setting, header in _PERMISSION.items():
        address: str | None = getattr(entity, setting)
        if address is None:
            continue
        targets[setting] = path = _path(address, request, directory)
        permission = request.headers.get(header) or request.headers.get("Authorization")
        directory.authorize_http(permission, path, Claim.SEND)
    return replace(entity, **targets) if targets else entity


def _path(address: str, request: web.Request, directory: Directory) -> str:
    if "://" not in address:
        return address.strip("/")
    parts = urlsplit(address)
    host = (parts.hostname or "").lower()
    # Clients know the namespace by whatever name they reach it under, and by its own.
    ours = {_hostname(request.host), _hostname(directory.host), directory.name.lower()}
    if host not in ours and host.partition(".")[0] != directory.name.lower():
        raise BadArgument(
            f"SubCode=40000. '{address}' is in another namespace than '{directory.name}': forward to an entity in the "
            "same one."
        )
    return unquote(parts.path).strip("/")


def _hostname(host: str) -> str:
    return (urlsplit(f"//{host}").hostname or "").lower()
