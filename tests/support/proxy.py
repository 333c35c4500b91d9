"""A TCP proxy with a delay, whose connections can go half-open.

`python -m tests.support.proxy PORT [MILLISECONDS]` prints the port on which it listens. Every byte arrives so many
milliseconds late, in both directions.

On SIGUSR1 all present connections go half-open, forever: both ends stay open, and no byte passes any more. New
connections work.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

CHUNK = 262_144


class Proxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, target: int, delay: float) -> None:
        self._target = target
        self._delay = delay
        self._open: set[_Tunnel] = set()

    async def serve(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self.stall)
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    def stall(self) -> None:
        """Makes all present connections half-open."""
        for tunnel in self._open:
            tunnel.stall()
        print(f"{len(self._open)} connections are half-open", file=sys.stderr, flush=True)
        self._open.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tunnel = _Tunnel(self._delay)
        self._open.add(tunnel)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(tunnel.forward(reader, far_writer), tunnel.forward(far_reader, writer))
        self._open.discard(tunnel)


class _Tunnel:
    """One connection through the proxy."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._passing = asyncio.Event()
        self._passing.set()

    def stall(self) -> None:
        self._passing.clear()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction. Each piece leaves `delay` after it came. Several are on the way at once, as on a long line."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._passing.wait()
                if self._delay:
                    loop.call_later(self._delay, self._deliver, writer, data)
                else:
                    writer.write(data)
                    await writer.drain()
        await self._passing.wait()  # the far end of a half-open connection does not even learn that it was closed
        loop.call_later(self._delay, self._close, writer)

    def _deliver(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self._passing.is_set() and not writer.is_closing():
            writer.write(data)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        if self._passing.is_set():
            writer.close()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Proxy(int(sys.argv[1]), float(sys.argv[2] if len(sys.argv) > 2 else 0) / 1000).serve())
