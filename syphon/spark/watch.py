"""Watches Spark and the time of an ending: what is common to a JVM of our own (`jvm_watch`) and a Connect server.

A call of Spark tells that Spark is gone only to the thread that makes it, and an idle worker calls nothing for hours.
"""

from __future__ import annotations

import logging
import os
import threading
import time

from syphon.control import Ending
from syphon.model import SyphonError

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
TOO_LONG = "shutdown took too long and was aborted; no message is lost: those in flight are redelivered"


class SparkLost(SyphonError):
    """Spark has stopped: the worker must end, and start again with a new Spark."""


class SparkWatch:
    """Says whether Spark is lost, and ends this process if its own ending takes too long."""

    def __init__(self, ending: Ending, ends_process: bool = True) -> None:
        """`ends_process`: a command that takes too long to end is ended. A notebook or a program of others never is."""
        self._ending = ending
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="Spark watch", daemon=True) if ends_process else None

    def start(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def stop(self) -> None:
        """Spark is about to be ended on purpose. If the process was told to end, its time is still watched."""
        self._over.set()

    @property
    def failure(self) -> SparkLost | None:
        """Why Spark cannot work any more; None while it can, as far as is known."""
        return None

    def wait_for_failure(self, seconds: float) -> SparkLost | None:  # noqa: ARG002
        """The same, for a caller whose call of Spark has just failed: the reason may show a moment later."""
        return self.failure

    def _run(self) -> None:
        while not self._ending.is_overdue:
            time.sleep(LOOK_EVERY)
            if self._over.is_set() and not self._ending.has_begun:
                return
        self._kill()
        # In another thread: whatever holds up the ending may hold the log as well.
        said = threading.Thread(target=log.error, args=(TOO_LONG,), daemon=True)
        said.start()
        said.join(LOOK_EVERY)
        os._exit(self._ending.exit_code)

    def _kill(self) -> None:
        """Ends what this process has started and would leave behind."""
