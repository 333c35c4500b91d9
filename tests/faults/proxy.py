"""A TCP proxy whose connections can go half-open: both ends stay as they are, and no byte passes any more."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Self


class Proxy:
    """In a thread of its own, in front of a port of this machine."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.stalled = 0
        """How many connections have gone half-open."""
        self._target = target
        self._passing: set[asyncio.Event] = set()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(30)

    def stall(self) -> None:
        """Every connection that there is goes half-open, for ever; new ones pass."""
        self._loop.call_soon_threadsafe(self._stall)

    def _stall(self) -> None:
        for passing in self._passing:
            self.stalled += 1
            passing.clear()
        self._passing.clear()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._serve())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing = asyncio.Event()
        passing.set()
        self._passing.add(passing)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await asyncio.gather(_carry(reader, far_writer, passing), _carry(far_reader, writer, passing))
        finally:
            self._passing.discard(passing)
            far_writer.close()
            writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            await passing.wait()
            writer.write(data)
            await writer.drain()
    await passing.wait()  # not even the end of a half-open connection is heard
    writer.close()
