"""A TCP proxy whose connections can go half-open: `python -m tests.support.proxy PORT` prints where it listens.

On SIGUSR1 every connection that there is goes half-open, for ever: both ends stay as they are, and no byte passes any
more. New ones pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys


async def main(target: int) -> None:
    passing: set[asyncio.Event] = set()

    def stall() -> None:
        for each in passing:
            each.clear()
        print(f"{len(passing)} connections are half-open", file=sys.stderr, flush=True)
        passing.clear()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passes = asyncio.Event()
        passes.set()
        passing.add(passes)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(_carry(reader, far_writer, passes), _carry(far_reader, writer, passes))
        passing.discard(passes)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stall)
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            await passes.wait()
            writer.write(data)
            await writer.drain()
    await passes.wait()  # not even the end of a half-open connection is heard
    writer.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
