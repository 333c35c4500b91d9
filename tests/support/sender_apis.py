"""The sync API and the asyncio API behind one interface, so that each test is written once and runs on both."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from syphon import sender
from syphon.sender import aio


class ManualClock:
    """A clock that a test moves: the one for the sync API."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._changed = threading.Condition()
        self._waits: list[float] = []

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        with self._changed:
            self._now += seconds
            self._changed.notify_all()

    def wait(self, event: threading.Event, seconds: float) -> None:
        until = self._begin(seconds)
        with self._changed:
            while self._now < until and not event.is_set():
                self._changed.wait(0.01)
            self._waits.remove(until)

    def _begin(self, seconds: float) -> float:
        with self._changed:
            until = self._now + seconds
            self._waits.append(until)
            return until

    def waits(self) -> list[float]:
        """How many seconds each present wait still has to go."""
        with self._changed:
            return [round(until - self._now, 6) for until in self._waits]


class AioManualClock(ManualClock):
    async def wait(self, event: asyncio.Event, seconds: float) -> None:  # type: ignore[override]
        until = self._begin(seconds)
        try:
            while self._now < until and not event.is_set():
                await asyncio.sleep(0.01)
        finally:  # the waiting task may be cancelled
            self._waits.remove(until)


class SyncApi:
    """The sync API."""

    name = "sync"
    clock_type: type[ManualClock] = ManualClock

    def start(self) -> None:
        pass

    def client(self, connection_string: str, **options: Any) -> Any:
        return ServiceBusClient.from_connection_string(connection_string, **{"retry_total": 0, **options})

    def pair(self, *arguments: Any, **options: Any) -> Any:
        return sender.pair(*arguments, **options)

    def close(self, thing: Any) -> None:
        thing.close()

    def run(self, make: Callable[[], Any], within: float = 60) -> Any:
        """Calls a method of the SDK, and waits for its result."""
        return make()

    def stop(self) -> None:
        pass


class AioApi(SyncApi):
    """The asyncio API, on an event loop in its own thread."""

    name = "aio"
    clock_type = AioManualClock

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def client(self, connection_string: str, **options: Any) -> Any:
        async def make() -> Any:
            return AsyncServiceBusClient.from_connection_string(connection_string, **{"retry_total": 0, **options})

        return self.run(make)

    def pair(self, *arguments: Any, **options: Any) -> Any:
        async def make() -> Any:
            return await aio.pair(*arguments, **options)

        return _BlockingProxy(self.run(make), self)

    def close(self, thing: Any) -> None:
        thing.close() if isinstance(thing, _BlockingProxy) else self.run(thing.close)

    def run(self, make: Callable[[], Any], within: float = 60) -> Any:
        async def call() -> Any:
            made = make()
            return await made if inspect.isawaitable(made) else made

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(within)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _BlockingProxy:
    """An object of the asyncio API whose methods wait for their results."""

    def __init__(self, thing: Any, api: AioApi) -> None:
        self._thing = thing
        self._api = api

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thing, name)
        if not inspect.ismethod(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            result = self._api.run(lambda: value(*arguments, **options))
            return _BlockingProxy(result, self._api) if isinstance(result, aio.PairedSender) else result

        return call


APIS: dict[str, type[SyncApi]] = {"sync": SyncApi, "aio": AioApi}


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[Callable[[], Any]]:
    """Does work in a thread. Yields a function that waits for it, and returns its result or raises its error."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((work(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def result() -> Any:
        thread.join(60)
        assert outcome, "the thread is still at work"
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    yield result
    thread.join(60)
