"""The ledger writer: it writes the ledger in a thread of its own, so that no transfer waits for the ledger (D9)."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from .schema import Attempt
from .store import Ledger, LedgerUnwritable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

MOST_WAITING = 32
"""Jobs whose rows wait to be written. With more, the next job waits: Spark holds the rows until they are written."""


class LedgerWriter:
    """Writes the rows of one job after the other, in a thread of its own."""

    def __init__(self, ledger: Ledger) -> None:
        self.error = ""
        """Why the last rows could not be written; empty if they were written."""
        self._ledger = ledger
        self._work: queue.Queue[tuple[DataFrame | None, Sequence[Attempt]] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="ledger writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, transfers: DataFrame | None, attempts: Sequence[Attempt]) -> None:
        """Queues a job to be recorded. Its rows, if there are any, must be persisted; the writer unpersists them."""
        self._work.put((transfers, attempts))

    def catch_up(self) -> None:
        """Waits until every job that was queued so far is written."""
        self._work.join()

    def finish(self, within: float) -> None:
        """Writes the jobs that are still queued, and ends the thread."""
        deadline = time.monotonic() + within
        with suppress(queue.Full):  # the writer is too far behind to finish in time
            self._work.put(None, timeout=within)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._log_error(f"The ledger at {self._ledger.path} was not written in time: it is not complete.")

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            transfers, attempts = work
            written = transfers is None or self._try(partial(self._ledger.write, transfers))
            # Attempts are recorded even if their rows are not: the difference between the two is what is missing.
            noted = self._try(partial(self._ledger.note, attempts))
            if written and noted:
                self.error = ""
            unpersist_rows(transfers)
            self._work.task_done()

    def _try(self, step: Callable[[], None]) -> bool:
        try:
            step()
            return True
        except LedgerUnwritable as error:
            self._log_error(str(error))
        except Exception as error:  # Spark has stopped: the next job fails, and says so
            self._log_error(f"The ledger at {self._ledger.path} could not be written: {type(error).__name__}.")
            log.debug("error while writing the ledger", exc_info=True)
        return False

    def _log_error(self, text: str) -> None:
        if text != self.error:
            log.error("%s", text)
        self.error = text


def unpersist_rows(transfers: DataFrame | None) -> None:
    """Frees persisted rows. An error is ignored: if Spark has stopped, the rows are gone as well."""
    try:
        if transfers is not None:
            transfers.unpersist()
    except Exception:
        log.debug("error while unpersisting rows", exc_info=True)
