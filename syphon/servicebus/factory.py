"""Makes clients, connections and administrations of a namespace from its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from azure.core.credentials import TokenCredential
from azure.servicebus import ServiceBusClient, TransportType

from syphon.config import Credential, SideSettings, Transport, Via
from syphon.model import ConnectionString, NotAuthorized
from syphon.time_budget import ADMINISTRATION_TIMEOUT, HANDSHAKE_WITHIN, LONGEST_RECONNECT_DELAY, NOTICING_DELAY

from .administration import Administration
from .connection import Connection
from .namespace import Namespace
from .proxy_settings import HttpProxy
from .sdk_private_names import check_contract
from .sdk_sockets import EMULATOR_PORT, check_websockets

if TYPE_CHECKING:
    from .data_plane_administration import DataPlaneAdministration


def credential_of(kind: Credential) -> TokenCredential:
    """The credential of azure-identity, which is imported here: that is slow, and a connection string needs none."""
    from azure import identity

    makers = {
        Credential.DEFAULT: identity.DefaultAzureCredential,
        Credential.MANAGED_IDENTITY: identity.ManagedIdentityCredential,
        Credential.WORKLOAD_IDENTITY: identity.WorkloadIdentityCredential,
        Credential.ENVIRONMENT: identity.EnvironmentCredential,
        Credential.CLI: identity.AzureCliCredential,
    }
    try:
        made: TokenCredential = makers[kind]()
    except ValueError as error:  # a setting that this kind needs is missing
        why = str(error).partition("\n")[0]
        raise NotAuthorized(f"The credential '{kind}' cannot be used here: {why}") from None
    return made


def client_of(side: SideSettings) -> ServiceBusClient:
    """The SDK's client, with its retries turned off: the caller decides what to retry."""
    check_contract()
    options: dict[str, Any] = {"retry_total": 0, "connection_verify": _ca_file(side)}
    if side.transport is Transport.WEBSOCKETS:
        check_websockets()
        options["transport_type"] = TransportType.AmqpOverWebsocket
    if (proxy := _proxy(side)) is not None:
        options["http_proxy"] = proxy.for_sdk()
    if side.connection_string is None:
        return ServiceBusClient(side.host, credential_of(side.credential or Credential.DEFAULT), **options)
    text = side.connection_string.get_secret_value()
    parsed = ConnectionString.parse(text)
    if side.transport is Transport.WEBSOCKETS and (parsed.port is not None or parsed.emulator):
        # The SDK ignores a port in the connection string, and an emulator has no WebSockets on port 80.
        host = side.host if parsed.port is not None else f"{side.host}:{EMULATOR_PORT}"
        options["custom_endpoint_address"] = f"sb://{host}"
    elif parsed.port is not None and not parsed.emulator:
        # With TLS the SDK ignores a port in the connection string; it uses one that is given in this way.
        options |= {"custom_endpoint_address": f"sb://{side.host}", "transport_type": TransportType.Amqp}
    return ServiceBusClient.from_connection_string(text, **options)


def _ca_file(side: SideSettings) -> str | None:
    return str(side.ca_file) if side.ca_file is not None else None


def _proxy(side: SideSettings) -> HttpProxy | None:
    if (settings := side.proxy) is None:
        return None
    password = None if settings.password is None else settings.password.get_secret_value()
    return HttpProxy(settings.host, settings.port, settings.username, password)


def namespace_of(
    side: SideSettings, entity: str, now: Callable[[], float] = time.monotonic, *, notices_return: bool = False
) -> Namespace:
    """A namespace whose first token is for `entity`. It opens a connection when one is first requested.

    With `notices_return` the end of an outage is noticed within five seconds, however long the outage was (D16). It is
    for a listener: one connection for a pair may try that often, and not each slot.
    """
    clients = _Clients(side)
    handshake = HANDSHAKE_WITHIN if notices_return else None

    def connect() -> Connection:
        client = clients.current()
        try:
            return Connection(client, entity, handshake_within=handshake, credential=clients.credential)
        except NotAuthorized:
            if clients.current() is client:
                raise
        # The key was rotated while we came with the old one.
        return Connection(clients.current(), entity, handshake_within=handshake, credential=clients.credential)

    longest_delay = NOTICING_DELAY if notices_return else LONGEST_RECONNECT_DELAY
    return Namespace(side.host, connect, now, clients.close, longest_delay)


class _Clients:
    """The SDK's client of a side, with the credentials as they are now: those of the namespace, and of the proxy.

    Both may be rotated while we run.
    """

    def __init__(self, side: SideSettings) -> None:
        self._side = side
        self._made: dict[tuple[str, HttpProxy | None], ServiceBusClient] = {}

    def current(self) -> ServiceBusClient:
        secret = self._side.connection_string
        credentials = "" if secret is None else secret.get_secret_value(), _proxy(self._side)
        if credentials not in self._made:
            self._made[credentials] = client_of(self._side)
        return self._made[credentials]

    def credential(self) -> Any:
        client: Any = self.current()  # it keeps the credential from the connection string in a private attribute
        return client._credential

    def close(self) -> None:
        for client in self._made.values():
            client.close()


def administration_of(
    side: SideSettings, via: Via, name: str, timeout: float = ADMINISTRATION_TIMEOUT
) -> Administration:
    """The namespace's administration: the data plane, or Resource Manager, where `name` is the resource's name."""
    if via is Via.ARM:
        from .arm_administration import ArmAdministration

        if (arm := side.arm) is None:
            raise ValueError(f"{name} has no arm settings, so Resource Manager cannot find it")
        return ArmAdministration(
            arm.subscription_id,
            arm.resource_group,
            name,
            credential_of(arm.credential),
            base_url=arm.endpoint,
            timeout=timeout,
            ca_file=_ca_file(side),
            proxy=_proxy(side),
        )
    return data_plane_of(side, timeout)


def data_plane_of(side: SideSettings, timeout: float = ADMINISTRATION_TIMEOUT) -> DataPlaneAdministration:
    """The namespace's own administration, which can change entities, too."""
    from .data_plane_administration import DataPlaneAdministration

    options: dict[str, Any] = {"timeout": timeout, "ca_file": _ca_file(side), "proxy": _proxy(side)}
    if side.connection_string is not None:
        return DataPlaneAdministration.from_connection_string(side.connection_string.get_secret_value(), **options)
    credential = credential_of(side.credential or Credential.DEFAULT)
    return DataPlaneAdministration.from_credential(side.host, credential, **options)


@contextmanager
def connected(side: SideSettings, entity: str) -> Iterator[Connection]:
    """A connection that is closed at the end of the block. Raises if it cannot be opened."""
    with client_of(side) as client:
        connection = Connection(client, entity)
        try:
            yield connection
        finally:
            connection.close()
