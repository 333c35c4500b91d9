"""A namespace on a real HTTP port, in the event loop of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from syphon.emulator.broker.access import Policy
from syphon.emulator.broker.descriptions import Claim, Tier
from syphon.emulator.broker.journal import Journal, NoJournal
from syphon.emulator.broker.namespace import BrokerNamespace, NamespaceIdentity
from syphon.emulator.broker.virtual_hosts import VirtualHosts
from syphon.emulator.clock import FakeClock
from syphon.emulator.http_front import build_app

KEY = "c2VjcmV0"


CONTOSO = NamespaceIdentity(
    name="contoso",
    host="127.0.0.1",
    tier=Tier.STANDARD,
    policies=(Policy("Root", KEY, frozenset(Claim)), Policy("Sender", KEY, frozenset({Claim.SEND}))),
    accept_any_jwt=False,
)


@dataclass(frozen=True)
class ServedNamespace:
    """A namespace and its address."""

    namespace: BrokerNamespace
    address: str
    clock: FakeClock

    def connection_string(self, policy: str = "Root", key: str = KEY) -> str:
        return f"Endpoint=sb://{self.address}/;SharedAccessKeyName={policy};SharedAccessKey={key}"


@asynccontextmanager
async def served(
    identity: NamespaceIdentity = CONTOSO, journal: Journal | None = None
) -> AsyncIterator[ServedNamespace]:
    clock = FakeClock()
    namespace = BrokerNamespace(identity, clock, journal or NoJournal())
    runner = web.AppRunner(build_app(VirtualHosts(namespace), clock))
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield ServedNamespace(namespace, f"127.0.0.1:{runner.addresses[0][1]}", clock)
    finally:
        await runner.cleanup()
