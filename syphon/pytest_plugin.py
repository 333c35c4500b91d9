"""The pytest plugin: a local Service Bus for tests, as the fixtures `servicebus` and `servicebus_namespace`.

pytest finds it by the entry point of the distribution. It loads the emulator when a test first uses a fixture. Each
process of pytest-xdist has emulators of its own, on free ports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from syphon.emulator import BackgroundEmulator, NamespaceSettings, RunningNamespace

T = TypeVar("T")
NAME = "contoso"
MARKER = (
    "servicebus(queues=[], topics={}, config=None): what `servicebus_namespace` holds. queues: names, or settings "
    'as in the emulator\'s YAML ({"name": "chats", "requires_session": True}). topics: subscriptions by topic. '
    "config: a settings file, ours or the Config.json of Microsoft's emulator."
)

Entity = str | Mapping[str, Any]


class LocalNamespace:
    """A Service Bus namespace in the process of the test. Clients connect with its `connection_string`."""

    def __init__(self, emulator: BackgroundEmulator) -> None:
        self._emulator = emulator
        (self._running,) = emulator.namespaces

    @property
    def connection_string(self) -> str:
        return self._running.connection_string

    def create(self, queues: Sequence[Entity] = (), topics: Mapping[str, Sequence[Entity]] | None = None) -> None:
        """Create queues, and topics with their subscriptions. Those that exist stay as they are."""
        settings = _settings(queues, topics or {})
        self._call(lambda running: running.create(settings))

    def messages(self, path: str) -> int:
        """The number of active messages in a queue, a subscription (`news/subscriptions/audit`) or its dead letters."""
        dead, path = path.lower().endswith(DEAD_LETTERS), path.removesuffix(DEAD_LETTERS)
        runtime = self._call(lambda running: running.namespace.runtime(path))
        return runtime.dead_letter if dead else runtime.active

    def advance(self, seconds: float) -> None:
        """Move the clock of the emulator forward: locks expire, and scheduled messages become active."""
        self._emulator.advance(seconds)

    @contextmanager
    def fault(self, action: str, operation: str | None = None, entity: str = "*", **details: Any) -> Iterator[None]:
        """Let operations fail while the block runs, as in `fault("error", "send", "orders", times=1)`.

        docs/emulator.md lists actions, operations and details.
        """
        from syphon.emulator import Action, Fault, Operation

        fault = Fault(Action(action), None if operation is None else Operation(operation), entity, **details)
        number = self._call(lambda running: running.namespace.faults.add(fault))
        try:
            yield
        finally:
            self._call(lambda running: running.namespace.faults.clear(number))

    @contextmanager
    def outage(self, kind: str = "refuse") -> Iterator[None]:
        """Make the whole namespace unavailable while the block runs: `refuse`, `drop`, `hang`, `busy` …"""
        from syphon.emulator import Outage

        outage = Outage(kind)
        self._call(lambda running: running.namespace.faults.begin_outage(outage))
        try:
            yield
        finally:
            self._call(lambda running: running.namespace.faults.end_outage())

    def _call(self, function: Callable[[RunningNamespace], T]) -> T:
        return self._emulator.call(lambda: function(self._running))


DEAD_LETTERS = "/$deadletterqueue"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def servicebus() -> Iterator[LocalNamespace]:
    """One namespace for all tests of this process. Each test creates the queues that it needs."""
    with _started(_settings((), {})) as namespace:
        yield namespace


@pytest.fixture
def servicebus_namespace(request: pytest.FixtureRequest) -> Iterator[LocalNamespace]:
    """A fresh namespace for this test, with the entities of its `servicebus` marker."""
    marker = request.node.get_closest_marker("servicebus")
    with _started(_marked(**marker.kwargs) if marker else _settings((), {})) as namespace:
        yield namespace


@contextmanager
def _started(settings: NamespaceSettings) -> Iterator[LocalNamespace]:
    from syphon.emulator import BackgroundEmulator, EmulatorSettings

    with BackgroundEmulator(EmulatorSettings(namespaces=[settings])) as emulator:
        yield LocalNamespace(emulator)


def _marked(
    queues: Sequence[Entity] = (),
    topics: Mapping[str, Sequence[Entity]] | None = None,
    config: str | Path | None = None,
) -> NamespaceSettings:
    settings = _settings(queues, topics or {})
    if config is None:
        return settings
    from syphon.emulator import load_settings

    (first, *_) = load_settings(Path(config)).namespaces
    ours = {"queues": [*first.queues, *settings.queues], "topics": [*first.topics, *settings.topics]}
    return first.model_copy(update={**ours, "amqp_port": 0, "http_port": 0})


def _settings(queues: Sequence[Entity], topics: Mapping[str, Sequence[Entity]]) -> NamespaceSettings:
    from syphon.emulator import NamespaceSettings

    entities = {
        "queues": [_entity(queue) for queue in queues],
        "topics": [
            {"name": topic, "subscriptions": [_entity(each) for each in subscriptions]}
            for topic, subscriptions in topics.items()
        ],
    }
    return NamespaceSettings.model_validate({"name": NAME, **entities})


def _entity(entity: Entity) -> Mapping[str, Any]:
    return {"name": entity} if isinstance(entity, str) else entity
