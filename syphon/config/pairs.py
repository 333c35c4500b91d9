"""The settings of pairs: how to reach both namespaces. Finds duplicates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, WithJsonSchema

from syphon.model import (
    BadConnectionString,
    ConnectionString,
    EntityPath,
    Extra,
    PathPatterns,
    SessionOrder,
    TimeToLive,
    first_label,
    is_host,
    is_this_machine,
)
from syphon.yaml_settings import (
    Between,
    Duration,
    InvalidSetting,
    Mistake,
    Settings,
    given,
    looks_secret,
    together,
    unique,
)

from .destinations import DestinationSettings, Text, check_renames


def _name(text: str) -> str:
    # The name becomes a part of queue names, a label of metrics and a folder of the ledger.
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?", text):
        raise InvalidSetting(Mistake("is not a valid name", "write up to 50 letters, digits and hyphens between them"))
    return text


def _connection_string(secret: SecretStr) -> SecretStr:
    try:
        ConnectionString.parse(secret.get_secret_value())
    except BadConnectionString as error:
        raise InvalidSetting(*(Mistake(flaw.text, flaw.remedy) for flaw in error.flaws)) from None
    return secret


def _host(text: str) -> str:
    if looks_secret(text) or "endpoint=" in text.lower():
        raise InvalidSetting(Mistake("is a connection string", "write it under connection_string"))
    if not is_host(text):
        raise InvalidSetting(Mistake("is not the host name of a namespace", _FULL_NAME))
    if "." not in text and ":" not in text and text.lower() != "localhost":
        raise InvalidSetting(Mistake("is not a full host name", _FULL_NAME))
    return text.lower().rstrip(".")


def _readable(file: Path) -> Path:
    if not file.is_file():
        raise InvalidSetting(Mistake("is not a file", "name the certificates' file, in PEM form"))
    return file.resolve()


_FULL_NAME = "write the full host name only, as in contoso.servicebus.windows.net"

Name = Annotated[str, AfterValidator(_name)]


class Credential(StrEnum):
    """The kind of identity, from azure-identity."""

    DEFAULT = "default"
    MANAGED_IDENTITY = "managed_identity"
    WORKLOAD_IDENTITY = "workload_identity"
    ENVIRONMENT = "environment"
    CLI = "cli"


def _url(text: str) -> str:
    if not re.fullmatch(r"https?://[^/\s]+/?", text):
        raise InvalidSetting(
            Mistake("is not the address of a Resource Manager", "write it as in https://management.azure.com")
        )
    if text.startswith("http://") and not is_this_machine(urlsplit(text).hostname or ""):
        raise InvalidSetting(Mistake("would send our token unencrypted", "write https://"))
    return text


class ArmSettings(Settings):
    """The namespace as a resource of Azure (P6)."""

    subscription_id: Text
    resource_group: Text
    credential: Credential = Credential.DEFAULT
    endpoint: Annotated[str, AfterValidator(_url)] | None = None
    """The Resource Manager of another cloud than the public one, or of an emulator."""


class Transport(StrEnum):
    """How AMQP travels: on its own port (5671), or in WebSockets on port 443, which more firewalls let through."""

    AMQP = "amqp"
    WEBSOCKETS = "websockets"


def _proxy_url(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value()
    mistake = Mistake("is not the address of an HTTP proxy", "write it as in http://proxy.contoso.com:3128")
    try:
        url = urlsplit(text)
        host, has_port = url.hostname or "", url.port is not None
    except ValueError:
        raise InvalidSetting(mistake) from None
    if url.username is not None or url.password is not None:
        raise InvalidSetting(Mistake("contains credentials", "write them under username and password"))
    if url.scheme == "https":
        remedy = "write http:// (the tunnel through it is encrypted by TLS)"
        raise InvalidSetting(Mistake("is an https:// proxy, which is not supported", remedy))
    if url.scheme != "http" or not is_host(host) or not has_port or url.path not in ("", "/") or url.query:
        raise InvalidSetting(mistake)
    return secret


def is_proxy_url(text: str) -> bool:
    try:
        _proxy_url(SecretStr(text))
    except InvalidSetting:
        return False
    return True


class ProxySettings(Settings):
    """The HTTP proxy on the way to a namespace."""

    url: Annotated[SecretStr, AfterValidator(_proxy_url)]
    """A secret, because people write credentials into it: no error may show them."""
    username: Text | None = None
    password: SecretStr | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url.get_secret_value()).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.url.get_secret_value()).port or 0


def _check_credentials(proxy: Any) -> Iterator[Mistake]:
    username, password = given(proxy, "username"), given(proxy, "password")
    if password is not None and username is None:
        yield Mistake("is given without a username", "add username, or remove it", ("password",))
    if username is not None and password is None:
        yield Mistake("is given without a password", "add password, or remove it", ("username",))
    if isinstance(username, str) and ":" in username:
        yield Mistake("contains a colon, which ends a user name in HTTP", "remove the colon", ("username",))


class SideSettings(Settings):
    """One side of a pair: a connection string, or a host name and a credential."""

    connection_string: Annotated[SecretStr, AfterValidator(_connection_string)] | None = None
    namespace: Annotated[str, AfterValidator(_host)] | None = None
    credential: Credential | None = None
    """`default` if a namespace is given without a credential."""
    name: Name | None = None
    """Its name in backlog queues and in Resource Manager, if that is not the first label of its host."""
    arm: ArmSettings | None = None
    ca_file: Annotated[Path, AfterValidator(_readable)] | None = None
    """The authority to trust (PEM) instead of the usual ones: of a proxy that inspects TLS, or of an emulator."""
    transport: Transport = Transport.AMQP
    proxy: Annotated[ProxySettings, together(_check_credentials)] | None = None

    @property
    def host(self) -> str:
        """The host name, with the port where one is given."""
        if self.connection_string is None:
            return self.namespace or ""
        parsed = ConnectionString.parse(self.connection_string.get_secret_value())
        host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
        return host if parsed.port is None else f"{host}:{parsed.port}"


def _check_access(side: Any) -> Iterator[Mistake]:
    string, namespace, credential = (given(side, key) for key in ("connection_string", "namespace", "credential"))
    if not isinstance(side, dict | SideSettings):
        return
    if string is None and namespace is None:
        yield Mistake("has neither connection_string nor namespace", "add one of them")
    if string is not None and namespace is not None:
        yield Mistake("is given together with a connection_string", "keep one of them", ("namespace",))
    elif string is not None and credential is not None:
        yield Mistake("is given together with a connection_string, which has its own key", "remove it", ("credential",))


def _check_transport(side: Any) -> Iterator[Mistake]:
    is_websockets = given(side, "transport") == Transport.WEBSOCKETS
    if given(side, "proxy") is not None and not is_websockets:
        yield Mistake("is given, but AMQP cannot pass an HTTP proxy", "add transport: websockets", ("proxy",))
    if is_websockets and Extra.WEBSOCKETS.missing:
        yield Mistake("needs packages that are not installed", Extra.WEBSOCKETS.remedy, ("transport",))


CheckedSide = Annotated[SideSettings, together(_check_access), together(_check_transport)]


class Via(StrEnum):
    """The API through which backlog queues are checked and created (P6)."""

    ADMIN = "admin"
    ARM = "arm"


class ProvisionSettings(Settings):
    via: Via = Via.ADMIN


def _not_boolean(value: Any) -> Any:
    if isinstance(value, bool):  # pydantic would accept it as 0 or 1
        raise InvalidSetting(Mistake("is not a number", "write digits only"))
    return value


AUTO = "auto"
"""A rate that congestion control finds."""


def _session_order(value: Any) -> Any:
    """`true`, `false` or `strict`, as the file has it."""
    if isinstance(value, bool):
        return SessionOrder.KEPT if value else None
    if value in (None, SessionOrder.STRICT) or isinstance(value, SessionOrder):
        return value
    raise ValueError("may be true, false or strict")


CANARY_QUEUE = "syphon-canary"


class CanarySettings(Settings):
    """The probes that a worker sends through the backlog, so that an idle pair is known to work."""

    every: Annotated[Duration, Between("1m", "7d")] = 300_000
    destination: Annotated[str, Field(min_length=1, max_length=260)] = CANARY_QUEUE
    """A queue of the primary for nothing but probes."""
    within: Annotated[Duration, Between("5s", "1h")] = 60_000
    """A probe that takes longer counts as lost."""


class PairSettings(Settings):
    """A primary, and the secondary that contains its backlog queues."""

    name: Name
    primary: CheckedSide
    secondary: CheckedSide
    backlog_queue_count: Annotated[int, Field(ge=1, le=10_000), BeforeValidator(_not_boolean)] = 10
    destinations: Annotated[DestinationSettings, together(check_renames)] = Field(default_factory=DestinationSettings)
    time_to_live: TimeToLive = TimeToLive.RESTORE
    rate: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_not_boolean)] | None,
        BeforeValidator(lambda value: None if value == AUTO else value),
        WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"enum": [AUTO]}, {"type": "null"}]}),
    ] = None
    """At most this many messages per second from all backlog queues together. None (`auto` in the file): what the
    service accepts."""
    rate_share: Annotated[float, Field(gt=0, le=1), BeforeValidator(_not_boolean)] = 0.8
    """The share of what a throttled namespace accepts that syphon uses. The rest is for its other clients."""
    session_order: Annotated[
        SessionOrder | None,
        BeforeValidator(_session_order),
        WithJsonSchema({"enum": [True, False, "strict"]}),
    ] = None
    """Whether messages of one session are forwarded in the order in which they were sent. The senders need the same
    setting. `strict`: a message that would be dead-lettered stays in the backlog, and holds up its session."""
    provision: ProvisionSettings = Field(default_factory=ProvisionSettings)
    canary: CanarySettings | None = None
    """None: the worker sends no probes."""

    @property
    def primary_entity(self) -> str:
        """An entity of the primary whose token opens the connection: a policy may cover a single queue."""
        named = next((path for path in self.destinations.allow if not any(mark in path for mark in "*?[")), "")
        return self.destinations.renames.actual(EntityPath.of(named)).name


def _check_sides(pair: Any) -> Iterator[Mistake]:
    primary, secondary = _address(given(pair, "primary")), _address(given(pair, "secondary"))
    if primary is not None and primary == secondary:
        yield Mistake(
            "is the same namespace as primary", "name one that is available when the primary is not", ("secondary",)
        )
    if given(given(pair, "provision"), "via") == Via.ARM and given(given(pair, "secondary"), "arm") is None:
        remedy = "add arm with subscription_id and resource_group to the secondary"
        yield Mistake("needs the secondary's place in Resource Manager", remedy, ("provision", "via"))


def _check_canary(pair: Any) -> Iterator[Mistake]:
    """A canary whose probes would be dead-lettered proves nothing."""
    canary, allow = given(pair, "canary"), given(given(pair, "destinations"), "allow")
    path = given(canary, "destination") or CANARY_QUEUE
    if canary is not None and isinstance(allow, list) and isinstance(path, str):
        patterns = [pattern for pattern in allow if isinstance(pattern, str)]
        if len(patterns) == len(allow) and not PathPatterns.of(patterns).fit(EntityPath.of(path)):
            yield Mistake(f"needs '{path}' in destinations.allow", "add it there, or name another queue", ("canary",))


USUAL_PORT = 5671


def _address(side: Any) -> tuple[str, int | None] | None:
    """Host and port of a side, as far as raw data shows them. Two namespaces of one host have two ports."""
    string, namespace = given(side, "connection_string"), given(side, "namespace")
    text = string.get_secret_value() if isinstance(string, SecretStr) else string
    if isinstance(text, str):
        try:
            parsed = ConnectionString.parse(text)
        except BadConnectionString:
            return None
        return parsed.host.rstrip("."), None if parsed.port == USUAL_PORT else parsed.port
    return (namespace.lower().rstrip("."), None) if isinstance(namespace, str) and namespace else None


def _check_backlogs(pairs: Any) -> Iterator[Mistake]:
    """Finds pairs with the same backlog: each would receive the other's messages and send them to its own primary."""
    seen: dict[tuple[object, ...], int] = {}
    for index, pair in enumerate(pairs if isinstance(pairs, list) else ()):
        primary, secondary = _address(given(pair, "primary")), _address(given(pair, "secondary"))
        label = given(given(pair, "primary"), "name") or (primary and first_label(primary[0])) or given(pair, "name")
        if secondary is None or not isinstance(label, str):
            continue
        first = seen.setdefault((label.lower(), secondary), index)
        if first != index:
            text = f"has the same backlog queues as pairs[{first}]: {label}/x-servicebus-transfer/0 and on"
            yield Mistake(text, "remove one of the two, or give its primary another name", (index,))


Pairs = Annotated[
    list[Annotated[PairSettings, together(_check_sides), together(_check_canary)]],
    unique("name", "pair"),
    together(_check_backlogs),
    Field(min_length=1),
]
