"""What a request asks for: which API, which entity, which page of a list, and where an entity forwards.

Three APIs share a port. The namespace's own API begins at the root, where a path is an entity path with its slashes.
Paths of Azure Resource Manager begin with an Azure subscription and have a fixed number of segments, so they write
the slashes of a name as tildes. The emulator's own routes are at a path that no entity can have.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from aiohttp import web

from ..broker import (
    BadArgument,
    BrokerNamespace,
    Claim,
    EntityNotFound,
    QueueDescription,
    SubscriptionDescription,
    Unauthorized,
    VirtualHosts,
    key_name,
)

_CONTROL = "/$emulator/"
HEALTH = "/health"
"""As in Microsoft's emulator: Testcontainers modules wait for it."""
_RESOURCE_MANAGER = re.compile(r"/subscriptions/[^/]+/(resourceGroups|providers)/", re.IGNORECASE)
_BELOW_TOPIC = re.compile(
    r"(?P<topic>.+?)/subscriptions(/(?P<subscription>[^/]+)(?P<rules>/rules(/(?P<rule>[^/]+))?)?)?", re.IGNORECASE
)
_RESOURCE = re.compile(
    r"(?P<namespace_id>/subscriptions/[^/]+/resourceGroups/(?P<group>[^/]+)"
    r"/providers/Microsoft\.ServiceBus/namespaces/(?P<namespace>[^/]+))"
    r"(/(?P<kind>queues|topics)(/(?P<name>[^/]+))?)?/?",
    re.IGNORECASE,
)


def is_control(path: str) -> bool:
    return path.startswith(_CONTROL)


def is_page(request: web.Request) -> bool:
    """Whether a browser asks for the page. Clients get an empty feed at the same path, as on Azure."""
    is_read = request.path == "/" and request.method in ("GET", "HEAD") and "Authorization" not in request.headers
    return is_read and "text/html" in request.headers.get("Accept", "")


def is_health(request: web.Request) -> bool:
    """Whether a request asks for the health. With a token it asks for a queue of that name."""
    return request.path == HEALTH and request.method in ("GET", "HEAD") and "Authorization" not in request.headers


def is_resource_manager(path: str) -> bool:
    return _RESOURCE_MANAGER.match(path) is not None


def entity_of(path: str) -> str:
    """The path of the entity that a request names, for counters and faults. Empty for the namespace."""
    if not is_resource_manager(path):
        return path.strip("/")
    resource = ResourcePath.of(path)
    return resource.entity if resource else ""


def namespace_of(request: web.Request, hosts: VirtualHosts) -> BrokerNamespace:
    """The namespace that a request is for. One that does not exist yet is created for a client that shows a key."""
    header = request.headers.get("Authorization", "")
    credentials = basic_credentials(header)
    name = credentials[0] if credentials else key_name(header)
    if name is None and is_control(request.path):
        name = request.query.get("namespace")
    namespace = hosts.find(name, hostname(request.host))
    if not hosts.exists(namespace):
        if credentials:
            namespace.access.plain(*credentials)
        elif header:
            namespace.access.token(header, f"sb://{hostname(request.host)}{request.path}")
        else:
            raise EntityNotFound(f"No client has used namespace '{namespace.name}' yet.")
        hosts.keep(namespace)
    return namespace


def basic_credentials(header: str) -> tuple[str, str] | None:
    """The name and key of a policy in an Authorization header, or None."""
    if not header.startswith("Basic "):
        return None
    try:
        name, _, key = base64.b64decode(header[6:], validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise Unauthorized("The Authorization header is not the name and key of a policy.") from None
    return name, key


@dataclass(frozen=True, slots=True)
class AdministrationPath:
    """A path of the administration API: an entity, the subscriptions of a topic, the rules of a subscription, or one of
    these."""

    path: str
    topic: str | None = None
    subscription: str | None = None
    rules: bool = False
    rule: str | None = None

    @classmethod
    def of(cls, path: str) -> AdministrationPath:
        path = path.strip("/")
        found = _BELOW_TOPIC.fullmatch(path)
        if found is None:
            return cls(path)
        return cls(path, found["topic"], found["subscription"], found["rules"] is not None, found["rule"])

    @property
    def subscription_path(self) -> str:
        return f"{self.topic}/subscriptions/{self.subscription}"


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A path of Resource Manager: a namespace, its queues or topics, or one of them."""

    namespace_id: str
    group: str
    namespace: str
    kind: str = ""
    name: str = ""

    @classmethod
    def of(cls, path: str) -> ResourcePath | None:
        found = _RESOURCE.fullmatch(path)
        if found is None:
            return None
        return cls(
            found["namespace_id"],
            found["group"],
            found["namespace"],
            (found["kind"] or "").lower(),
            found["name"] or "",
        )

    @property
    def entity(self) -> str:
        return self.name.replace("~", "/")


LARGEST_PAGE = 100
LARGEST_NUMBER = 2**31 - 1

Item = TypeVar("Item", covariant=True)


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, and the start of the next page if there is one."""

    items: Sequence[Item]
    top: int
    following: int | None


def page_of(request: web.Request, items: Sequence[Item]) -> Page[Item]:
    """The page that a request asks for (`$skip`, `$top`): at most 100 items."""
    skip = _number(request, "$skip", 0, lowest=0)
    top = min(_number(request, "$top", LARGEST_PAGE, lowest=1), LARGEST_PAGE)
    end = skip + top
    return Page(items[skip:end], top, end if end < len(items) else None)


def _number(request: web.Request, name: str, default: int, lowest: int) -> int:
    given = request.query.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,10}", given) or not lowest <= int(given) <= LARGEST_NUMBER:
        raise BadArgument(f"{name} was given as '{given[:50]}': give a whole number from {lowest} to {LARGEST_NUMBER}.")
    return int(given)


Forwarding = TypeVar("Forwarding", QueueDescription, SubscriptionDescription)

_PERMISSION = {
    "forward_to": "ServiceBusSupplementaryAuthorization",
    "forward_dead_lettered_messages_to": "ServiceBusDlqSupplementaryAuthorization",
}
"""The header with a token that allows the client to send to the forwarding target."""


def with_local_targets(entity: Forwarding, request: web.Request, namespace: BrokerNamespace) -> Forwarding:
    """Replaces full addresses of forwarding targets by paths. Refuses another namespace, and a target to which the
    client may not send."""
    targets: dict[str, Any] = {}
    for setting, header in _PERMISSION.items():
        address: str | None = getattr(entity, setting)
        if address is None:
            continue
        targets[setting] = path = _path(address, request, namespace)
        permission = request.headers.get(header) or request.headers.get("Authorization")
        namespace.authorize_http(permission, path, Claim.SEND)
    return replace(entity, **targets) if targets else entity


def _path(address: str, request: web.Request, namespace: BrokerNamespace) -> str:
    if "://" not in address:
        return address.strip("/")
    parts = urlsplit(address)
    host = (parts.hostname or "").lower()
    # Clients know the namespace by the host name they use and by its own name.
    ours = {hostname(request.host), hostname(namespace.host), namespace.name.lower()}
    if host not in ours and host.partition(".")[0] != namespace.name.lower():
        raise BadArgument(
            f"SubCode=40000. '{address}' is in another namespace than '{namespace.name}': forward to an entity in the "
            "same one."
        )
    return unquote(parts.path).strip("/")


def hostname(host: str) -> str:
    """The name in a Host header: without the port."""
    return (urlsplit(f"//{host}").hostname or "").lower()
