"""Watches a Spark Connect server.

PySpark repeats a call of a server that is gone for ten minutes before it says so. So this asks the server again and
again in a thread of its own, and looks itself whether the server's port still answers while the question is open.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

from .ending import Ending
from .spark_watch import LOOK_EVERY, SparkLost, SparkWatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASK_EVERY = 2.0
SOON = 1.0
"""Seconds after which an open question makes the watch look at the port. An answer takes milliseconds."""
SILENT = 60.0
"""Seconds without an answer after which the server counts as lost, although its port answers."""
CONSEQUENCE = "Nothing is lost: messages that were in hand come again. Start syphon again."


def ask(session: SparkSession) -> None:
    """Asks the server something that it must know. Raises what PySpark raises, if need be after minutes.

    PySpark keeps the answers of some calls, the version of Spark among them; it asks for a setting each time.
    """
    session.conf.get("spark.sql.session.timeZone")


class ConnectWatch(SparkWatch):
    """Says whether the server has gone or has forgotten the session, and watches the time of an ending."""

    def __init__(
        self, session: SparkSession, endpoint: tuple[str, int] | None, ending: Ending, ends_process: bool = True
    ) -> None:
        """`endpoint` is None if it is not known: then a server that is gone is noticed when it has been silent."""
        super().__init__(ending, ends_process)
        self._session = session
        self._endpoint = endpoint
        self._asked_at: float | None = None
        self._failure: SparkLost | None = None
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("ask Spark Connect", self._ask), ("Spark Connect watch", self._look))
        ]

    def start(self) -> None:
        super().start()
        for thread in self._threads:
            thread.start()

    @property
    def failure(self) -> SparkLost | None:
        return None if self._over.is_set() else self._failure

    def wait_for_failure(self, seconds: float) -> SparkLost | None:
        """The same, for a caller whose call of Spark has just failed: the watch looks twice a second."""
        deadline = time.monotonic() + seconds + SOON
        while self.failure is None and not self._over.is_set() and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.failure

    def _ask(self) -> None:
        while not self._over.is_set():
            self._asked_at = time.monotonic()
            try:
                ask(self._session)
            except Exception as error:
                self._lose(f"ended the session: {str(error).strip().partition(chr(10))[0].rstrip('.')}.")
                return
            self._asked_at = None
            self._over.wait(ASK_EVERY)

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY) and self._failure is None:
            asked_at = self._asked_at
            waited = 0.0 if asked_at is None else time.monotonic() - asked_at
            if waited > SILENT:
                self._lose(f"has not answered for {SILENT:.0f} seconds.")
            elif waited > SOON and (why := self._refusal()):
                self._lose(f"cannot be reached any more: {why}.")

    def _refusal(self) -> str:
        """Why the server's port accepts no connection; empty if it does, or says nothing."""
        if self._endpoint is None:
            return ""
        try:
            socket.create_connection(self._endpoint, SOON).close()
        except TimeoutError:
            return ""
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _lose(self, how: str) -> None:
        if self._failure is None:
            self._failure = SparkLost(f"The Spark Connect server {how} {CONSEQUENCE}")
