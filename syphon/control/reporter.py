"""The reporter of a slot: it sends the slot's reports to the driver, and keeps the order that answers them (D7).

It has a thread of its own: the pump must not wait for the driver, and the driver may hold an answer.
"""

from __future__ import annotations

import http.client
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import Protocol

from syphon.model import SyphonError
from syphon.servicebus import RUNTIME, Runtime
from syphon.time_budget import DRIVER_SILENCE, REPORT_ANSWER_WITHIN, REPORT_EVERY, SHORTEST_REPORT_DELAY

from .protocol import (
    REPORT_PATH,
    SIGNATURE,
    ControlAddress,
    Purpose,
    SlotOrder,
    SlotReport,
    fits,
    is_made_with,
    signature,
)

MOST_ROWS = 4 * 1024 * 1024
"""Bytes of rows in one report: a report must not exceed the size that the control server accepts."""
NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
"""Raised when a report does not arrive, or its answer is not valid."""


class DriverUnreachable(SyphonError):
    """The slot cannot reach the control server on the driver."""


class ControlClient(Protocol):
    """What connects a slot to the control server."""

    def post(self, report: SlotReport) -> SlotOrder:
        """Sends a report and waits for the order. Raises one of `NO_ANSWER`."""

    def close(self) -> None: ...


class HttpControlClient:
    """Posts signed reports over one HTTP connection, which is opened when it is first needed."""

    def __init__(self, address: ControlAddress) -> None:
        self._address = address
        self._connection: http.client.HTTPConnection | None = None

    def __str__(self) -> str:
        return f"{self._address.host}:{self._address.port}"

    def post(self, report: SlotReport) -> SlotOrder:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                self._address.host, self._address.port, timeout=REPORT_ANSWER_WITHIN
            )
        secret, content = self._address.secret, report.model_dump_json().encode()
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

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Reporter:
    """Reports the progress of a slot to the driver, and keeps the newest order."""

    def __init__(
        self,
        control: ControlClient,
        report: Callable[[], SlotReport],
        on_silence: Callable[[], None],
        awaits_queues: bool = False,
        runtime: Runtime = RUNTIME,
    ) -> None:
        """`report` makes the next report; `on_silence` is called when the driver has been silent for too long.

        With `awaits_queues` the driver may hold its answers, so that a queue that rings reaches this slot at once.
        """
        self._control = control
        self._report = report
        self._on_silence = on_silence
        self._hold = REPORT_EVERY if awaits_queues else 0.0
        self.order = SlotOrder()
        """The last order. Another thread reads it."""
        self._sent = 0
        """The number of the last report."""
        self._rows: deque[bytes] = deque()
        """Files of the ledger that the driver has not confirmed. The slot appends, the reporter's thread removes."""
        self._now = runtime.now
        self._over = runtime.event()
        self._heard_at = runtime.now()
        self._thread = runtime.thread(self._run, "reporter")

    def start(self) -> None:
        # The first report goes out before the pump receives a message: a job that is over must receive none, and work
        # that the driver cannot hear of must not be done. Spark retries the task, and then fails the job.
        try:
            self.order = self._post(hold=0.0)
        except NO_ANSWER as error:
            self._control.close()
            raise DriverUnreachable(
                f"The driver does not answer at {self._control}: {type(error).__name__} {error}. Let the executors "
                "reach it, or set pipeline.slot_reports to at_end (docs/clusters.md)"
            ) from None
        self._thread.start()

    def send_rows(self, file: bytes) -> bool:
        """Sends a file of the ledger with one of the next reports. Returns whether it is small enough for that."""
        if len(file) > MOST_ROWS:
            return False
        self._rows.append(file)
        return True

    def end(self) -> list[bytes]:
        """Sends the last report of this attempt. Returns the rows that the driver has not confirmed."""
        self._over.set()
        self._thread.join()
        self._exchange(hold=0.0)
        self._control.close()
        return list(self._rows)

    def _run(self) -> None:
        delay = REPORT_EVERY
        while not self._over.wait(delay):
            was_heard = self._exchange(self._hold)
            delay = SHORTEST_REPORT_DELAY if self._hold and was_heard and not self.order.stop else REPORT_EVERY

    def _exchange(self, hold: float) -> bool:
        """Sends a report, and keeps the order. Returns whether the driver answered."""
        try:
            self.order = self._post(hold)
        except NO_ANSWER:
            self._control.close()
            if self._now() - self._heard_at > DRIVER_SILENCE:
                self._on_silence()
            return False
        self._heard_at = self._now()
        return True

    def _post(self, hold: float) -> SlotOrder:
        report = self._report()
        self._sent += 1
        report.hold, report.number, report.rows = hold, self._sent, self._next_rows()
        order = self._control.post(report)
        for _ in report.rows:
            self._rows.popleft()
        return order

    def _next_rows(self) -> tuple[bytes, ...]:
        sizes = accumulate(map(len, list(self._rows)))
        return tuple(file for file, size in zip(list(self._rows), sizes, strict=False) if size <= MOST_ROWS)
