"""The emulator: its namespaces on their ports, started and stopped together.

Each port accepts AMQP, AMQP over WebSockets and HTTP, in plain text and (if TLS is on) encrypted. So one connection
string serves the messaging client and the administration client.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .amqp_front import AmqpConnection, AmqpTimeouts
from .bootstrap import create_configured_entities, restore
from .broker import BrokerNamespace, NamespaceIdentity, NoJournal, Outage, Policy, VirtualHosts
from .clock import MovableClock, SystemClock
from .port_listener import NotInstalled, PortListener, Protocols
from .settings import EmulatorSettings, NamespaceSettings, default_settings
from .state import SqliteJournal, StateDirectory

if TYPE_CHECKING:
    from .http_front import HttpServer
    from .tls import ServerTls


class RunningNamespace:
    """A namespace with its ports open."""

    def __init__(self, settings: NamespaceSettings, hosts: VirtualHosts) -> None:
        self.settings = settings
        self.hosts = hosts
        self.namespace = namespace = hosts.first
        self.amqp_port = settings.amqp_port
        self.http_port = settings.http_port
        self._timeouts = AmqpTimeouts(link_idle_timeout=settings.link_idle_timeout)
        self._connections: set[AmqpConnection] = set()
        self._amqp: PortListener | None = None
        self._http: PortListener | None = None
        self._http_server: HttpServer | None = None
        namespace.faults.on_outage = self._on_outage

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def connection_string(self) -> str:
        policy = self.settings.policies[0]
        return self.connection_string_for(policy.name)

    def connection_string_for(self, policy_name: str) -> str:
        """The connection string for a policy, or for a namespace that is created for this key name."""
        policy = self.hosts.find(policy_name).access.policies[policy_name]
        return (
            f"Endpoint=sb://{self.settings.reachable_as}:{self.amqp_port};SharedAccessKeyName={policy.name};"
            f"SharedAccessKey={policy.key};UseDevelopmentEmulator=true;"
        )

    def create(self, settings: NamespaceSettings) -> None:
        """Create the queues and topics of these settings that do not exist yet."""
        create_configured_entities(self.namespace, settings)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def disrupt(self, namespace: BrokerNamespace, outage: Outage | None) -> None:
        """Applies an outage to the clients of one of the namespaces."""
        for connection in list(self._connections):
            if connection.namespace is not namespace:
                continue
            if outage is Outage.HANG:
                connection.hang()
            elif outage in (Outage.REFUSE, Outage.DROP) or connection.is_hung:
                # A connection that hung cannot continue: its peer waits for answers that were never written.
                connection.abort()

    async def open(self, tls: ServerTls | None, clock: MovableClock, page_changes: bool) -> None:
        from .http_front import HttpServer  # aiohttp takes long to import, and reading settings does not need it

        self._http_server = HttpServer(self.hosts, clock, page_changes)
        make_http = await self._http_server.start()
        context = tls.context if tls else None
        protocols = Protocols(self._make_amqp, self._make_websocket, make_http)
        self._amqp = PortListener(self.settings.host, self.settings.amqp_port, context, protocols)
        self._http = PortListener(self.settings.host, self.settings.http_port, context, protocols)
        for what, listener in (("AMQP", self._amqp), ("HTTP", self._http)):
            try:
                await listener.open()
            except OSError as error:
                raise OSError(error.errno, self._explain(what, listener.port, error)) from None
        self.amqp_port, self.http_port = self._amqp.port, self._http.port

    def _explain(self, what: str, port: int, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return (
                f"namespace {self.name}: {what} port {port} on {self.settings.host} is in use. "
                f"Stop what is using it, or choose others: --namespace {self.name}:AMQP_PORT:HTTP_PORT (0 is any)."
            )
        return f"namespace {self.name}: {what} port {port} on {self.settings.host} cannot be opened: {error.strerror}."

    async def shut(self) -> None:
        for listener in (self._amqp, self._http):
            if listener is not None:
                listener.close()
        for connection in list(self._connections):
            connection.close("amqp:connection:forced", "The emulator is stopping.")
        await asyncio.sleep(0)  # one turn of the loop, in which the close frames are written
        for connection in list(self._connections):
            connection.abort()
        if self._http_server is not None:
            await self._http_server.stop()

    @contextmanager
    def disconnecting_clients(self, why: str) -> Iterator[None]:
        """Disconnects all clients because changes cannot be written to disk.

        It drops their output, lets the caller report the error, and closes the connections.
        """
        connections = list(self._connections)
        for connection in connections:
            connection.discard_output()
        yield
        for connection in connections:
            connection.fail(why)

    def _make_amqp(self) -> AmqpConnection:
        connection = AmqpConnection(self.hosts, self._timeouts, self._connections.discard)
        self._connections.add(connection)
        return connection

    def _make_websocket(self) -> asyncio.Protocol:
        try:
            from .amqp_front.websocket import WebSocketLayer  # an extra, and needed by few
        except ImportError:
            return NotInstalled("AMQP over WebSockets needs an extra: pip install 'syphon-servicebus[websockets]'")
        return WebSocketLayer(self._make_amqp())

    def _on_outage(self, outage: Outage | None) -> None:
        if self._amqp is not None:
            if outage is Outage.REFUSE:
                self._amqp.refuse()
            else:
                self._amqp.reopen()
        self.disrupt(self.namespace, outage)


class Emulator:
    """A local Service Bus: `async with Emulator(settings) as emulator: …`."""

    def __init__(self, settings: EmulatorSettings | None = None, *, clock: MovableClock | None = None) -> None:
        self.settings = settings or default_settings()
        self.clock = clock or SystemClock()
        self.ca_file: Path | None = None
        self.namespaces: list[RunningNamespace] = []
        self._state: StateDirectory | None = None

    def __getitem__(self, name: str) -> RunningNamespace:
        return next(namespace for namespace in self.namespaces if namespace.name == name)

    async def start(self) -> None:
        """Opens all ports. An error names the namespace and the port; then nothing stays open."""
        try:
            if self.settings.state is not None:
                self._state = StateDirectory(self.settings.state)
            tls = self._tls()
            for settings in self.settings.namespaces:
                running = self._make(settings)
                self.namespaces.append(running)
                await running.open(tls, self.clock, self.settings.page_changes)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        namespaces, self.namespaces = self.namespaces, []
        for namespace in namespaces:
            await namespace.shut()
        if self._state is not None:
            self._state.close()
            self._state = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _tls(self) -> ServerTls | None:
        if not self.settings.tls:
            return None
        from .tls import default_directory, server_tls  # slow to import, and needed with TLS only

        directory = self.settings.state / "tls" if self.settings.state else default_directory()
        names = [namespace.name for namespace in self.settings.namespaces]
        hosts = [namespace.host for namespace in self.settings.namespaces]
        tls = server_tls(directory, names, hosts)
        self.ca_file = tls.ca_file
        return tls

    def _make(self, settings: NamespaceSettings) -> RunningNamespace:
        journal = self._state.journal(settings.name) if self._state is not None else NoJournal()
        policies = tuple(Policy(p.name, p.key.get_secret_value(), p.claims) for p in settings.policies)
        identity = NamespaceIdentity(
            settings.name,
            settings.reachable_as,
            settings.tier,
            policies,
            settings.accept_any_jwt,
            any_host=settings.listens_everywhere,
            templates=settings.auto_create.templates() if settings.auto_create else None,
        )
        namespace = BrokerNamespace(identity, self.clock, journal, self.settings.seed)

        def make(name: str) -> BrokerNamespace:
            """A namespace like this one for a key name. It is in memory only."""
            own = (*policies, Policy(name, policies[0].key, policies[0].claims))
            made = BrokerNamespace(
                replace(identity, name=name, policies=own), self.clock, NoJournal(), self.settings.seed
            )
            made.faults.on_outage = lambda outage: running.disrupt(made, outage)
            create_configured_entities(made, settings)
            return made

        running = RunningNamespace(settings, VirtualHosts(namespace, make if settings.namespace_per_key else None))
        if isinstance(journal, SqliteJournal):
            restore(namespace, journal.snapshot(), self.clock.now())
            journal.on_write_error = running.disconnecting_clients
        create_configured_entities(namespace, settings)
        if isinstance(journal, SqliteJournal):
            journal.write_now()
        return running
