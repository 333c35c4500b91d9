"""From settings to what can be talked to: clients, connections and administrations of a namespace."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from azure.core.credentials import TokenCredential
from azure.servicebus import ServiceBusClient, TransportType

from syphon.config import Credential, NamespaceSettings, Via
from syphon.model import ConnectionString, NotAuthorized

from .administration import OPERATION_TIMEOUT, Administration
from .connection import Connection
from .namespace import Namespace
from .sdk_internals import check_contract


def credential_of(kind: Credential) -> TokenCredential:
    """Who we are. azure-identity takes a while to import, and a connection string needs none of it."""
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
    except ValueError as error:  # a setting that this kind needs is not there
        why = str(error).partition("\n")[0]
        raise NotAuthorized(f"The credential '{kind}' cannot be used here: {why}") from None
    return made


def client_of(side: NamespaceSettings) -> ServiceBusClient:
    """The SDK's client, without retries of its own: who uses it decides what is tried again."""
    check_contract()
    options: dict[str, Any] = {"retry_total": 0, "connection_verify": _trusted(side)}
    if side.connection_string is None:
        return ServiceBusClient(side.host, credential_of(side.credential or Credential.DEFAULT), **options)
    text = side.connection_string.get_secret_value()
    given = ConnectionString.parse(text)
    if given.port is not None and not given.emulator:
        # With TLS the SDK takes the usual port whatever stands there, unless it is told in this way.
        options |= {"custom_endpoint_address": f"sb://{side.host}", "transport_type": TransportType.Amqp}
    return ServiceBusClient.from_connection_string(text, **options)


def _trusted(side: NamespaceSettings) -> str | None:
    return str(side.ca_file) if side.ca_file is not None else None


def namespace_of(side: NamespaceSettings, entity: str, now: Callable[[], float] = time.monotonic) -> Namespace:
    """A namespace to be used. Its first token is for `entity`; nothing is opened before somebody asks."""
    client = functools.cache(lambda: client_of(side))

    def let_go() -> None:
        if client.cache_info().currsize:
            client().close()

    return Namespace(side.host, lambda: Connection(client(), entity), now, let_go)


def administration_of(
    side: NamespaceSettings, via: Via, name: str, timeout: float = OPERATION_TIMEOUT
) -> Administration:
    """The namespace's administration: over the data plane, or (with `name`, the resource's) Resource Manager."""
    if via is Via.ARM:
        from .arm import ArmAdministration

        if (arm := side.arm) is None:
            raise ValueError(f"nothing says where Resource Manager has {name}")
        return ArmAdministration(
            arm.subscription_id,
            arm.resource_group,
            name,
            credential_of(arm.credential),
            base_url=arm.endpoint,
            timeout=timeout,
            ca_file=_trusted(side),
        )
    from .data_plane import DataPlaneAdministration

    if side.connection_string is not None:
        secret = side.connection_string.get_secret_value()
        return DataPlaneAdministration.from_connection_string(secret, timeout=timeout, ca_file=_trusted(side))
    credential = credential_of(side.credential or Credential.DEFAULT)
    return DataPlaneAdministration.from_credential(side.host, credential, timeout=timeout, ca_file=_trusted(side))


@contextmanager
def connected(side: NamespaceSettings, entity: str) -> Iterator[Connection]:
    """A connection for as long as it is needed. Raises what stands in the way."""
    with client_of(side) as client:
        connection = Connection(client, entity)
        try:
            yield connection
        finally:
            connection.close()
