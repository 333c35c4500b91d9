"""The control server on the driver: slots report to it while they work, and it answers with orders (D7, D15).

Spark returns the rows of a task only when the task ends, and gives a task no notice that it should stop. So each slot
posts a report over HTTP about once per second. The server holds its answer until it has something new to say, for as
long as the slot allows. It refuses reports that are not signed with the secret of this run, and replayed ones.
The connection of a slot stays open. Other connections are limited in number and life (`bounded_connections`).
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress

from aiohttp import web
from pydantic import ValidationError

from syphon.bounded_connections import Connections
from syphon.model import Counters
from syphon.time_budget import LONGEST_HOLD

from .protocol import (
    REPORT_PATH,
    SIGNATURE,
    ControlAddress,
    Purpose,
    SlotOrder,
    SlotReport,
    fits,
    is_made_with,
    signature,
)
from .slot_control import PauseState, SlotControl, no_progress

LARGEST_REPORT = 16 * 1024 * 1024


class ControlServer(SlotControl):
    """The control of slots over HTTP. The server has a thread of its own."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        listen: str | None = None,
        now: Callable[[], float] = time.monotonic,
        pauses: PauseState | None = None,
        on_progress: Callable[[str, Mapping[str, Counters]], None] = no_progress,
    ) -> None:
        """Slots connect to `host`. The server listens on `listen` if that is a different address."""
        super().__init__(now, pauses, on_progress)
        self._place = host, listen or host
        self._secret = secrets.token_urlsafe(32)
        self._loop = asyncio.new_event_loop()
        self._connections = Connections(self._loop)
        self._listener: asyncio.Server | None = None
        self._news = asyncio.Event()
        self._thread: threading.Thread | None = None
        self.address = ControlAddress(host, 0, self._secret)

    def _tell(self) -> None:
        """Wakes the answers that are held."""
        with suppress(RuntimeError):  # the server does not run
            self._loop.call_soon_threadsafe(self._news.set)

    # --- the server ----------------------------------------------------------------------------------------------

    def __enter__(self) -> ControlServer:
        self.serve(*self._place)
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def serve(self, host: str, listen: str) -> None:
        """Serves slots at this address. Each start of Spark calls it: its driver may have moved to another address."""
        if self._thread is not None and self._place == (host, listen):
            return
        self.close()
        self._place = host, listen
        self._loop = asyncio.new_event_loop()
        self._connections = Connections(self._loop)
        self._news = asyncio.Event()
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="control server", daemon=True)
        self._thread.start()
        try:
            self.address = ControlAddress(host, ready.result(), self._secret)
        except Exception:
            self.close()
            raise

    def close(self) -> None:
        """Ends the server, if it runs."""
        if self._thread is not None:
            with suppress(RuntimeError):  # it could not listen, and has ended
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None
        self._loop.close()

    def _serve(self, ready: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=LARGEST_REPORT)
        app.router.add_post(REPORT_PATH, self._on_report)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        try:
            try:
                ready.set_result(self._loop.run_until_complete(self._start(runner)))
            except Exception as error:  # `serve` raises it
                ready.set_exception(error)
            else:
                self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end(runner))
            self._loop.close()

    async def _start(self, runner: web.AppRunner) -> int:
        await runner.setup()
        server = runner.server
        assert server is not None
        self._listener = await self._connections.listen(server, self._place[1], 0)
        port: int = self._listener.sockets[0].getsockname()[1]
        return port

    async def _end(self, runner: web.AppRunner) -> None:
        if self._listener is not None:
            self._listener.close()
        await runner.cleanup()
        self._connections.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _on_report(self, request: web.Request) -> web.Response:
        signed = request.headers.get(SIGNATURE, "")
        if not is_made_with(self._secret, Purpose.REPORT, signed):
            return web.Response(status=401)
        self._connections.trust(request.transport)
        content = await request.read()
        if not fits(signed, content):
            return web.Response(status=401)
        try:
            report = SlotReport.model_validate_json(content)
        except ValidationError:
            return web.Response(status=400)
        if self.is_repeated(report):
            return web.Response(status=409)
        order = (await self._held(self.receive(report), report)).model_dump_json().encode()
        headers = {SIGNATURE: signature(self._secret, Purpose.ORDER, order, answers=signed)}
        return web.Response(body=order, content_type="application/json", headers=headers)

    async def _held(self, order: SlotOrder, report: SlotReport) -> SlotOrder:
        """Holds an order that says nothing new, until there is news or the time is over."""
        deadline = self._loop.time() + min(report.hold, LONGEST_HOLD)
        while not is_news(order, report) and (left := deadline - self._loop.time()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
            self._news.clear()
            order = self.order_for(report)
        return order


def is_news(order: SlotOrder, report: SlotReport) -> bool:
    """Whether an order must reach its slot at once: to stop, to retry, or to serve a queue that it does not serve."""
    known = {queue.queue: queue.number for queue in report.queues}
    return (
        order.stop
        or order.retries > report.retries
        or any(known.get(handed.queue, 0) < handed.number for handed in order.queues)
    )
