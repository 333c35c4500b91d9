"""Setting a pair up (F1): its two clients, the check of the credentials, and the backlog queues.

Wrong credentials, names or queues raise an error here, and not only in the first outage.

Only provisioning needs the Manage claim: the secondary's own credential has it, or another one that the application
gives. An application that has none uses queues that others have made.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient

from syphon import backlog, servicebus  # what only some calls need is loaded by the first that uses it
from syphon.backlog import (
    NoBacklogQueue,
    Provisioned,
    ProvisionedQueue,
    ProvisionState,
    QueueName,
    backlog_queues,
    plan,
    primary_label,
    provision,
)
from syphon.model import (
    BadConnectionString,
    ConnectionString,
    DestinationMissing,
    DestinationSilent,
    EntityPath,
    Faulted,
    Interrupted,
    NotAuthorized,
    SyphonError,
)
from syphon.servicebus import AdministrationFailed, ConnectionDetails, check_contract, connection_details
from syphon.time_budget import PAIRING_ANSWER_WITHIN, PARTITIONED_TIMEOUT

from .pair_options import BadOptions, PairOptions

if TYPE_CHECKING:
    import asyncio

    from syphon.servicebus import DataPlaneAdministration

log = logging.getLogger(__name__)

TOKEN_SCOPE = "https://servicebus.azure.net/.default"  # noqa: S105  not a token, but what to ask for one


@dataclass(frozen=True, slots=True)
class NamespaceClient:
    """The SDK's client of one namespace of a pair, and whether the pair has made it and must close it."""

    client: Any
    is_owned: bool

    @classmethod
    def of(cls, given: Any, client_type: Any, which: str) -> NamespaceClient:
        """Takes a connection string, a host name with its credential, or a client of that type."""
        check_contract()
        if isinstance(given, client_type):
            return cls(given, False)
        if isinstance(given, str):
            try:
                ConnectionString.parse(given)
            except BadConnectionString as error:
                raise ValueError(f"The {which} cannot be used: {error}") from None
            return cls(client_type.from_connection_string(given), True)
        if isinstance(given, tuple) and len(given) == 2:
            return cls(client_type(*given), True)
        raise TypeError(
            f"The {which} is a connection string, a pair of host name and credential, or a {client_type.__module__}."
            f"{client_type.__name__}. Received instead: {type(given).__name__}"
        )


def set_up(
    primary: ServiceBusClient,
    secondary: ServiceBusClient,
    options: PairOptions,
    administration: ConnectionDetails | None,
    sleep: Callable[[float], None] = time.sleep,
) -> Provisioned:
    """Checks the primary's credentials, and provisions the backlog queues with the credential of `administration`.

    Without one it only checks which queues exist: others have provisioned them. Raises an error if the credentials are
    refused, or if there is no queue (P5).
    """
    here, there = connection_details(primary), connection_details(secondary)
    if here.host == there.host:
        raise ValueError(f"The primary and the secondary are the same namespace, {here.host}: a pair needs two.")
    label = primary_label(here.host, "", options.primary_name)
    if not label:
        raise BadOptions(f"primary_name is not set, and {here.host} has no name to give to its backlog queues: set it")
    _check_credentials(primary, here)
    names = [queue.name for queue in backlog_queues(label, options.backlog_queue_count)]
    if administration is None:
        return find_queues(secondary, names)
    with administration_with(administration) as api:
        return provision(api, plan(api, names), sleep=sleep)


# --- credentials -----------------------------------------------------------------------------------------------------


def sync_client(details: ConnectionDetails, loop: asyncio.AbstractEventLoop) -> ServiceBusClient:
    """A sync client of the namespace that an asyncio client uses. The asyncio client's credential lives on `loop`."""
    text = details.connection_string()
    if text is not None:
        return ServiceBusClient.from_connection_string(text, retry_total=0, **details.options())
    credential: Any = blocking_details(details, loop).credential
    return ServiceBusClient(details.host, credential, retry_total=0, **details.options())


def blocking_details(details: ConnectionDetails, loop: asyncio.AbstractEventLoop) -> ConnectionDetails:
    """The same details with a credential that a thread can use. Keys and signatures need no network."""
    is_async = inspect.iscoroutinefunction(getattr(details.credential, "get_token", None))
    if details.connection_string() is not None or not is_async:
        return details
    return dataclasses.replace(details, credential=BlockingCredential(details.credential, loop))


