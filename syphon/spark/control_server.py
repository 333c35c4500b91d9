"""The control server on the driver: tasks report to it while they work, and it answers with orders (D7).

Spark returns the rows of a task only when the task ends, and gives a task no notice that it should stop. So each task
posts a report over HTTP about once a second. The server refuses requests that do not carry the secret of this run.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from aiohttp import web
from pydantic import ValidationError

from syphon.model import QueueKey
from syphon.transfer import BatchTrace

from .control_protocol import REPORT_PATH, AttemptKey, ControlAddress, SlotOrder, SlotReport
from .totals import QueueTotals

LARGEST_REPORT = 4 * 1024 * 1024
FRESH = 5.0
"""Seconds after its last report in which a task still counts as one that shares the rate of its pair."""


class Traced(NamedTuple):
    """A batch that a task has traced, and its backlog queue."""

    queue: QueueKey
    trace: BatchTrace


class PauseState(Protocol):
    """What the operator has paused, as far as slots must respect it."""

    def holds_queue(self, pair: str, queue: str) -> bool: ...

    def destinations(self, pair: str) -> tuple[str, ...]: ...


class NothingPaused:
    """For a drain, which has no pauses."""

    def holds_queue(self, pair: str, queue: str) -> bool:  # noqa: ARG002
        return False

    def destinations(self, pair: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()


class ControlServer:
    """Keeps the reports of all attempts, and answers each with an order. The HTTP server has a thread of its own."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        listen: str | None = None,
        now: Callable[[], float] = time.monotonic,
        pauses: PauseState | None = None,
    ) -> None:
        """Tasks connect to `host`. The server listens on `listen` if that is a different address."""
        self._host = host
        self._listen = listen or host
        self._now = now
        self._secret = secrets.token_urlsafe(32)
        self._reports: dict[AttemptKey, SlotReport] = {}
        self._heard: dict[AttemptKey, float] = {}
        self._open_jobs: set[str] = set()
        self._superseded: dict[str, frozenset[str]] = {}
        self._stopping = False
        self._rates: dict[str, float | None] = {}
        self._totals: dict[QueueKey, QueueTotals] = {}
        self._pauses = pauses or NothingPaused()
        self._traces: deque[Traced] | None = None
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self.address = ControlAddress(host, 0, self._secret)

    # --- for the driver ------------------------------------------------------------------------------------------

    def open_job(self, job: str) -> None:
        """Lets the tasks of this job work."""
        with self._lock:
            self._open_jobs.add(job)

    def close_job(self, job: str) -> list[SlotReport]:
        """Ends a job and returns its reports.

        A task of it that still runs (Spark lost its executor, but the process lives on) is told to stop.
        """
        with self._lock:
            self._open_jobs.discard(job)
            keys = [key for key in self._reports if key.job == job]
            for key in keys:
                self._heard.pop(key, None)
            reports = [self._reports.pop(key) for key in sorted(keys)]
            if reports:
                self._totals.setdefault(reports[0].queue_key, QueueTotals()).end_job(reports)
            return reports

    def collect_traces(self, into: deque[Traced]) -> None:
        """Asks tasks to trace their batches from now on, and appends the traces to `into`."""
        self._traces = into

    def stop_all(self) -> None:
        """Orders every task to stop, in the answer to its next report."""
        self._stopping = True

    def supersede(self, pair: str) -> None:
        """Orders the running tasks of this pair to stop at their next report: the settings of the pair have changed."""
        with self._lock:
            self._superseded[pair] = frozenset(self._open_jobs)

    def set_rate(self, pair: str, rate: float | None) -> None:
        """Sets the messages a second that all tasks of a pair may take together."""
        self._rates[pair] = rate

    def live_reports(self) -> list[SlotReport]:
        """The newest report of each attempt of the jobs that run now."""
        with self._lock:
            return list(self._reports.values())

    def queue_totals(self) -> dict[QueueKey, QueueTotals]:
        """The totals of each queue, with the jobs that run now. No count ever goes down."""
        with self._lock:
            live: dict[QueueKey, list[SlotReport]] = {}
            for report in self._reports.values():
                live.setdefault(report.queue_key, []).append(report)
            return {
                key: self._totals.get(key, QueueTotals()).including(live.get(key, ()))
                for key in self._totals.keys() | live.keys()
            }

    def order_for(self, report: SlotReport) -> SlotOrder:
        """What the task that sent this report must do next."""
        with self._lock:
            outdated = any(
                key.job == report.job and key.slot == report.slot and key.attempt > report.attempt
                for key in self._reports
            )
            superseded = report.job in self._superseded.get(report.pair, ())
            paused = self._pauses.holds_queue(report.pair, report.queue)
            if self._stopping or report.job not in self._open_jobs or outdated or superseded or paused:
                return SlotOrder(stop=True)
            rate = self._rates.get(report.pair)
            share = None if rate is None else rate / max(1, self._working(report.pair))
            return SlotOrder(rate=share, paused=self._pauses.destinations(report.pair), traces=self._traces is not None)

    def _working(self, pair: str) -> int:
        now = self._now()
        return sum(
            report.pair == pair and not report.finished and now - self._heard.get(key, 0.0) < FRESH
            for key, report in self._reports.items()
        )

    def receive(self, report: SlotReport) -> SlotOrder:
        """Keeps a report, and answers it with an order."""
        if self._traces is not None:
            self._traces.extend(Traced(report.queue_key, trace) for trace in report.traces)
        with self._lock:
            if report.job in self._open_jobs:
                # Each trace is passed on once; it is no part of the totals.
                self._reports[report.key] = report.model_copy(update={"traces": ()})
                self._heard[report.key] = self._now()
        return self.order_for(report)

    # --- the server ----------------------------------------------------------------------------------------------

    def __enter__(self) -> ControlServer:
        ready: Future[int] = Future()
        self._thread = threading.Thread(target=self._serve, args=(ready,), name="control server", daemon=True)
        self._thread.start()
        self.address = ControlAddress(self._host, ready.result(), self._secret)
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self, ready: Future[int]) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=LARGEST_REPORT)
        app.router.add_post(REPORT_PATH, self._on_report)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        try:
            try:
                ready.set_result(self._loop.run_until_complete(self._start(runner)))
            except Exception as error:  # __enter__ raises it
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

    async def _on_report(self, request: web.Request) -> web.Response:
        said = request.headers.get("Authorization", "")
        if not hmac.compare_digest(said.encode(), f"Bearer {self._secret}".encode()):
            return web.Response(status=401)
        try:
            report = SlotReport.model_validate_json(await request.read())
        except ValidationError:
            return web.Response(status=400)
        return web.Response(body=self.receive(report).model_dump_json(), content_type="application/json")
