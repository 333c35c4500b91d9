"""Setting a pair up (F1): its options, its two clients, the check of the credentials, and the backlog queues.

Wrong options, credentials, names or queues raise an error here, and not only in the first outage.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusClient

from syphon.backlog import Provisioned, backlog_queues, plan, primary_label, provision
from syphon.model import BadConnectionString, ConnectionString, Faulted, NotAuthorized
from syphon.servicebus import Connection, ConnectionDetails, check_contract, connection_details

from .events import Change
from .management import LEAST_TIMEOUT, administration_with, find_queues

log = logging.getLogger(__name__)

ANSWER_WITHIN = 15.0
"""Seconds that the primary gets to accept our credentials. It may be unavailable: that is what a pair is for."""
TOKEN_SCOPE = "https://servicebus.azure.net/.default"  # noqa: S105  not a token, but what to ask for one

_MINUTE = timedelta(minutes=1)
_MOST_QUEUES = 10_000
_RANGES = {
    "failover_interval": (0, 60 * 60),
    "ping_primary_interval": (1, 30 * 60),
    "operation_timeout": (1, 60 * 60),
}
"""The durations among the options, and the seconds that they may be."""

Duration: TypeAlias = timedelta | float
"""A timedelta, or a number of seconds."""


def seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


class BadOptions(ValueError):
    """Some options cannot be used. The text names each of them, and its valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How a pair behaves. The defaults are those of the paired namespaces of the .NET SDK.

    A duration is a timedelta or a number of seconds; it is kept as a timedelta. All mistakes in the options are
    reported at once, when the options are made.
    """

    backlog_queue_count: int = 10
    failover_interval: Duration = _MINUTE
    """How long an entity may fail before its messages go to the backlog; 0: at the first failure that counts."""
    ping_primary_interval: Duration = _MINUTE
    """How often an entity that is failed over is tried again."""
    enable_syphon: bool = False
    """Move the backlog to the primary from inside this process. In one process, not in every sender: each syphon polls
    all backlog queues, and each poll is billed. For small deployments: otherwise run `syphon`."""
    operation_timeout: Duration = _MINUTE
    """How long the primary, and then each backlog queue, may take for a call without a timeout of its own."""
    allow_short_timeouts: bool = False
    """Allow an operation timeout below 15 seconds, in which a partitioned entity may not find another partition."""
    primary_name: str | None = None
    """The primary's part in the names of its backlog queues; by default the first label of its host name."""
    on_change: Callable[[Change], None] | None = None
    """Called when an entity fails over, is pinged or returns, and when a backlog queue stops or starts working."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise BadOptions("; ".join(problems))
        for name in _RANGES:
            object.__setattr__(self, name, _duration(getattr(self, name)))

    def _problems(self) -> Iterator[str]:
        count: object = self.backlog_queue_count
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_QUEUES:
            yield f"backlog_queue_count is {count!r}: it may be 1 to {_MOST_QUEUES}, a whole number"
        for name, (least, most) in _RANGES.items():
            value: object = getattr(self, name)
            duration = _duration(value)
            if duration is None or not least <= seconds(duration) <= most:
                yield f"{name} is {_shown(value)}: it may be {least} to {most} seconds, as a number or a timedelta"
        timeout = _duration(self.operation_timeout)
        if timeout is not None and 1 <= seconds(timeout) < LEAST_TIMEOUT and not self.allow_short_timeouts:
            yield (
                f"operation_timeout is {_shown(self.operation_timeout)}: a partitioned entity may need "
                f"{LEAST_TIMEOUT:g} seconds; set it to that or more, or set allow_short_timeouts"
            )
        for name in ("enable_syphon", "allow_short_timeouts"):
            if not isinstance(getattr(self, name), bool):
                yield f"{name} is {getattr(self, name)!r}: it may be True or False"
        prefix: object = self.primary_name
        if prefix is not None and (not isinstance(prefix, str) or not prefix.strip() or "/" in prefix):
            yield f"primary_name is {prefix!r}: it is one part of a queue's name, without a slash"
        if self.on_change is not None and not callable(self.on_change):
            yield f"on_change is {self.on_change!r}: it may be a function with one parameter"


def _duration(value: object) -> timedelta | None:
    """A value as a timedelta; None if it is no duration."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError):  # not a number, or longer than any timedelta
        return None


def _shown(value: object) -> str:
    return f"{value.total_seconds():g} seconds" if isinstance(value, timedelta) else repr(value)


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

    Without one it only looks which queues exist: others have provisioned them. Raises an error if the credentials are
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


def sync_client(way: ConnectionDetails, loop: asyncio.AbstractEventLoop) -> ServiceBusClient:
    """A sync client of the namespace that an asyncio client uses. The asyncio client's credential lives on `loop`."""
    text = way.connection_string()
    if text is not None:
        return ServiceBusClient.from_connection_string(text, retry_total=0, **way.options())
    credential: Any = blocking_details(way, loop).credential
    return ServiceBusClient(way.host, credential, retry_total=0, **way.options())


def blocking_details(way: ConnectionDetails, loop: asyncio.AbstractEventLoop) -> ConnectionDetails:
    """The same details with a credential that a thread can use. Keys and signatures need no network."""
    is_async = inspect.iscoroutinefunction(getattr(way.credential, "get_token", None))
    if way.connection_string() is not None or not is_async:
        return way
    return dataclasses.replace(way, credential=BlockingCredential(way.credential, loop))


class BlockingCredential:
    """An asyncio credential of azure-identity, for use in a thread. Its loop must be free to answer."""

    def __init__(self, credential: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._credential = credential
        self._loop = loop

    def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        async def ask() -> AccessToken:
            token: AccessToken = await self._credential.get_token(*scopes, **options)
            return token

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(ANSWER_WITHIN)


def _check_credentials(client: ServiceBusClient, way: ConnectionDetails) -> None:
    """Raises an error if the credentials are wrong.

    The namespace checks a key when a connection opens. For a token credential, the only check here is that it gives a
    token: the service decides for each entity what the token allows.
    """
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

    # In its own thread: the SDK waits for ever for a host that accepts a connection and then stays silent.
    asking = threading.Thread(target=ask, name=f"ask {way.host}", daemon=True)
    asking.start()
    asking.join(ANSWER_WITHIN)
    error = outcome[0] if outcome else TimeoutError(f"no answer within {ANSWER_WITHIN:.0f} s")
    if isinstance(error, Faulted):
        raise error
    if error is not None:
        log.warning("Could not verify the credentials for %s (%s); continuing without the check.", way.host, error)


def find_fault(client: ServiceBusClient, entity: str) -> Faulted | None:
    """Why a namespace that was paired cannot be used any more; None if it can be, or is only away (C3).

    A key is asked for as in pairing. The service may refuse a token for the whole namespace that it takes for an
    entity, so with a token the question is asked for the entity.
    """
    has_key = connection_details(client).connection_string() is not None
    try:
        Connection(client, "" if has_key else entity, ANSWER_WITHIN).close()
    except Faulted as error:
        return error
    except Exception as error:
        log.debug("%s could not be asked whether it can be used: %s", client.fully_qualified_namespace, error)
    return None


def _fetch_token(way: ConnectionDetails) -> None:
    kind = ""
    try:
        way.credential.get_token(TOKEN_SCOPE)
    except Exception as error:  # its text may contain the request, and with it a secret: the error's type is enough
        kind = type(error).__name__
    if kind:
        raise NotAuthorized(
            f"{way.host}: the credential gives no token ({kind}). Check the credential and its environment."
        )
