"""The two namespaces that the suite runs on, and what it creates there.

By default they are the emulator in the process of the tests, with a clock that moves at once. With the connection
strings SYPHON_AZURE_PRIMARY and SYPHON_AZURE_SECONDARY they are any others: on Azure, or an emulator elsewhere.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from syphon.emulator import BackgroundEmulator
from tests.support.amqp_peer import sas
from tests.support.plain_http import PlainHttp
from tests.support.raw_client import Place, RawClient, raw_client_at

VARIABLES = ("SYPHON_AZURE_PRIMARY", "SYPHON_AZURE_SECONDARY")
LONGEST_WAIT = 30
"""Seconds that a test may wait where time cannot be moved."""
UNUSED = timedelta(hours=1)
"""After this time the service itself deletes what a run that was killed has left."""
LACKS: Mapping[str, frozenset[str]] = {
    "Basic": frozenset({"topics", "sessions", "transactions", "duplicate detection", "forwarding", "idle deletion"}),
    "Standard": frozenset(),
    "Premium": frozenset({"partitions"}),
}
"""What a tier does not have. Namespaces of the tier Premium have partitions, and their entities do not choose."""


class Namespace:
    """One namespace, by its connection string."""

    def __init__(self, connection_string: str) -> None:
        self.connection_string = connection_string
        parts = dict(part.split("=", 1) for part in connection_string.strip().rstrip(";").split(";"))
        self.is_emulator = parts.get("UseDevelopmentEmulator") == "true"
        self._policy, self._key = parts["SharedAccessKeyName"], parts["SharedAccessKey"]
        endpoint = urlsplit(parts["Endpoint"])
        self.host = endpoint.hostname or ""
        self._port = endpoint.port
        self.admin = ServiceBusAdministrationClient.from_connection_string(
            connection_string, **({"transport": PlainHttp()} if self.is_emulator else {})
        )
        found = self.admin.get_namespace_properties()
        self.name, self.tier = str(found.name), str(found.messaging_sku)

    def client(self) -> ServiceBusClient:
        """The official client, without retries: the first answer counts."""
        return ServiceBusClient.from_connection_string(self.connection_string, retry_total=0)

    @asynccontextmanager
    async def raw(self, key: str | None = None) -> AsyncIterator[RawClient]:
        """Raw frames over one connection, which SASL PLAIN has opened."""
        tls = None if self.is_emulator else ssl.create_default_context()
        place = Place(self.host, self._port or 5671, self._policy, key or self._key, tls)
        async with raw_client_at(place) as client:
            yield client

    async def http(self, method: str, path: str, description: str = "", *, update: bool = False) -> tuple[int, str]:
        """A request to the administration API: status and body of the answer."""
        authority = f"{self.host}:{self._port}" if self._port else self.host
        headers = {"Authorization": sas(f"https://{authority}/", self._policy, self._key)}
        if update:
            headers["If-Match"] = "*"
        url = f"http{'' if self.is_emulator else 's'}://{authority}/{path}"
        url += ("&" if "?" in path else "?") + "api-version=2021-05"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=entry(description) if description else None, headers=headers) as answer,
        ):
            return answer.status, await answer.text()

    def close(self) -> None:
        self.admin.close()


def entry(description: str) -> bytes:
    """An Atom entry with a description, which has its namespaces added."""
    name, rest = re.match(r"<(\w+)(.*)", description, re.DOTALL).groups()  # type: ignore[union-attr]
    namespaces = (
        'xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" '
        'xmlns:i="http://www.w3.org/2001/XMLSchema-instance"'
    )
    content = f'<content type="application/xml"><{name} {namespaces}{rest}</content>'
    return f'<entry xmlns="http://www.w3.org/2005/Atom">{content}</entry>'.encode()


@dataclass
class Target:
    """A pair of namespaces. With an emulator of its own it can move the time."""

    primary: Namespace
    secondary: Namespace
    emulator: BackgroundEmulator | None = None

    @property
    def is_remote(self) -> bool:
        return self.emulator is None

    @property
    def label(self) -> str:
        return "the other emulator" if self.primary.is_emulator else "Azure"

    def need(self, *features: str) -> None:
        """Skips a test that the tier of the namespaces cannot run."""
        missing = sorted(LACKS.get(self.primary.tier, frozenset()).intersection(features))
        if missing:
            pytest.skip(f"the tier {self.primary.tier} has no {' and no '.join(missing)}")

    def need_controls(self) -> BackgroundEmulator:
        """The emulator's own controls (clock, faults), for tests that are skipped elsewhere."""
        if self.emulator is None:
            pytest.skip("needs the emulator's own clock or faults, which no other namespace has")
        return self.emulator

    async def pass_time(self, seconds: float) -> None:
        """Lets time pass: at once if the clock can be moved."""
        if self.emulator is not None:
            self.emulator.advance(seconds)
        elif seconds > LONGEST_WAIT:
            pytest.skip(f"takes {seconds:.0f} seconds where the clock cannot be moved")
        else:
            await asyncio.sleep(seconds)  # what the test is about is time itself

    def now(self) -> float:
        """The time of the namespaces in seconds."""
        return time.time() if self.emulator is None else self.emulator.namespaces[0].namespace.clock.now() / 1000

    def close(self) -> None:
        self.primary.close()
        self.secondary.close()


@dataclass
class Entities:
    """Creates entities with names that no other run uses, and deletes them."""

    namespace: Namespace
    prefix: str
    _made: list[tuple[str, ...]] = field(default_factory=list)

    def queue(self, name: str = "orders", **settings: Any) -> str:
        full = self._named(name)
        self.namespace.admin.create_queue(full, **self._with_end(settings))
        return full

    def topic(self, name: str = "news", **settings: Any) -> str:
        full = self._named(name)
        self.namespace.admin.create_topic(full, **self._with_end(settings))
        return full

    def subscription(self, topic: str, name: str = "audit", **settings: Any) -> str:
        self.namespace.admin.create_subscription(topic, name, **settings)
        return f"{topic}/subscriptions/{name}"

    def name(self, name: str = "orders") -> str:
        """A name for an entity that the test itself creates; it is deleted too."""
        return self._named(name)

    def delete(self) -> None:
        """Deletes everything of this run, also what a broken test has left."""
        for delete, listed in (
            (self.namespace.admin.delete_queue, self.namespace.admin.list_queues),
            (self.namespace.admin.delete_topic, self.namespace.admin.list_topics),
        ):
            if self.namespace.tier == "Basic" and listed == self.namespace.admin.list_topics:
                continue
            for name in [str(found["name"]) for found in listed()]:
                if name.startswith(self.prefix):
                    with suppress(ResourceNotFoundError):
                        delete(name)

    def delete_made(self) -> None:
        """Deletes what one test has made. A failure is left to the end of the run."""
        for (name,) in self._made:
            for delete in (self.namespace.admin.delete_queue, self.namespace.admin.delete_topic):
                with suppress(AzureError):
                    delete(name)
                    break
        self._made.clear()

    def _named(self, name: str) -> str:
        full = f"{self.prefix}{len(self._made)}-{name}"
        self._made.append((full,))
        return full

    def _with_end(self, settings: dict[str, Any]) -> dict[str, Any]:
        has_end = "idle deletion" not in LACKS.get(self.namespace.tier, frozenset())
        return ({"auto_delete_on_idle": UNUSED} if has_end else {}) | settings
