"""Setting a pair up (F1): what is wrong with credentials, names or queues is told now, and not in the first outage."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient

from syphon.backlog import Provisioned, backlog_queues, plan, primary_label, provision
from syphon.bus import Administration, Connection, WayIn, check_contract, way_in
from syphon.model import BadConnectionString, ConnectionString, Faulted, NotAuthorized

from .options import BadOptions, PairOptions

log = logging.getLogger(__name__)

ANSWER_WITHIN = 15.0
"""Seconds the primary gets to say that our credentials are good. It may be away: that is what a pair is for."""
TOKEN_SCOPE = "https://servicebus.azure.net/.default"  # noqa: S105  no token, but what to ask for one


@dataclass(frozen=True, slots=True)
class Side:
    """One namespace of a pair: its client, and whether it is ours to close."""

    client: Any
    is_ours: bool

    @classmethod
    def of(cls, given: Any, client_type: Any, which: str) -> Side:
        """A connection string, a host name with its credential, or a client of that type."""
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
    secondary: WayIn,
    options: PairOptions,
    sleep: Callable[[float], None] = time.sleep,
) -> Provisioned:
    """Checks the primary's credentials, and provisions the backlog queues. Raises what is wrong (P5)."""
    here = way_in(primary)
    if here.host == secondary.host:
        raise ValueError(f"The primary and the secondary are the same namespace, {here.host}: a pair needs two.")
    label = primary_label(here.host, "", options.primary_name)
    if not label:
        raise BadOptions(f"primary_name is not set, and {here.host} has no name to give to its backlog queues: set it")
    _check_credentials(primary, here)
    with _administration(secondary) as administration:
        names = [queue.name for queue in backlog_queues(label, options.backlog_queue_count)]
        return provision(administration, plan(administration, names), sleep=sleep)


def sync_client(way: WayIn, loop: asyncio.AbstractEventLoop) -> ServiceBusClient:
    """A client for threads that goes where an asynchronous one goes, on whose loop its credential lives."""
    text = way.connection_string()
    if text is not None:
        return ServiceBusClient.from_connection_string(text, retry_total=0, connection_verify=way.ca_file)
    credential: Any = Awaited(way.credential, loop)
    return ServiceBusClient(way.host, credential, retry_total=0, connection_verify=way.ca_file)


class Awaited:
    """A credential of azure-identity's asynchronous kind, for a thread to ask. Its loop must be free to answer."""

    def __init__(self, credential: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._credential = credential
        self._loop = loop

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        async def ask() -> AccessToken:
            token: AccessToken = await self._credential.get_token(*scopes, **options)
            return token

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(ANSWER_WITHIN)


def _administration(way: WayIn) -> Any:
    from syphon.bus import DataPlaneAdministration

    text = way.connection_string()
    made: Administration
    if text is not None:
        made = DataPlaneAdministration.from_connection_string(text, ca_file=way.ca_file)
    else:
        made = DataPlaneAdministration.from_credential(way.host, way.credential, ca_file=way.ca_file)
    return made


def _check_credentials(client: ServiceBusClient, way: WayIn) -> None:
    """A key is shown to the namespace. Of a token it can only be said that there is one: what it is good for is
    decided entity by entity."""
    outcome: list[Exception | None] = []

    def ask() -> None:
        try:
            if way.connection_string() is None:
                _fetch_token(way)
            else:
                Connection(client, "", ANSWER_WITHIN).close()
        except Exception as error:
            outcome.append(error)
        else:
            outcome.append(None)

    # In a thread of its own: the SDK waits for ever for a host that takes a connection and never says a word.
    asking = threading.Thread(target=ask, name=f"ask {way.host}", daemon=True)
    asking.start()
    asking.join(ANSWER_WITHIN)
    error = outcome[0] if outcome else TimeoutError(f"no answer within {ANSWER_WITHIN:.0f} s")
    if isinstance(error, Faulted):
        raise error
    if error is not None:
        log.warning("%s cannot be asked whether our credentials are good: %s", way.host, error)


def _fetch_token(way: WayIn) -> None:
    kind = ""
    try:
        way.credential.get_token(TOKEN_SCOPE)
    except Exception as error:  # its text may hold the request, and with it a secret: its kind says enough
        kind = type(error).__name__
    if kind:
        raise NotAuthorized(f"{way.host}: the credential gives no token ({kind}). Check it, and its surroundings.")
