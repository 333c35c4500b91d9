"""Watches the JVM of the Spark driver.

py4j tells that the JVM is gone only to a thread that calls it. A frozen JVM answers no call and ends no wait. So this
looks at the process itself.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress

from .ending import Ending
from .spark_watch import SparkLost, SparkWatch

__all__ = ["JvmWatch", "SparkLost"]


class JvmWatch(SparkWatch):
    """Says whether the JVM has ended, and ends this process if its own ending takes too long."""

    def __init__(self, jvm: subprocess.Popen[bytes] | None, ending: Ending, ends_process: bool = True) -> None:
        """`jvm` is None if another program started it: then only calls of Spark tell that it is gone."""
        super().__init__(ending, ends_process)
        self._jvm = jvm

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

    def _kill(self) -> None:
        if self._jvm is not None:
            with suppress(OSError):
                self._jvm.kill()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
