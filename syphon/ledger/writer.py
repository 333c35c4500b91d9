"""The clerk: writes the ledger behind the back of the transfer, which never waits for it (D9)."""

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
"""Jobs whose rows wait to be written. With more, the next job waits: Spark keeps their rows until then."""


class LedgerWriter:
    """Has a thread of its own, and writes one job after the other."""

    def __init__(self, ledger: Ledger) -> None:
        self.error = ""
        """Why the last rows could not be written, if they could not."""
        self._ledger = ledger
        self._work: queue.Queue[tuple[DataFrame | None, Sequence[Attempt]] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="clerk", daemon=True)
        self._thread.start()

    def write(self, transfers: DataFrame | None, attempts: Sequence[Attempt]) -> None:
        """Puts a job on record, in its time. The rows, if there are any, are persisted, and let go of when written."""
        self._work.put((transfers, attempts))

    def catch_up(self) -> None:
        """Waits until everything that was handed in so far is written."""
        self._work.join()

    def finish(self, within: float) -> None:
        """Writes what there still is, and ends."""
        deadline = time.monotonic() + within
        with suppress(queue.Full):  # so far behind that it will not be done in time
            self._work.put(None, timeout=within)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._complain(f"The ledger at {self._ledger.path} was not written in time: it is not complete.")

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            transfers, attempts = work
            written = transfers is None or self._done(partial(self._ledger.write, transfers))
            # Noted even if the rows could not be written: what is missing is the difference between the two.
            noted = self._done(partial(self._ledger.note, attempts))
            if written and noted:
                self.error = ""
            let_go(transfers)
            self._work.task_done()

    def _done(self, step: Callable[[], None]) -> bool:
        try:
            step()
            return True
        except LedgerUnwritable as error:
            self._complain(str(error))
        except Exception as error:  # Spark is gone: whoever runs jobs notices, and says so
            self._complain(f"The ledger at {self._ledger.path} could not be written: {type(error).__name__}.")
            log.debug("writing the ledger", exc_info=True)
        return False

    def _complain(self, text: str) -> None:
        if text != self.error:
            log.error("%s", text)
        self.error = text


def let_go(transfers: DataFrame | None) -> None:
    """Spark need not keep these rows any longer. Where it is gone, they are gone with it."""
    try:
        if transfers is not None:
            transfers.unpersist()
    except Exception:
        log.debug("letting go of rows", exc_info=True)
