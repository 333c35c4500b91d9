"""An emulator for synchronous code: it runs in its own thread, and `call` runs a function in that thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from .clock import MovableClock
from .server import Emulator, RunningNamespace
from .settings import EmulatorSettings

T = TypeVar("T")


class BackgroundEmulator:
    """A local Service Bus: `with BackgroundEmulator(settings) as emulator: …`."""

    def __init__(self, settings: EmulatorSettings | None = None, *, clock: MovableClock | None = None) -> None:
        self._emulator = Emulator(settings, clock=clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="emulator", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __getitem__(self, name: str) -> RunningNamespace:
        return self._emulator[name]

    @property
    def namespaces(self) -> list[RunningNamespace]:
        return self._emulator.namespaces

    @property
    def ca_file(self) -> Path | None:
        """The certificate that clients must trust, if TLS is on."""
        return self._emulator.ca_file

    def call(self, function: Callable[[], T]) -> T:
        """Runs a function in the thread of the emulator and returns its result. Every change must be made this way."""
        assert self._loop is not None  # entered

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def advance(self, seconds: float) -> None:
        """Moves the clock of the emulator forward. What is due until then has happened when this returns."""
        self.call(lambda: self._emulator.clock.advance(seconds))

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # raised again in __enter__
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._emulator:
            self._ready.set()
            await self._stop.wait()
