"""Fixtures: real emulators on free ports of this machine."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from syphon.emulator import (
    BackgroundEmulator,
    Emulator,
    EmulatorSettings,
    FakeClock,
    NamespaceSettings,
    RunningNamespace,
)
from syphon.emulator.broker.namespace import BrokerNamespace


def settings() -> EmulatorSettings:
    return EmulatorSettings(namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])


@dataclass
class EmulatedNamespace:
    """A running namespace in the process of the test, with its clock if the test moves the time."""

    running: RunningNamespace
    clock: FakeClock | None = None

    @property
    def namespace(self) -> BrokerNamespace:
        """The broker behind the sockets: tests create entities, set faults and read counters here."""
        return self.running.namespace

    @property
    def connection_string(self) -> str:
        return self.running.connection_string


@pytest.fixture
async def emulated() -> AsyncIterator[EmulatedNamespace]:
    """A namespace with the system clock, for asynchronous clients."""
    async with Emulator(settings()) as emulator:
        yield EmulatedNamespace(emulator["contoso"])


@pytest.fixture
async def clocked() -> AsyncIterator[EmulatedNamespace]:
    """A namespace with a fake clock: `clocked.clock.advance(seconds)`."""
    clock = now()
    async with Emulator(settings(), clock=clock) as emulator:
        yield EmulatedNamespace(emulator["contoso"], clock)


@pytest.fixture
def background() -> Iterator[BackgroundEmulator]:
    """An emulator in its own thread, for synchronous clients."""
    with BackgroundEmulator(settings()) as emulator:
        yield emulator


@pytest.fixture
def background_clocked() -> Iterator[BackgroundEmulator]:
    """The same with a fake clock: `background_clocked.advance(seconds)`."""
    with BackgroundEmulator(settings(), clock=now()) as emulator:
        yield emulator


ignore_unclosed_resources = pytest.mark.filterwarnings("ignore:(unclosed|loop is closed):ResourceWarning")


@pytest.fixture
def garbage_collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs the garbage collector after tests that break connections: the SDK leaves their sockets to it.

    Such tests ignore the ResourceWarnings (`ignore_unclosed_resources`). They must not appear in later tests.
    """
    yield
    if not {"emulated", "clocked"}.isdisjoint(request.fixturenames):
        gc.collect()


def now() -> FakeClock:
    """A fake clock that starts five minutes from now: the SDK compares lock times with the machine's clock, and no lock
    may expire for it during a test.
    """
    import time

    return FakeClock(round((time.time() + 300) * 1000))