class BlockingCredential:
    """An asyncio credential of azure-identity, for use in a thread. Its loop must be free to answer."""

    def __init__(self, credential: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._credential = credential
        self._loop = loop

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        async def ask() -> AccessToken:
            token: AccessToken = await self._credential.get_token(*scopes, **options)
            return token

        import asyncio  # the sync API has no use for it

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(PAIRING_ANSWER_WITHIN)


def _check_credentials(client: ServiceBusClient, details: ConnectionDetails) -> None:
    """Raises an error if the credentials are wrong.

    The namespace checks a key when a connection opens. For a token credential, the only check here is that it gives a
    token: the service decides for each entity what the token allows.
    """
    outcome: list[Exception | None] = []

    def ask() -> None:
        try:
            if details.connection_string() is None:
                _fetch_token(details)
            else:
                servicebus.Connection(client, "", PAIRING_ANSWER_WITHIN).close()
        except Exception as error:
            outcome.append(error)
        else:
            outcome.append(None)

    # In its own thread: the SDK waits forever for a host that accepts a connection and then stays silent.
    asking = threading.Thread(target=ask, name=f"check {details.host}", daemon=True)
    asking.start()
    asking.join(PAIRING_ANSWER_WITHIN)
    error = outcome[0] if outcome else TimeoutError(f"no answer within {PAIRING_ANSWER_WITHIN:.0f} s")
    if isinstance(error, Faulted):
        raise error
    if error is not None:
        log.warning("Could not verify the credentials for %s (%s); continuing without the check.", details.host, error)


def find_fault(client: ServiceBusClient, entity: str) -> Faulted | None:
    """Why a namespace that was paired can no longer be used; None if it can be, or is only unavailable (C3).

    A key is checked as in pairing. The service may refuse a token for the whole namespace that it accepts for an
    entity, so a token is checked with the entity.
    """
    has_key = connection_details(client).connection_string() is not None
    try:
        servicebus.Connection(client, "" if has_key else entity, PAIRING_ANSWER_WITHIN).close()
    except Faulted as error:
        return error
    except Exception as error:
        log.debug("%s could not be checked: %s", client.fully_qualified_namespace, error)
    return None


def _fetch_token(details: ConnectionDetails) -> None:
    kind = ""
    try:
        details.credential.get_token(TOKEN_SCOPE)
    except Exception as error:  # its text may contain the request, and with it a secret: the error's type is enough
        kind = type(error).__name__
    if kind:
        raise NotAuthorized(
            f"{details.host}: the credential gives no token ({kind}). Check the credential and its environment."
        )


# --- who may manage the backlog queues -------------------------------------------------------------------------------


def administration_details(given: Any, secondary: ConnectionDetails, provision: bool) -> ConnectionDetails | None:
    """How to administer the secondary: as `secondary_administration` says, or else with the secondary's own credential.

    None if the application provisions nothing.
    """
    if not provision:
        if given is not None:
            raise ValueError("secondary_administration is given, and provision is False: leave one of them out.")
        return None
    if given is None:
        return secondary
    if isinstance(given, str):
        try:
            ConnectionString.parse(given)
        except BadConnectionString as error:
            raise ValueError(f"secondary_administration cannot be used: {error}") from None
        details = dataclasses.replace(
            connection_details(ServiceBusClient.from_connection_string(given)), ca_file=secondary.ca_file
        )
    elif isinstance(given, tuple) and len(given) == 2:
        host, credential = given
        details = ConnectionDetails(host.strip("/"), credential, secondary.plain, secondary.ca_file)
    else:
        raise TypeError(
            "secondary_administration is a connection string, or a pair of host name and credential. "
            f"Received instead: {type(given).__name__}"
        )
    if details.host.lower() != secondary.host.lower():
        raise ValueError(f"secondary_administration is for {details.host}, and the secondary is {secondary.host}.")
    return details


def administration_with(details: ConnectionDetails) -> DataPlaneAdministration:
    """The administration of a namespace."""
    text = details.connection_string()
    if text is not None:
        return servicebus.DataPlaneAdministration.from_connection_string(
            text, ca_file=details.ca_file, proxy=details.proxy
        )
    return servicebus.DataPlaneAdministration.from_credential(
        details.host, details.credential, ca_file=details.ca_file, proxy=details.proxy
    )


# --- queues that others have made ------------------------------------------------------------------------------------


def find_queues(secondary: ServiceBusClient, names: Sequence[QueueName]) -> Provisioned:
    """The backlog queues that accept messages from us: the Send claim is enough to find them.

    Raises an error if the credentials are refused, or if not one of the queues exists. An unavailable secondary is no
    error: then all queues count as found, and a queue that fails later is taken out of rotation (F4).
    """
    host = secondary.fully_qualified_namespace
    missing: tuple[QueueName, ...] = ()
    try:
        missing = tuple(_missing(secondary, names))
    except Faulted:
        raise
    except SyphonError as error:
        log.warning("Could not check the backlog queues of %s (%s); continuing without the check.", host, error)
    why = AdministrationFailed(f"{host} has no such queue. Create it, for instance with `syphon provision`.")
    dropped = tuple(ProvisionedQueue(name, ProvisionState.FAILED, because=why) for name in missing)
    if len(dropped) == len(names):
        raise NoBacklogQueue(host, dropped)
    existing = tuple(ProvisionedQueue(name, ProvisionState.EXISTS) for name in names if name not in missing)
    found = Provisioned(host, existing, dropped)
    for warning in found.warnings():
        log.warning(warning)
    _warn_of_merging(connection_details(secondary), found.names)
    return found


def _warn_of_merging(secondary: ConnectionDetails, names: Sequence[QueueName]) -> None:
    """Warns of each queue that detects duplicates (P3). Checks in a thread: only the Manage claim allows it."""

    def check() -> None:
        try:
            with administration_with(secondary) as administration:
                for queue in plan(administration, names).different:
                    for difference in queue.differences:
                        if difference.property == "requires_duplicate_detection":
                            log.warning(
                                "%s: queue %s is used unchanged, but %s", secondary.host, queue.name, difference
                            )
        except Exception as error:  # an application that provisions nothing need not have the claim
            log.info(
                "Could not check whether the backlog queues of %s have duplicate detection: %s", secondary.host, error
            )

    threading.Thread(target=check, name=f"check {secondary.host}", daemon=True).start()


def _missing(secondary: ServiceBusClient, names: Sequence[QueueName]) -> Iterator[QueueName]:
    connection = servicebus.Connection(secondary, names[0], PAIRING_ANSWER_WITHIN)
    try:
        for name in names:
            error = servicebus.try_sender(connection, name)
            if isinstance(error, DestinationMissing):
                yield name
            elif isinstance(error, Faulted | DestinationSilent) or connection.wire.failure is not None:
                raise error if error is not None else Interrupted(f"{connection.host}: the connection was lost.")
    finally:
        connection.close()


def is_in_backlog(secondary: ServiceBusClient, queues: Sequence[QueueName], path: str) -> bool:
    """Whether a backlog queue has a message for an entity of the primary. Needs the Listen claim."""
    connection, key = servicebus.Connection(secondary, queues[0], PAIRING_ANSWER_WITHIN), EntityPath.of(path).key
    try:
        return any(names(message.payload, key) for queue in queues for message in servicebus.peek(connection, queue))
    finally:
        connection.close()


def names(payload: bytes, key: str) -> bool:
    """Whether a message in the backlog names this entity (its key)."""
    path = backlog.destination_of(payload)
    return path is not None and path.key == key


# --- partitioned entities --------------------------------------------------------------------------------------------


def warn_if_partitioned(primary: ConnectionDetails, path: str, operation_timeout: float) -> None:
    """Logs a warning if the timeout is too short for the entity because it is partitioned (S8). Checks in a thread."""

    def check() -> None:
        try:
            with administration_with(primary) as administration:
                is_partitioned = administration.is_partitioned(path)
        except Exception as error:  # only the Manage claim allows the check, and an application need not have it
            log.info("Could not check whether '%s' is partitioned: %s", path, error)
            return
        if is_partitioned:
            log.warning(
                "'%s' is partitioned, and operation_timeout is %g s: a partitioned entity may need %g s. Set "
                "operation_timeout to that or more, or some sends fail that would have succeeded.",
                path,
                operation_timeout,
                PARTITIONED_TIMEOUT,
            )

    if operation_timeout < PARTITIONED_TIMEOUT:
        threading.Thread(target=check, name=f"check {path}", daemon=True).start()
