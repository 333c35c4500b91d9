"""The reporter of a slot: it sends the slot's reports to the driver, and keeps the order that came back (D7).

It has a thread of its own: the pump must not wait for the driver, and the driver may hold an answer.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable

from syphon.model import SyphonError

from .control_protocol import REPORT_PATH, SIGNATURE, ControlAddress, SlotOrder, SlotReport
from .control_signature import Purpose, fits, is_made_with, signature

NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
"""Raised when a report does not arrive, or its answer is not valid."""
REPORT_EVERY = 1.0
SHORTEST_PAUSE = 0.05
"""Seconds between two reports, at least: a driver with much news must not be flooded."""
SILENCE = 5.0
"""Seconds without an answer from the driver after which a slot stops: its work would be on no record."""


class DriverUnreachable(SyphonError):
    """The slot cannot reach the control server on the driver."""


class Reporter:
    """Reports the progress of a slot to the driver, and keeps the newest order."""

    def __init__(
        self,
        control: ControlAddress,
        report: Callable[[], SlotReport],
        on_silence: Callable[[], None],
        awaits_queues: bool = False,
    ) -> None:
        """`report` makes the present report; `on_silence` is called when the driver has gone.

        With `awaits_queues` the driver may hold its answers, so that a queue that rings comes to this slot at once.
        """
        self._control = control
        self._report = report
        self._on_silence = on_silence
        self._hold = REPORT_EVERY if awaits_queues else 0.0
        self.order = SlotOrder()
        """The last order. Another thread reads it."""
        self._sent = 0
        """The number of the last report."""
        self._over = threading.Event()
        self._heard_at = time.monotonic()
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        # The first report goes out before the pump takes its first message: a job that is over must take none, and
        # work that the driver cannot hear of must not be done. Spark retries the task, and then fails the job.
        try:
            self.order = self._post(hold=0.0)
        except NO_ANSWER as error:
            self._disconnect()
            where = f"{self._control.host}:{self._control.port}"
            raise DriverUnreachable(f"The driver does not answer at {where}: {type(error).__name__} {error}") from None
        self._thread.start()

    def end(self) -> None:
        """Sends the last report of this attempt."""
        self._over.set()
        self._thread.join()
        self._exchange(hold=0.0)
        self._disconnect()

    def _run(self) -> None:
        pause = REPORT_EVERY
        while not self._over.wait(pause):
            was_heard = self._exchange(self._hold)
            pause = SHORTEST_PAUSE if self._hold and was_heard and not self.order.stop else REPORT_EVERY

    def _exchange(self, hold: float) -> bool:
        """Sends a report, and takes the order. Returns whether the driver answered."""
        try:
            self.order = self._post(hold)
        except NO_ANSWER:
            self._disconnect()
            if time.monotonic() - self._heard_at > SILENCE:
                self._on_silence()
            return False
        self._heard_at = time.monotonic()
        return True

    def _post(self, hold: float) -> SlotOrder:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                self._control.host, self._control.port, timeout=REPORT_EVERY + SILENCE / 2
            )
        secret = self._control.secret
        report = self._report()
        self._sent += 1
        report.hold, report.number = hold, self._sent
        content = report.model_dump_json().encode()
        signed = signature(secret, Purpose.REPORT, content)
        headers = {SIGNATURE: signed, "Content-Type": "application/json"}
        self._connection.request("POST", REPORT_PATH, content, headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise http.client.HTTPException(f"the driver answered {response.status}")
        answered = response.headers.get(SIGNATURE, "")
        if not (is_made_with(secret, Purpose.ORDER, answered, answers=signed) and fits(answered, body)):
            raise http.client.HTTPException("the answer is not signed by the driver")
        return SlotOrder.model_validate_json(body)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
