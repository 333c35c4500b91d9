"""Watches the JVM of the Spark driver, and the time of an ending.

py4j tells that the JVM is gone only to a thread that calls it, and an idle worker calls nothing for hours. A frozen JVM
answers no call and ends no wait. So a thread of its own looks at the process, twice a second.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress

from syphon.model import SyphonError

from .ending import Ending

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
TOO_LONG = "the ending took too long and was cut short; nothing is lost: messages in hand come again"


class SparkLost(SyphonError):
    """Spark has stopped: the worker must end, and start again with a new Spark."""


class JvmWatch:
    """Says whether the JVM has ended, and ends this process if its own ending takes too long."""

    def __init__(self, jvm: subprocess.Popen[bytes] | None, ending: Ending) -> None:
        """`jvm` is None if another program started it: then only calls of Spark tell that it is gone."""
        self._jvm = jvm
        self._ending = ending
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="JVM watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The JVM is about to be ended on purpose. If the process was told to end, its time is still watched."""
        self._over.set()

    @property
    def failure(self) -> SparkLost | None:
        """Why Spark cannot work any more; None while its JVM runs."""
        code = self._jvm.poll() if self._jvm is not None and not self._over.is_set() else None
        if code is None:
            return None
        how = f"was killed by signal {-code} ({_name(-code)})" if code < 0 else f"ended with exit code {code}"
        return SparkLost(
            f"Spark's JVM {how}. Nothing is lost: messages that were in hand come again. Start syphon again."
        )

    def wait_for_failure(self, seconds: float) -> SparkLost | None:
        """The same, for a caller whose call of Spark has just failed: a process that dies closes its sockets first."""
        if self._jvm is not None and not self._over.is_set():
            with suppress(subprocess.TimeoutExpired):
                self._jvm.wait(seconds)
        return self.failure

    def _run(self) -> None:
        while not self._ending.is_overdue:
            time.sleep(LOOK_EVERY)
            if self._over.is_set() and not self._ending.has_begun:
                return
        if self._jvm is not None:
            with suppress(OSError):
                self._jvm.kill()
        # In another thread: whatever holds up the ending may hold the log as well.
        said = threading.Thread(target=log.error, args=(TOO_LONG,), daemon=True)
        said.start()
        said.join(LOOK_EVERY)
        os._exit(self._ending.exit_code)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
