"""The driver's desk: tasks report here while they work, and hear here what to do (D7).

Spark brings a task's rows back only at its end, and gives it no notice that it should stop. So each task posts its
sheet over HTTP about once a second. Who does not know the secret of this run is turned away.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from aiohttp import web
from pydantic import ValidationError

from syphon.model import QueueKey, Stats
from syphon.transfer import BatchTrace

from .control_protocol import ControlAddress, SlotKey, SlotOrder, SlotReport
from .totals import Totals

LARGEST_SHEET = 4 * 1024 * 1024
FRESH = 5.0
"""Seconds within which a task must have been heard of to count as one that shares the rate."""


@dataclass(slots=True)
class QueueTotals:
    """What has become of the messages of one backlog queue since the driver started."""

    account: Totals = field(default_factory=Totals)
    census: Stats = field(default_factory=Stats)
    live: tuple[SlotReport, ...] = ()
    """Of the job that is under way."""
    last: tuple[SlotReport, ...] = ()
    """Of the job that has ended last."""

    def close(self, sheets: Iterable[SlotReport]) -> None:
        """A job has ended."""
        self.last = tuple(sheets)
        self.account = self.account.add(self.last)
        for sheet in self.last:
            self.census.add(sheet.stats)

    def now(self, live: Iterable[SlotReport]) -> QueueTotals:
        """This and what is under way."""
        census, sheets = Stats(), tuple(live)
        for part in (self.census, *(sheet.stats for sheet in sheets)):
            census.add(part)
        return QueueTotals(self.account.plus(sheets), census, sheets, self.last)


class Traced(NamedTuple):
    """A batch that a task has traced, and where it came from."""

    queue: QueueKey
    trace: BatchTrace


class PauseState(Protocol):
    """What the operator has paused, as far as a slot has to obey it."""

    def holds_queue(self, pair: str, queue: str) -> bool: ...

    def destinations(self, pair: str) -> tuple[str, ...]: ...


class NothingPaused:
    """For a drain, which cannot be paused."""

    def holds_queue(self, pair: str, queue: str) -> bool:  # noqa: ARG002
        return False

    def destinations(self, pair: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()


class ControlServer:
    """Keeps the sheets of all attempts, and gives orders. Its server has a thread of its own."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        listen: str | None = None,
        now: Callable[[], float] = time.monotonic,
        pauses: PauseState | None = None,
    ) -> None:
        """`host` is what tasks are told; it listens on `listen`, if that is another address."""
        self._host = host
        self._listen = listen or host
        self._now = now
        self._secret = secrets.token_urlsafe(32)
        self._sheets: dict[SlotKey, SlotReport] = {}
        self._heard: dict[SlotKey, float] = {}
        self._open_jobs: set[str] = set()
        self._superseded: dict[str, frozenset[str]] = {}
        self._stopping = False
        self._rates: dict[str, float | None] = {}
        self._standings: dict[QueueKey, QueueTotals] = {}
        self._pauses = pauses or NothingPaused()
        self._traces: deque[Traced] | None = None
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self.address = ControlAddress(host, 0, self._secret)

    # --- the driver's side ---------------------------------------------------------------------------------------

    def open_job(self, job: str) -> None:
        """Tasks of this job may work."""
        with self._lock:
            self._open_jobs.add(job)

    def close_job(self, job: str) -> list[SlotReport]:
        """Its sheets. A task of it that still runs (its executor is gone, and it is not) is told to stop."""
        with self._lock:
            self._open_jobs.discard(job)
            keys = [key for key in self._sheets if key.job == job]
            for key in keys:
                self._heard.pop(key, None)
            sheets = [self._sheets.pop(key) for key in sorted(keys)]
            if sheets:
                self._standings.setdefault(sheets[0].queue_key, QueueTotals()).close(sheets)
            return sheets

    def collect_traces(self, into: deque[Traced]) -> None:
        """Tasks trace their batches from now on, and the traces go there."""
        self._traces = into

    def stop_all(self) -> None:
        """Every task is told to stop when it reports next."""
        self._stopping = True

    def supersede(self, pair: str) -> None:
        """The tasks of this pair are told to stop when they report next: its settings are others from now on."""
        with self._lock:
            self._superseded[pair] = frozenset(self._open_jobs)

    def limit(self, pair: str, rate: float | None) -> None:
        """Messages a second for all tasks of a pair together."""
        self._rates[pair] = rate

    def sheets(self) -> list[SlotReport]:
        """What is under way."""
        with self._lock:
            return list(self._sheets.values())

    def standings(self) -> dict[QueueKey, QueueTotals]:
        """What has been done so far, by queue, with what is under way. No count ever goes down."""
        with self._lock:
            live: dict[QueueKey, list[SlotReport]] = {}
            for sheet in self._sheets.values():
                live.setdefault(sheet.queue_key, []).append(sheet)
            return {
                key: self._standings.get(key, QueueTotals()).now(live.get(key, ()))
                for key in self._standings.keys() | live.keys()
            }

    def order_for(self, sheet: SlotReport) -> SlotOrder:
        """What the task that sent this sheet is to do."""
        with self._lock:
            outdated = any(
                key.job == sheet.job and key.slot == sheet.slot and key.attempt > sheet.attempt for key in self._sheets
            )
            superseded = sheet.job in self._superseded.get(sheet.pair, ())
            paused = self._pauses.holds_queue(sheet.pair, sheet.queue)
            if self._stopping or sheet.job not in self._open_jobs or outdated or superseded or paused:
                return SlotOrder(stop=True)
            rate = self._rates.get(sheet.pair)
            share = None if rate is None else rate / max(1, self._working(sheet.pair))
            return SlotOrder(rate=share, paused=self._pauses.destinations(sheet.pair), traces=self._traces is not None)

    def _working(self, pair: str) -> int:
        now = self._now()
        return sum(
            sheet.pair == pair and not sheet.finished and now - self._heard.get(key, 0.0) < FRESH
            for key, sheet in self._sheets.items()
        )

    def take(self, sheet: SlotReport) -> SlotOrder:
        """A sheet comes in, an order goes out."""
        traces, sheet.traces = sheet.traces, ()  # told once: they are no part of the account
        if self._traces is not None:
            self._traces.extend(Traced(sheet.queue_key, trace) for trace in traces)
        with self._lock:
            if sheet.job in self._open_jobs:
                self._sheets[sheet.key] = sheet
                self._heard[sheet.key] = self._now()
        return self.order_for(sheet)

    # --- the server ----------------------------------------------------------------------------------------------

    def __enter__(self) -> ControlServer:
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="desk", daemon=True)
        self._thread.start()
        self.address = ControlAddress(self._host, ready.result(), self._secret)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self, ready: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=LARGEST_SHEET)
        app.router.add_post("/sheet", self._on_sheet)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        try:
            try:
                ready.set_result(self._loop.run_until_complete(self._start(runner)))
            except Exception as error:  # raised where somebody waits for it
                ready.set_exception(error)
            else:
                self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end(runner))
            self._loop.close()

    async def _start(self, runner: web.AppRunner) -> int:
        await runner.setup()
        site = web.TCPSite(runner, self._listen, 0)
        await site.start()
        port: int = runner.addresses[0][1]
        return port

    async def _end(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _on_sheet(self, request: web.Request) -> web.Response:
        said = request.headers.get("Authorization", "")
        if not hmac.compare_digest(said.encode(), f"Bearer {self._secret}".encode()):
            return web.Response(status=401)
        try:
            sheet = SlotReport.model_validate_json(await request.read())
        except ValidationError:
            return web.Response(status=400)
        return web.Response(body=self.take(sheet).model_dump_json(), content_type="application/json")
