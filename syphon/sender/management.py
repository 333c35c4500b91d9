"""Who may manage the backlog queues: the secondary's own credential, another one, or nobody in this application (F1).

Only provisioning needs the Manage claim. An application that has none uses queues that others have made.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from azure.servicebus import ServiceBusClient

from syphon.backlog import Dropped, Found, NoBacklogQueue, Provisioned, QueueName, plan
from syphon.model import (
    BadConnectionString,
    ConnectionString,
    DestinationMissing,
    DestinationSilent,
    Faulted,
    Interrupted,
    SyphonError,
)
from syphon.servicebus import (
    AdministrationFailed,
    Connection,
    ConnectionDetails,
    DataPlaneAdministration,
    connection_details,
    try_sender,
)

log = logging.getLogger(__name__)

ANSWER_WITHIN = 15.0
"""Seconds that the secondary gets to open a connection. If it is away, pairing goes on without a look at its queues."""
LEAST_TIMEOUT = 15.0
"""Seconds that an operation on a partitioned entity needs at least (S8)."""


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
        way = dataclasses.replace(
            connection_details(ServiceBusClient.from_connection_string(given)), ca_file=secondary.ca_file
        )
    elif isinstance(given, tuple) and len(given) == 2:
        host, credential = given
        way = ConnectionDetails(host.strip("/"), credential, secondary.plain, secondary.ca_file)
    else:
        raise TypeError(
            "secondary_administration is a connection string, or a pair of host name and credential. "
            f"Received instead: {type(given).__name__}"
        )
    if way.host.lower() != secondary.host.lower():
        raise ValueError(f"secondary_administration is for {way.host}, and the secondary is {secondary.host}.")
    return way


def administration_with(way: ConnectionDetails) -> DataPlaneAdministration:
    """The administration of a namespace."""
    text = way.connection_string()
    if text is not None:
        return DataPlaneAdministration.from_connection_string(text, ca_file=way.ca_file, proxy=way.proxy)
    return DataPlaneAdministration.from_credential(way.host, way.credential, ca_file=way.ca_file, proxy=way.proxy)


# --- queues that others have made ------------------------------------------------------------------------------------


def find_queues(secondary: ServiceBusClient, names: Sequence[QueueName]) -> Provisioned:
    """The backlog queues that take messages from us: the Send claim is enough to find them.

    Raises an error if the credentials are refused, or if not one of the queues exists. A secondary that is away is no
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
    dropped = tuple(Dropped(name, why) for name in missing)
    if len(dropped) == len(names):
        raise NoBacklogQueue(host, dropped)
    found = Provisioned(host, tuple(Found(name) for name in names if name not in missing), dropped)
    for warning in found.warnings():
        log.warning(warning)
    _warn_of_merging(connection_details(secondary), found.names)
    return found


def _warn_of_merging(secondary: ConnectionDetails, names: Sequence[QueueName]) -> None:
    """Logs a warning for each queue that detects duplicates (P3). Asks in a thread: only the Manage claim allows it."""

    def look() -> None:
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

    threading.Thread(target=look, name=f"look at {secondary.host}", daemon=True).start()


def _missing(secondary: ServiceBusClient, names: Sequence[QueueName]) -> Iterator[QueueName]:
    connection = Connection(secondary, names[0], ANSWER_WITHIN)
    try:
        for name in names:
            error = try_sender(connection, name)
            if isinstance(error, DestinationMissing):
                yield name
            elif isinstance(error, Faulted | DestinationSilent) or connection.wire.failure is not None:
                raise error if error is not None else Interrupted(f"{connection.host}: the connection was lost.")
    finally:
        connection.close()


# --- partitioned entities --------------------------------------------------------------------------------------------


def warn_if_partitioned(primary: ConnectionDetails, path: str, operation_timeout: float) -> None:
    """Logs a warning if the timeout is too short for the entity because it is partitioned (S8). Asks in a thread."""

    def look() -> None:
        try:
            with administration_with(primary) as administration:
                is_partitioned = administration.is_partitioned(path)
        except Exception as error:  # only the Manage claim allows the look, and an application need not have it
            log.info("Could not check whether '%s' is partitioned: %s", path, error)
            return
        if is_partitioned:
            log.warning(
                "'%s' is partitioned, and operation_timeout is %g s: a partitioned entity may need %g s. Set "
                "operation_timeout to that or more, or some sends fail that would have succeeded.",
                path,
                operation_timeout,
                LEAST_TIMEOUT,
            )

    if operation_timeout < LEAST_TIMEOUT:
        threading.Thread(target=look, name=f"look at {path}", daemon=True).start()
