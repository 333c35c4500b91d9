"""A course, led by hand: no namespace, no clock, no thread (F3, F4)."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.amqp import data_section
from syphon.backlog import QueueName
from syphon.bus.sdk_internals import Retries
from syphon.sender import BothSidesFailed, PairOptions
from syphon.sender.entities import Entity
from syphon.sender.failover import Failover
from syphon.sender.send_flow import Course, EmptyBatch, IntoBacklog, OnPrimary, Pause, Way

GONE = OSError("gone")


class Desk:
    """A way, and the time it believes in."""

    def __init__(self, retries: int = 0, **options: Any) -> None:
        self.time = 100.0
        self.retries = Retries(retries)
        self.limit: int | None = None
        self.watched: list[Entity] = []
        queue = QueueName("contoso/x-servicebus-transfer/0")
        self.failover = Failover("contoso", PairOptions(**options), [queue], lambda: self.time, self.watched.append)
        self.way = Way(self.failover, "orders", self)

    def sending(self, count: int = 1, size: int = 100, timeout: float | None = None) -> Course[Any]:
        payloads = [data_section(bytes(size)) for _ in range(count)]
        return self.way.sending(lambda: payloads, count, self.way.deadline(timeout))

    def fail_over(self) -> None:
        self.failover.failed(self.way.entity, GONE)
        self.time += 60


def test_a_call_is_one_step_when_all_is_well() -> None:
    desk = Desk()
    assert desk.way.is_clear()
    course = desk.sending()
    assert next(course) == OnPrimary(60.0, 0)
    with pytest.raises(StopIteration):
        course.send(None)


def test_a_first_step_that_failed_without_a_course_is_its_first_failure() -> None:
    desk = Desk(retries=1)
    deadline = desk.way.deadline(20)
    desk.time += 5
    course = desk.way.sending(lambda: [b""], 1, deadline, GONE)
    assert next(course) == Pause(1.6)
    desk.time += 1.6
    step = course.send(None)
    assert isinstance(step, OnPrimary)
    assert step.timeout == pytest.approx(13.4)
    with pytest.raises(OSError, match="gone"):
        course.throw(GONE)


def test_a_way_is_not_clear_after_a_failure_or_while_the_entity_is_busy() -> None:
    desk = Desk()
    desk.failover.was_busy(desk.way.entity, GONE)
    assert not desk.way.is_clear()
    desk.way.arrived(1)
    assert desk.way.is_clear()
    desk.failover.failed(desk.way.entity, GONE)
    assert not desk.way.is_clear()


def test_the_entity_is_watched_from_its_first_failure_on_by_one_watcher() -> None:  # F5
    desk = Desk()
    for _ in range(3):
        course = desk.sending()
        next(course)
        with pytest.raises(OSError, match="gone"):
            course.throw(GONE)
    assert desk.watched == [desk.way.entity]


def test_who_is_about_to_try_again_goes_to_the_backlog_if_the_entity_failed_over_meanwhile() -> None:  # F4
    desk = Desk(retries=3)
    course = desk.sending()
    next(course)
    assert course.throw(GONE) == Pause(1.6)
    desk.fail_over()
    assert isinstance(course.send(None), EmptyBatch)


def test_a_timeout_is_for_the_whole_call() -> None:
    desk = Desk()
    desk.fail_over()
    course = desk.sending(timeout=30)
    assert next(course) == EmptyBatch(QueueName("contoso/x-servicebus-transfer/0"), 30)
    desk.time += 12
    step = course.send(ServiceBusMessageBatch(262_144))
    assert isinstance(step, IntoBacklog)
    assert step.timeout == 18


def test_a_call_whose_time_is_over_does_not_begin_with_the_backlog() -> None:
    desk = Desk()
    course = desk.sending(timeout=5)
    next(course)
    desk.fail_over()
    with pytest.raises(OperationTimeoutError):
        course.throw(OperationTimeoutError())


def test_an_error_says_how_much_of_a_batch_is_in_the_backlog_when_the_rest_failed() -> None:
    desk = Desk()
    desk.fail_over()
    course = desk.sending(count=10, size=400)
    next(course)
    step = course.send(ServiceBusMessageBatch(2000))
    assert isinstance(step, IntoBacklog)
    assert len(step.batch) == 4
    assert isinstance(course.send(None), EmptyBatch)
    with pytest.raises(BothSidesFailed, match="The first 4 of 10 messages are in the backlog"):
        course.throw(GONE)
