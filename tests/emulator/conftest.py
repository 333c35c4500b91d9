"""Emulators to test with: real ones, on free ports of this machine."""

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
class Bench:
    """One namespace under test, in this very process."""

    running: RunningNamespace
    clock: FakeClock | None = None

    @property
    def namespace(self) -> BrokerNamespace:
        """The broker behind the sockets: entities are made here, faults set, counters read."""
        return self.running.namespace

    @property
    def connection_string(self) -> str:
        return self.running.connection_string


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A namespace in real time, for asynchronous clients."""
    async with Emulator(settings()) as emulator:
        yield Bench(emulator["contoso"])


@pytest.fixture
async def clocked() -> AsyncIterator[Bench]:
    """A namespace whose time is moved by hand: `clocked.clock.advance(seconds)`."""
    clock = now()
    async with Emulator(settings(), clock=clock) as emulator:
        yield Bench(emulator["contoso"], clock)


@pytest.fixture
def background() -> Iterator[BackgroundEmulator]:
    """An emulator in its own thread, for synchronous clients."""
    with BackgroundEmulator(settings()) as emulator:
        yield emulator


@pytest.fixture
def background_clocked() -> Iterator[BackgroundEmulator]:
    """The same with time moved by hand: `background_clocked.advance(seconds)`."""
    with BackgroundEmulator(settings(), clock=now()) as emulator:
        yield emulator


leftovers = pytest.mark.filterwarnings("ignore:(unclosed|loop is closed):ResourceWarning")


@pytest.fixture
def swept(request: pytest.FixtureRequest) -> Iterator[None]:
    """For tests that break connections: the SDK leaves what is left of one to the garbage collector. Here it is called.

    Such tests ignore the ResourceWarnings that come of it (`leftovers`); later tests must not meet them.
    """
    yield
    if not {"bench", "clocked"}.isdisjoint(request.fixturenames):
        gc.collect()


def now() -> FakeClock:
    """A fake clock that starts a few minutes from now: the SDK compares lock times with the machine's clock, and must
    never find that a lock has run out by itself, however long a test takes.
    """
    import time

    return FakeClock(round((time.time() + 300) * 1000))
