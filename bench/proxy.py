"""A TCP proxy that makes every byte late: `python -m bench.proxy PORT MILLISECONDS` prints where it listens."""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def main(target: int, delay: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(_carry(reader, far_writer, delay), _carry(far_reader, writer, delay))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    """One direction: each piece leaves `delay` after it came, and pieces overlap on the way, as on a long line."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await reader.read(262_144):
            loop.call_later(delay, _deliver, writer, data)
    loop.call_later(delay, writer.close)


def _deliver(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]) / 1000))
