"""The flow of a call, step by step: no namespace, no clock, no thread (F3, F4)."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.amqp import Properties, data_section, properties_bytes
from syphon.backlog import QueueName
from syphon.model import RetryPolicy
from syphon.sender import BothSidesFailed, PairOptions, TooLargeForBacklog
from syphon.sender.entity_state import PrimaryEntity
from syphon.sender.send_flow import CreateBacklogBatch, Delay, SendFlow, SendToBacklog, Steps, UsePrimary
from syphon.sender.shared_failover import Failover

GONE = OSError("gone")


class FlowHarness:
    """A flow, and the time that it sees."""

    def __init__(self, retries: int = 0, **options: Any) -> None:
        self.time = 100.0
        self.retries = RetryPolicy(retries)
        self.limit: int | None = None
        self.watched: list[PrimaryEntity] = []
        queue = QueueName("contoso/x-servicebus-transfer/0")
        self.failover = Failover("contoso", PairOptions(**options), [queue], lambda: self.time, self.watched.append)
        self.flow = SendFlow(self.failover, "orders", self)

    def sending(self, count: int = 1, size: int = 100, timeout: float | None = None) -> Steps[Any]:
        payloads = [data_section(bytes(size)) for _ in range(count)]
        return self.flow.send(lambda: payloads, count, self.flow.deadline(timeout))

    def fail_over(self) -> None:
        self.failover.failed(self.flow.entity, GONE)
        self.time += 60


def test_a_call_is_one_step_when_all_is_well() -> None:
    harness = FlowHarness()
    assert harness.flow.can_skip_steps()
    steps = harness.sending()
    assert next(steps) == UsePrimary(60.0, 0)
    with pytest.raises(StopIteration):
        steps.send(None)


def test_a_first_step_that_failed_outside_the_flow_is_its_first_failure() -> None:
    harness = FlowHarness(retries=1)
    deadline = harness.flow.deadline(20)
    harness.time += 5
    steps = harness.flow.send(lambda: [b""], 1, deadline, begins_at_primary=True)
    assert isinstance(next(steps), UsePrimary)
    assert steps.throw(GONE) == Delay(1.6)
    harness.time += 1.6
    step = steps.send(None)
    assert isinstance(step, UsePrimary)
    assert step.timeout == pytest.approx(13.4)
    with pytest.raises(OSError, match="gone"):
        steps.throw(GONE)


def test_a_flow_begins_at_the_primary_although_another_sender_has_failed_it_over_meanwhile() -> None:
    harness = FlowHarness(failover_interval=0)
    harness.failover.failed(harness.flow.entity, GONE)
    assert harness.flow.entity.is_failed_over
    steps = harness.flow.send(lambda: [b""], 1, harness.flow.deadline(20), begins_at_primary=True)
    assert isinstance(next(steps), UsePrimary)
    assert isinstance(steps.throw(GONE), CreateBacklogBatch)


def test_a_call_cannot_skip_the_steps_after_a_failure_or_while_the_entity_is_busy() -> None:
    harness = FlowHarness()
    harness.failover.was_busy(harness.flow.entity, GONE)
    assert not harness.flow.can_skip_steps()
    harness.flow.record_success(1)
    assert harness.flow.can_skip_steps()
    harness.failover.failed(harness.flow.entity, GONE)
    assert not harness.flow.can_skip_steps()


def test_the_entity_is_watched_from_its_first_failure_on_by_one_watcher() -> None:  # F5
    harness = FlowHarness()
    for _ in range(3):
        steps = harness.sending()
        next(steps)
        with pytest.raises(OSError, match="gone"):
            steps.throw(GONE)
    assert harness.watched == [harness.flow.entity]


def test_a_retry_goes_to_the_backlog_if_the_entity_failed_over_meanwhile() -> None:  # F4
    harness = FlowHarness(retries=3)
    steps = harness.sending()
    next(steps)
    assert steps.throw(GONE) == Delay(1.6)
    harness.fail_over()
    assert isinstance(steps.send(None), CreateBacklogBatch)


def test_a_timeout_is_for_the_whole_call() -> None:
    harness = FlowHarness()
    harness.fail_over()
    steps = harness.sending(timeout=30)
    assert next(steps) == CreateBacklogBatch(QueueName("contoso/x-servicebus-transfer/0"), 30)
    harness.time += 12
    step = steps.send(ServiceBusMessageBatch(262_144))
    assert isinstance(step, SendToBacklog)
    assert step.timeout == 18


def test_a_call_whose_time_is_over_does_not_begin_with_the_backlog() -> None:
    harness = FlowHarness()
    steps = harness.sending(timeout=5)
    next(steps)
    harness.fail_over()
    with pytest.raises(OperationTimeoutError):
        steps.throw(OperationTimeoutError())


def test_an_error_says_how_much_of_a_batch_is_in_the_backlog_when_the_rest_failed() -> None:
    harness = FlowHarness()
    harness.fail_over()
    steps = harness.sending(count=10, size=400)
    next(steps)
    step = steps.send(ServiceBusMessageBatch(2000))
    assert isinstance(step, SendToBacklog)
    assert len(step.batch) == 4
    assert isinstance(steps.send(None), CreateBacklogBatch)
    with pytest.raises(BothSidesFailed, match="The first 4 of 10 messages are in the backlog"):
        steps.throw(GONE)


def of_session(session: str, size: int) -> bytes:
    return properties_bytes(Properties(group_id=session)) + data_section(bytes(size))


def test_the_same_is_said_of_a_list_whose_sessions_go_to_the_backlog_one_after_the_other() -> None:  # D21
    harness = FlowHarness(session_order=True)
    harness.fail_over()
    payloads = [of_session("ab"[number % 2], 400) for number in range(6)]
    steps = harness.flow.send(lambda: payloads, 6, harness.flow.deadline(None))
    next(steps)
    step = steps.send(ServiceBusMessageBatch(20_000))
    assert isinstance(step, SendToBacklog)
    assert len(step.batch) == 3
    assert isinstance(steps.send(None), CreateBacklogBatch)
    with pytest.raises(BothSidesFailed, match="The first 3 of 6 messages are in the backlog, session by session"):
        steps.throw(GONE)


def test_a_message_that_is_too_large_fails_before_another_session_is_sent() -> None:  # D21, M7
    harness = FlowHarness(session_order=True)
    harness.fail_over()
    payloads = [of_session("a", 10), of_session("b", 5_000)]
    steps = harness.flow.send(lambda: payloads, 2, harness.flow.deadline(None))
    next(steps)
    with pytest.raises(TooLargeForBacklog):
        steps.send(ServiceBusMessageBatch(2000))
