"""The control server on the driver: slots report to it while they work, and it answers with orders (D7, D15).

Spark returns the rows of a task only when the task ends, and gives a task no notice that it should stop. So each slot
posts a report over HTTP about once a second. The server holds its answer until it has something new to say, for as long
as the slot allows. It refuses requests that do not carry the secret of this run.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple, Protocol

from aiohttp import web
from pydantic import ValidationError

from syphon.model import Counters, QueueKey
from syphon.transfer import BatchTrace

from .control_protocol import REPORT_PATH, AttemptKey, ControlAddress, HandOver, SlotOrder, SlotReport
from .totals import QueueAttempt, QueueTotals

LARGEST_REPORT = 16 * 1024 * 1024
FRESH = 5.0
"""Seconds after its last report in which a slot still counts as one that shares the rate of its pair."""
LONGEST_HOLD = 2.0
"""Seconds for which an answer is held, whatever the slot allows: it must hear from the driver."""


class Traced(NamedTuple):
    """A batch that a slot has traced, and its pair."""

    pair: str
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


def _ignore(job: str, counters: Mapping[str, Counters]) -> None:
    """Nobody keeps the progress of jobs."""


class ControlServer:
    """Keeps the reports of all attempts, and answers each with an order. The HTTP server has a thread of its own."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        listen: str | None = None,
        now: Callable[[], float] = time.monotonic,
        pauses: PauseState | None = None,
        on_progress: Callable[[str, Mapping[str, Counters]], None] = _ignore,
    ) -> None:
        """Slots connect to `host`. The server listens on `listen` if that is a different address.

        `on_progress` gets a job and what its slots have counted for each queue, with each report.
        """
        self._host = host
        self._listen = listen or host
        self._now = now
        self._on_progress = on_progress
        self._secret = secrets.token_urlsafe(32)
        self._reports: dict[AttemptKey, SlotReport] = {}
        self._heard: dict[AttemptKey, float] = {}
        self._jobs: dict[str, dict[str, HandOver]] = {}
        """The open jobs, and the queues that the slots of each serve."""
        self._stopped: set[str] = set()
        self._stopping = False
        self._rates: dict[str, float | None] = {}
        self._totals: dict[QueueKey, QueueTotals] = {}
        self._pauses = pauses or NothingPaused()
        self._traces: deque[Traced] | None = None
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._news = asyncio.Event()
        self.address = ControlAddress(host, 0, self._secret)

    # --- for the driver ------------------------------------------------------------------------------------------

    def open_job(self, job: str, queues: tuple[HandOver, ...] = ()) -> None:
        """Lets the slots of this job work on these queues."""
        with self._lock:
            self._jobs[job] = {handed.queue: handed for handed in queues}

    def hand_over(self, job: str, handed: HandOver) -> None:
        """Hands a queue to the slots of a job that runs."""
        with self._lock:
            if job in self._jobs:
                self._jobs[job][handed.queue] = handed
        self._tell()

    def take_back(self, job: str, queue: str) -> None:
        """The service of a queue has ended, as its slot has reported."""
        with self._lock:
            self._jobs.get(job, {}).pop(queue, None)

    def stop_job(self, job: str) -> None:
        """Orders the slots of a job to stop: they finish or give back what they have in hand."""
        with self._lock:
            self._stopped.add(job)
        self._tell()

    def close_job(self, job: str) -> list[SlotReport]:
        """Ends a job and returns its reports.

        A slot of it that still runs (Spark lost its executor, but the process lives on) is told to stop.
        """
        with self._lock:
            self._jobs.pop(job, None)
            self._stopped.discard(job)
            keys = [key for key in self._reports if key.job == job]
            for key in keys:
                self._heard.pop(key, None)
            reports = [self._reports.pop(key) for key in sorted(keys)]
            for queue, attempts in _by_queue(reports).items():
                self._totals.setdefault(queue, QueueTotals()).end_job(attempts)
            return reports

    def collect_traces(self, into: deque[Traced]) -> None:
        """Asks slots to trace their batches from now on, and appends the traces to `into`."""
        self._traces = into

    def stop_all(self) -> None:
        """Orders every slot to stop. Safe in a signal handler."""
        self._stopping = True
        self._tell()

    def set_rate(self, pair: str, rate: float | None) -> None:
        """Sets the messages a second that all slots of a pair may take together."""
        self._rates[pair] = rate

    def live_reports(self) -> list[SlotReport]:
        """The newest report of each attempt of the jobs that run now."""
        with self._lock:
            return list(self._reports.values())

    def report_of(self, job: str) -> SlotReport | None:
        """The newest report of the newest attempt of a job with one slot; None if it has not reported yet."""
        with self._lock:
            newest = max((key for key in self._reports if key.job == job), default=None)
            return None if newest is None else self._reports[newest]

    def queue_totals(self) -> dict[QueueKey, QueueTotals]:
        """The totals of each queue, with the jobs that run now. No count ever goes down."""
        with self._lock:
            live = _by_queue(self._reports.values())
            return {
                key: self._totals.get(key, QueueTotals()).including(live.get(key, ()))
                for key in self._totals.keys() | live.keys()
            }

    def order_for(self, report: SlotReport) -> SlotOrder:
        """What the slot that sent this report must do next."""
        with self._lock:
            outdated = any(
                key.job == report.job and key.slot == report.slot and key.attempt > report.attempt
                for key in self._reports
            )
            if self._stopping or report.job not in self._jobs or report.job in self._stopped or outdated:
                return SlotOrder(stop=True)
            rate = self._rates.get(report.pair)
            share = None if rate is None else rate / max(1, self._working(report.pair))
            handed = self._jobs[report.job].values()
            paused = tuple(each.queue for each in handed if self._pauses.holds_queue(report.pair, each.queue))
            return SlotOrder(
                queues=tuple(each for each in handed if each.queue not in paused),
                released=paused,
                rate=share,
                paused=self._pauses.destinations(report.pair),
                traces=self._traces is not None,
            )

    def _working(self, pair: str) -> int:
        now = self._now()
        return sum(
            report.pair == pair and not report.finished and now - self._heard.get(key, 0.0) < FRESH
            for key, report in self._reports.items()
        )

    def receive(self, report: SlotReport) -> SlotOrder:
        """Keeps a report, and answers it with an order."""
        if self._traces is not None:
            self._traces.extend(Traced(report.pair, trace) for trace in report.traces)
        counted: dict[str, list[Counters]] = {}
        with self._lock:
            if report.job in self._jobs:
                # Each trace is passed on once; it is no part of the totals.
                self._reports[report.key] = report.model_copy(update={"traces": ()})
                self._heard[report.key] = self._now()
                for each in (each for key, each in self._reports.items() if key.job == report.job):
                    for queue in each.queues:
                        counted.setdefault(queue.queue, []).append(queue.counters)
        if counted:
            self._on_progress(report.job, {queue: Counters.total(parts) for queue, parts in counted.items()})
        return self.order_for(report)

    def _tell(self) -> None:
        """Wakes the answers that are held."""
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._news.set)

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
        order = await self._held(self.receive(report), report)
        return web.Response(body=order.model_dump_json(), content_type="application/json")

    async def _held(self, order: SlotOrder, report: SlotReport) -> SlotOrder:
        """Holds an order that says nothing new, until there is news or the time is over."""
        deadline = self._loop.time() + min(report.hold, LONGEST_HOLD)
        known = {queue.queue: queue.number for queue in report.queues}
        while not _is_news(order, known) and (left := deadline - self._loop.time()) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
            self._news.clear()
            order = self.order_for(report)
        return order


def _is_news(order: SlotOrder, known: Mapping[str, int]) -> bool:
    """Whether an order must reach its slot at once: to stop, or to serve a queue that it does not serve yet."""
    return order.stop or any(known.get(handed.queue, 0) < handed.number for handed in order.queues)


def _by_queue(reports: Iterable[SlotReport]) -> dict[QueueKey, list[QueueAttempt]]:
    found: dict[QueueKey, list[QueueAttempt]] = {}
    for report in reports:
        for queue in report.queues:
            found.setdefault(report.key_of(queue), []).append(QueueAttempt(report, queue))
    return found
