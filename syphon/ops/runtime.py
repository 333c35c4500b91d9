"""Everything that attends a running worker: it is observed, measured, served to who asks, and systemd is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from syphon.config import Config, ListenAddress
from syphon.ledger import LedgerWriter
from syphon.spark import ControlServer
from syphon.worker import Pauses, Worker

from .events import RecentEvents
from .observer import Observer
from .pause_api import Pausing
from .server import StatusServer
from .status import Status, WorkerState
from .systemd import STOPPING, Notifier
from .telemetry import Telemetry

log = logging.getLogger(__name__)


class Attendant:
    """Is told when the worker's loop turns, and does the rest."""

    def __init__(self, config: Config, pauses: Pauses, events: RecentEvents) -> None:
        self.pauses = pauses
        self.address = config.status.listen
        self.observer = Observer(config, pauses, events)
        self.telemetry = Telemetry(config, self.observer)
        self._notifier = Notifier()
        self._worker: Worker | None = None
        self._is_stopping = False
        self._told: set[str] = set()
        """What has gone wrong here, once each."""

    def attend(self, worker: Worker, desk: ControlServer, clerk: LedgerWriter) -> None:
        """Spark is up, and there is a worker."""
        self._worker = worker
        self.observer.attend(worker, desk, clerk)
        if self.telemetry.tracing is not None:
            desk.collect_traces(self.telemetry.tracing.waiting)

    def turned(self) -> None:
        """The worker's loop has turned. Who only looks on must not end a worker that works: what fails here is told."""
        for step in (self.observer.turned, self._trace, self._notify):
            try:
                step()
            except Exception as error:
                kind = type(error).__name__
                if kind not in self._told:
                    log.exception("messages are carried as before, but what is told of it may stand still: %s", kind)
                self._told.add(kind)

    def _trace(self) -> None:
        if self.telemetry.tracing is not None:
            self.telemetry.tracing.export()

    def _notify(self) -> None:
        """The only thing that feeds a watchdog."""
        if self._worker is not None and self._worker.is_stopping and not self._is_stopping:
            self._is_stopping = True
            self._notifier.stopping()
        self._notifier.turned(not self.observer.trouble(), _doing(self.observer.status))


@contextmanager
def attending(config: Config) -> Iterator[Attendant]:
    """Attends the worker that is about to start, until the block is left."""
    events = RecentEvents()
    logging.getLogger("syphon").addHandler(events)
    try:
        attendant = Attendant(config, Pauses(config.state_file), events)
        observer, telemetry = attendant.observer, attendant.telemetry
        pausing = Pausing(config.pairs, attendant.pauses)
        try:
            with StatusServer(config.status, observer, pausing, telemetry.prometheus) as server, observer.counting:
                attendant.address = ListenAddress(config.status.listen.host, server.port)
                yield attendant
        finally:
            telemetry.close()
    finally:
        logging.getLogger("syphon").removeHandler(events)


def _doing(status: Status) -> str:
    """One line for `systemctl status`."""
    if status.state is WorkerState.STOPPING:
        return STOPPING
    if status.not_ready:
        return f"out of reach: {'; '.join(status.not_ready)}"[:300]
    rate = sum(pair.per_second for pair in status.pairs)
    return f"{status.totals.forwarded:,} forwarded, {status.totals.dead_lettered:,} dead-lettered, {rate:,.0f} a second"
