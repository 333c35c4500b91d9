"""Runs everything that makes a worker visible: observer, telemetry, status server, pauses and systemd notifications."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

from syphon.config import Config, ListenAddress
from syphon.control import ControlServer
from syphon.ledger import LedgerWriter
from syphon.worker import Pauses, Worker

from .history import LastSuccess
from .logs import RecentEvents
from .observer import Observer, not_connected
from .operator_api import DeadLetterApi, OperatorApis, PauseApi, WorkerApi
from .snapshot import WorkerState, WorkerStatus
from .status_server import StatusServer
from .systemd import STOPPING, Notifier
from .telemetry import Telemetry

log = logging.getLogger(__name__)


class StatusService:
    """Observes a worker: the worker's loop calls `loop_turned` at each turn."""

    def __init__(self, config: Config, pauses: Pauses, events: RecentEvents, settings_file: str = "FILE") -> None:
        self.pauses = pauses
        self.address = config.status.listen
        self.observer = Observer(config, pauses, events, LastSuccess(config.state_file), settings_file=settings_file)
        self.telemetry = Telemetry(config, self.observer)
        self.dead_letter_api = DeadLetterApi(config.pairs)
        self.worker_api = WorkerApi()
        self._notifier = Notifier()
        self._worker: Worker | None = None
        self._is_stopping = False
        self._logged: set[str] = set()
        """The kinds of errors that were logged: each is logged once."""

    def listens_on(self, port: int) -> None:
        """Record the port of the status server, which the system may have chosen."""
        self.address = ListenAddress(self.address.host, port)

    def attach(self, worker: Worker, control_server: ControlServer, ledger_writer: LedgerWriter) -> None:
        """Begins to observe the worker."""
        self._worker = worker
        self.worker_api.attach(worker)
        self.observer.attach(worker, control_server, ledger_writer)
        if self.telemetry.tracing is not None:
            control_server.collect_traces(self.telemetry.tracing.waiting)

    def loop_turned(self) -> None:
        """Does the work of one turn. An error here is logged and must not end a worker that forwards messages."""
        for step in (self.observer.loop_turned, self._trace, self._notify):
            try:
                step()
            except Exception as error:
                kind = type(error).__name__
                if kind not in self._logged:
                    log.exception(
                        "the worker still forwards messages, but its status and metrics may be out of date: %s", kind
                    )
                self._logged.add(kind)

    def _trace(self) -> None:
        if self.telemetry.tracing is not None:
            self.telemetry.tracing.export()

    def _notify(self) -> None:
        """Notifies systemd. This is the only place that notifies the watchdog."""
        if self._worker is not None and self._worker.is_stopping and not self._is_stopping:
            self._is_stopping = True
            self.dead_letter_api.stop()
            self._notifier.stopping()
        self._notifier.loop_turned(not self.observer.trouble(), _status_line(self.observer.status))


@contextmanager
def serving_status(config: Config, settings_file: str = "FILE") -> Iterator[StatusService]:
    """Serves the status of the worker that is about to start, until the block ends.

    `settings_file` is what the commands in it name.
    """
    events = RecentEvents()
    logging.getLogger("syphon").addHandler(events)
    try:
        service = StatusService(config, Pauses(config.state_file), events, settings_file)
        observer, dead_letters = service.observer, service.dead_letter_api
        apis = OperatorApis(PauseApi(config.pairs, service.pauses), dead_letters, service.worker_api)
        try:
            with (
                closing(dead_letters),
                StatusServer(config.status, observer, apis, service.telemetry.prometheus) as server,
                observer.backlog_counts,
                observer.canaries,
            ):
                service.listens_on(server.port)
                yield service
        finally:
            observer.last_success.write()
            service.telemetry.close()
    finally:
        logging.getLogger("syphon").removeHandler(events)


def _status_line(status: WorkerStatus) -> str:
    """One line for `systemctl status`."""
    if status.state is WorkerState.STOPPING:
        return STOPPING
    faults = [f"{pair.name}: {pair.fault.side}: {pair.fault.reason}" for pair in status.pairs if pair.fault is not None]
    unreachable = status.not_ready or not_connected(status.pairs)
    if faults or unreachable:
        return f"{'faulted' if faults else 'unreachable'}: {'; '.join(faults or unreachable)}"[:300]
    if status.spark is not None and status.spark.error is not None:
        return f"Spark does not run: {status.spark.error}"[:300]
    rate = sum(pair.per_second for pair in status.pairs)
    return (
        f"{status.totals.forwarded:,} forwarded, {status.totals.dead_lettered:,} dead-lettered, {rate:,.0f} per second"
    )
