"""A slot reports to its driver, and takes its orders: when, how often, and what silence means. Without threads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from syphon.control.protocol import SlotOrder, SlotReport
from syphon.control.reporter import MOST_ROWS, DriverUnreachable, Reporter
from syphon.servicebus import Runtime
from syphon.time_budget import DRIVER_SILENCE, REPORT_EVERY, SHORTEST_REPORT_DELAY


class Driver:
    """The driver, the clock and the thread of a reporter, in one: it notes what happens, in order."""

    def __init__(self, awaits_queues: bool = False) -> None:
        self.time = 1000.0
        self.log: list[str] = []
        self.holds: list[float] = []
        self.numbers: list[int] = []
        self.rows: list[tuple[bytes, ...]] = []
        self.pauses: list[float] = []
        self.silences = 0
        self.answers: list[SlotOrder | Exception] = []
        """One for each report; then the driver answers with an order to go on."""
        self.turns = 0
        runtime = SimpleNamespace(now=lambda: self.time, event=lambda: self, thread=lambda *_: self)
        self.reporter = Reporter(self, self.report, self.on_silence, awaits_queues, cast(Runtime, runtime))

    def report(self) -> SlotReport:
        return SlotReport(pair="contoso", job="1", slot=0, attempt=0, started_at=0)

    def on_silence(self) -> None:
        self.silences += 1

    # --- as a control client ---

    def post(self, report: SlotReport) -> SlotOrder:
        self.log.append("post")
        self.rows.append(report.rows)
        self.holds.append(report.hold)
        self.numbers.append(report.number)
        answer = self.answers.pop(0) if self.answers else SlotOrder()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.log.append("close")

    # --- as its thread ---

    def start(self) -> None:
        self.log.append("start")

    def join(self, timeout: float | None = None) -> None:
        self.log.append("join")

    # --- as the event that ends the thread ---

    def set(self) -> None:
        self.log.append("over")

    def wait(self, seconds: float) -> bool:
        self.pauses.append(seconds)
        self.time += seconds
        self.turns -= 1
        return self.turns < 0

    def turn(self, times: int) -> list[float]:
        """Lets the thread of the reporter work so many times; returns the pauses after each report."""
        self.turns, self.pauses = times, []
        self.reporter._run()
        return self.pauses[1:]


NO_ANSWER = OSError("no route to the driver")
STOP = SlotOrder(stop=True)


def test_the_first_report_goes_out_before_anything_else() -> None:  # D15
    driver = Driver()
    driver.answers = [SlotOrder(rate=5.0)]
    driver.reporter.start()
    assert driver.log == ["post", "start"]
    assert driver.reporter.order.rate == 5.0


def test_a_slot_whose_driver_does_not_answer_does_not_begin() -> None:
    driver = Driver()
    driver.answers = [NO_ANSWER]
    with pytest.raises(DriverUnreachable, match="no route to the driver"):
        driver.reporter.start()
    assert driver.log == ["post", "close"]


def test_a_slot_reports_once_a_second() -> None:
    driver = Driver()
    assert driver.turn(4) == [REPORT_EVERY] * 4
    assert driver.holds == [0.0] * 4


def test_a_slot_that_awaits_queues_lets_the_driver_hold_its_answers_and_asks_again_at_once() -> None:  # S10
    driver = Driver(awaits_queues=True)
    assert driver.turn(4) == [SHORTEST_REPORT_DELAY] * 4
    assert driver.holds == [REPORT_EVERY] * 4


@pytest.mark.parametrize("answer", [NO_ANSWER, STOP])
def test_a_driver_that_is_silent_or_has_said_stop_is_not_flooded(answer: SlotOrder | Exception) -> None:
    """It holds no answers then, so nothing but the pause keeps the slot from asking twenty times per second."""
    driver = Driver(awaits_queues=True)
    driver.answers = [answer] * 3
    assert driver.turn(4) == [REPORT_EVERY] * 3 + [SHORTEST_REPORT_DELAY]


def test_a_slot_stops_when_it_has_heard_nothing_for_five_seconds() -> None:  # X7
    driver = Driver()
    driver.answers = [NO_ANSWER] * 5
    driver.turn(5)
    assert driver.time - 1000.0 == DRIVER_SILENCE + REPORT_EVERY
    assert driver.silences == 0
    driver.answers = [NO_ANSWER]
    driver.turn(1)
    assert driver.silences == 1


def test_one_answer_ends_the_silence() -> None:
    driver = Driver()
    driver.answers = [*[NO_ANSWER] * 4, SlotOrder(), *[NO_ANSWER] * 4]
    driver.turn(9)
    assert driver.silences == 0


def test_the_last_report_is_sent_when_the_thread_has_ended_and_is_the_last_one() -> None:  # X7
    """Beside it, a report in flight would say afterwards that the slot still runs."""
    driver = Driver(awaits_queues=True)
    driver.reporter.start()
    driver.turn(2)
    driver.log.clear()
    driver.reporter.end()
    assert driver.log == ["over", "join", "post", "close"]
    assert driver.holds[-1] == 0.0  # the slot does not wait for news
    assert driver.numbers == [1, 2, 3, 4]


def test_rows_are_sent_until_the_driver_has_confirmed_them_and_what_it_has_not_is_left_to_spark() -> None:  # D9
    driver = Driver()
    driver.answers = [NO_ANSWER, SlotOrder(), SlotOrder(), NO_ANSWER]
    large = b"l" * (MOST_ROWS - 1)
    assert all(driver.reporter.send_rows(file) for file in (b"1", b"2", large))
    driver.turn(3)
    assert driver.rows == [(b"1", b"2"), (b"1", b"2"), (large,)], "no report is too large"
    assert driver.reporter.send_rows(b"3")
    assert driver.reporter.end() == [b"3"]
    assert not driver.reporter.send_rows(b"l" * (MOST_ROWS + 1))


def test_an_unreachable_driver_does_not_hold_up_the_end() -> None:
    driver = Driver()
    driver.answers = [NO_ANSWER]
    driver.reporter.end()
    assert driver.log[-1] == "close"
