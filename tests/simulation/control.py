"""The control protocol in a simulated incident: reports and orders that are late, or lost on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from syphon.control.control_server import is_news
from syphon.control.protocol import SlotOrder, SlotReport
from syphon.control.slot_control import SlotControl
from syphon.time_budget import LONGEST_HOLD, REPORT_ANSWER_WITHIN

from .scheduler import Event, ProcessClock, VirtualTime
from .threads import SimulatedProcess

LATENCY = 0.002


@dataclass(slots=True)
class ControlConditions:
    """The state of the network between slots and driver. Faults change it."""

    loses_reports: bool = False
    loses_answers: bool = False
    delay: float = LATENCY


class SimulatedControl(SlotControl):
    """The product's control of slots. It holds answers in virtual time, as the control server does over HTTP."""

    def __init__(self, time: VirtualTime, clock: ProcessClock) -> None:
        super().__init__(clock.now)
        self.is_gone = False
        """Whether the driver has ended: nothing answers any more."""
        self._time = time
        self._held: dict[SlotReport, tuple[Callable[[SlotOrder], None], Event]] = {}

    def arrive(self, text: str, answer: Callable[[SlotOrder], None]) -> None:
        """A report arrives."""
        if self.is_gone:
            return
        report = HashableReport.model_validate_json(text)
        order = self.receive(report)
        if report.hold <= 0 or is_news(order, report):
            answer(order)
        else:
            timer = self._time.call_later(min(report.hold, LONGEST_HOLD), self._answer, report)
            self._held[report] = answer, timer

    def _tell(self) -> None:
        for report in list(self._held):
            if is_news(self.order_for(report), report):
                self._time.call_soon(self._answer, report)

    def _answer(self, report: SlotReport) -> None:
        found = self._held.pop(report, None)
        if found is not None and not self.is_gone:
            answer, timer = found
            timer.cancel()
            answer(self.order_for(report))


class HashableReport(SlotReport):
    """A report that is the key of its held answer: each is one of its own."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class SimulatedControlClient:
    """The way of one slot to the driver."""

    def __init__(self, process: SimulatedProcess, control: SimulatedControl, conditions: ControlConditions) -> None:
        self._process = process
        self._control = control
        self._conditions = conditions
        self.heard_at = process.clock.now()
        """When the slot last had an answer."""

    def __str__(self) -> str:
        return "the simulated driver"

    def post(self, report: SlotReport) -> SlotOrder:
        conditions, time, process = self._conditions, self._process.time, self._process
        if self._control.is_gone:
            raise ConnectionRefusedError(111, "Connection refused")
        answered, orders = process.runtime.event(), list[SlotOrder]()

        def answer(order: SlotOrder) -> None:
            if not conditions.loses_answers:
                time.call_later(conditions.delay, arrive, order)

        def arrive(order: SlotOrder) -> None:
            orders.append(order)
            answered.set()

        if not conditions.loses_reports:
            time.call_later(conditions.delay, self._control.arrive, report.model_dump_json(), answer)
        if not answered.wait(REPORT_ANSWER_WITHIN):
            raise TimeoutError("timed out")
        self.heard_at = process.clock.now()
        return orders[0]

    def close(self) -> None:
        """There is no connection to close."""
