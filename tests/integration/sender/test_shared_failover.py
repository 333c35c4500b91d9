"""Failing over and returning, with the emulator's faults and a manual clock (F2, F4, F5)."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from syphon.backlog import QueueName
from syphon.emulator import Action, Fault, Operation, Outage
from syphon.sender import (
    BothSidesFailed,
    EntityFailedOver,
    EntityPinged,
    EntityReturned,
    QueueTakenBack,
    QueueTakenOut,
)
from syphon.sender.shared_failover import BacklogQueuePool
from syphon.time_budget import OUT_FOR
from tests.integration.sender.conftest import QUEUE_0, QUEUE_1, PairedEmulator, leftovers
from tests.support.waiting import eventually

pytestmark = leftovers
MINUTE = timedelta(minutes=1)
A, B, C = QueueName("a"), QueueName("b"), QueueName("c")
ERROR = OSError("gone")


def message(identity: str) -> ServiceBusMessage:
    return ServiceBusMessage(f"body of {identity}", message_id=identity)


def test_a_healthy_primary_gets_the_messages_and_the_backlog_none(paired: PairedEmulator) -> None:  # F2
    sender = paired.pair().get_queue_sender("orders")
    sender.send_messages(message("a"))
    assert paired.active("orders") == 1
    assert paired.in_backlog() == 0
    assert paired.changes == []


def test_with_an_interval_of_zero_the_first_failure_sends_the_message_itself_to_the_backlog(
    paired: PairedEmulator,
) -> None:  # F2
    client = paired.pair()
    sender = client.get_queue_sender("orders")
    paired.outage(Outage.REFUSE)
    sender.send_messages(message("a"))
    assert paired.in_backlog() == 1
    assert client.failed_over == ("orders",)


def test_before_the_interval_has_passed_the_caller_hears_of_failures_and_after_it_none(
    paired: PairedEmulator,
) -> None:  # F2
    client = paired.pair(failover_interval=MINUTE)
    sender = client.get_queue_sender("orders")
    paired.outage(Outage.REFUSE)
    for _ in range(3):
        with pytest.raises(ServiceBusConnectionError):
            sender.send_messages(message("lost"))
        paired.clock.advance(19)
    assert client.failed_over == ()
    paired.clock.advance(3)
    sender.send_messages(message("kept"))
    assert paired.in_backlog() == 1


def test_the_interval_passes_even_if_nothing_is_sent_meanwhile(paired: PairedEmulator) -> None:  # F2
    client = paired.pair(failover_interval=MINUTE)
    paired.outage(Outage.REFUSE)
    with pytest.raises(ServiceBusConnectionError):
        client.get_queue_sender("orders").send_messages(message("lost"))
    eventually(paired.clock.waits)
    paired.clock.advance(60)
    eventually(lambda: client.failed_over)


def test_a_success_within_the_interval_restarts_it(paired: PairedEmulator) -> None:  # F2
    client = paired.pair(failover_interval=MINUTE)
    sender = client.get_queue_sender("orders")
    paired.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error", times=1))
    with pytest.raises(ServiceBusError):
        sender.send_messages(message("a"))
    paired.clock.advance(40)
    sender.send_messages(message("b"))
    paired.clock.advance(40)
    sender.send_messages(message("c"))
    assert client.failed_over == ()
    assert paired.in_backlog() == 0


def test_a_failure_of_one_entity_says_nothing_about_another(paired: PairedEmulator) -> None:  # F2
    paired.queue("billing")
    client = paired.pair()
    paired.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error"))
    client.get_queue_sender("orders").send_messages(message("a"))
    client.get_queue_sender("billing").send_messages(message("b"))
    assert client.failed_over == ("orders",)
    assert paired.active("billing") == 1


def test_all_senders_of_the_pair_follow_the_sender_that_finds_the_failure(paired: PairedEmulator) -> None:  # F4
    client = paired.pair()
    first, second = client.get_queue_sender("orders"), client.get_queue_sender("Orders")
    second.send_messages(message("before"))
    paired.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error", times=1))
    first.send_messages(message("a"))
    second.send_messages(message("b"))  # the fault is over: the primary would have taken this one
    assert paired.in_backlog() == 2
    assert paired.active("orders") == 1


def test_a_ping_goes_to_the_entity_once_an_interval_and_brings_all_senders_back(
    paired: PairedEmulator,
) -> None:  # F5
    client = paired.pair(ping_primary_interval=MINUTE)
    senders = [client.get_queue_sender("orders") for _ in range(2)]
    paired.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error"))
    for sender in senders:
        sender.send_messages(message("x"))
    for minute in range(2):
        eventually(paired.clock.waits)
        assert pings(paired) == minute
        paired.clock.advance(59)
        eventually(paired.clock.waits)
        assert pings(paired) == minute
        paired.clock.advance(1)
        eventually(lambda minute=minute: pings(paired) == minute + 1)  # type: ignore[misc]
    paired.clear()
    eventually(lambda: paired.clock.waits() == [60.0])
    paired.clock.advance(60)
    eventually(lambda: client.failed_over == () and pings(paired) == 3)
    for sender in senders:
        sender.send_messages(message("y"))
    assert paired.active("orders") == 2  # and no ping among them
    assert paired.in_backlog() == 2
    paired.clock.advance(600)
    assert pings(paired) == 3


def pings(paired: PairedEmulator) -> int:
    return sum(isinstance(change, EntityPinged) for change in paired.changes)


def test_no_receiver_ever_sees_a_ping_and_a_session_queue_takes_it(paired: PairedEmulator) -> None:  # F5
    paired.queue("invoices", requires_session=True)
    client = paired.pair()
    paired.fault(Fault(Action.ERROR, Operation.SEND, "invoices", condition="amqp:internal-error", times=1))
    sender = client.get_queue_sender("invoices")
    sender.send_messages(ServiceBusMessage("a", session_id="s1"))
    eventually(paired.clock.waits)
    paired.clock.advance(60)
    eventually(lambda: client.failed_over == ())
    sender.send_messages(ServiceBusMessage("b", session_id="s1"))
    assert paired.active("invoices") == 1
    assert paired.sends("invoices") == 2  # the ping and b


def test_links_from_before_the_outage_are_not_used_after_it(paired: PairedEmulator) -> None:
    """Each would fail once, and fail the entity over again."""
    client = paired.pair()
    senders = [client.get_queue_sender("orders") for _ in range(2)]
    for sender in senders:
        sender.send_messages(message("before"))
    paired.outage(Outage.REFUSE)
    senders[0].send_messages(message("during"))
    paired.outage(None)
    eventually(paired.clock.waits)
    paired.clock.advance(60)
    eventually(lambda: client.failed_over == ())
    for sender in senders:
        sender.send_messages(message("after"))
    assert paired.active("orders") == 4
    eventually(lambda: len(paired.changes) >= 3)  # the pair reports a change after it has made it
    assert [type(change) for change in paired.changes] == [EntityFailedOver, EntityPinged, EntityReturned]


def test_a_backlog_queue_that_fails_is_out_for_all_senders_and_retried_later(paired: PairedEmulator) -> None:  # F4
    client = paired.pair()
    paired.outage(Outage.REFUSE)
    fault = Fault(Action.ERROR, Operation.SEND, QUEUE_0, condition="amqp:internal-error")
    paired.fault(fault, "contoso-dr")

    def send_with_a_new_sender() -> bool:  # each picks at random
        client.get_queue_sender("orders").send_messages(message("x"))
        return True

    def taken_out() -> list[str]:
        return [change.queue for change in paired.changes if isinstance(change, QueueTakenOut)]

    eventually(lambda: send_with_a_new_sender() and taken_out())
    for _ in range(3):
        send_with_a_new_sender()
    assert fault.struck == 1
    assert taken_out() == [QUEUE_0]
    assert paired.active(QUEUE_0, "contoso-dr") == 0
    paired.clear("contoso-dr")
    paired.clock.advance(60)
    eventually(lambda: send_with_a_new_sender() and QueueTakenBack(QUEUE_0) in paired.changes)
    assert paired.active(QUEUE_0, "contoso-dr") == 1


def test_both_sides_down_is_an_error_that_names_both_causes_and_nothing_is_kept(paired: PairedEmulator) -> None:
    client = paired.pair()
    sender = client.get_queue_sender("orders")
    paired.outage(Outage.REFUSE)
    paired.fault(Fault(Action.ERROR, Operation.SEND, QUEUE_0, condition="amqp:internal-error"), "contoso-dr")
    paired.fault(Fault(Action.ERROR, Operation.SEND, QUEUE_1, condition="com.microsoft:entity-disabled"), "contoso-dr")
    with pytest.raises(BothSidesFailed) as caught:
        sender.send_messages(message("a"))
    text = str(caught.value)
    assert "[Errno 111]" in text
    assert QUEUE_0 in text
    assert "internal-error" in text
    assert "entity-disabled" in text
    assert set(caught.value.backlog) == {QUEUE_0, QUEUE_1}
    assert isinstance(caught.value, ServiceBusError)
    paired.clear("contoso-dr")
    assert paired.in_backlog() == 0
    sender.send_messages(message("b"))
    assert paired.in_backlog() == 1


def test_a_backlog_link_that_went_stale_is_opened_again(paired: PairedEmulator) -> None:
    client = paired.pair(backlog_queue_count=1)
    sender = client.get_queue_sender("orders")
    paired.outage(Outage.REFUSE)
    sender.send_messages(message("a"))
    paired.fault(Fault(Action.DETACH, Operation.SEND, QUEUE_0, times=1), "contoso-dr")
    sender.send_messages(message("b"))
    assert paired.in_backlog() == 2
    assert not any(isinstance(change, QueueTakenOut) for change in paired.changes)


def test_an_observer_that_fails_does_not_disturb_sending(
    paired: PairedEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    def explode(change: object) -> None:
        raise RuntimeError("the observer")

    sender = paired.pair(on_change=explode).get_queue_sender("orders")
    paired.outage(Outage.REFUSE)
    sender.send_messages(message("a"))
    assert paired.in_backlog() == 1
    assert "sending continues" in caplog.text


def test_the_log_says_that_an_entity_failed_over_why_and_that_it_is_back(
    paired: PairedEmulator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "syphon.sender")
    client = paired.pair(failover_interval=MINUTE)
    sender = client.get_queue_sender("orders")
    paired.outage(Outage.REFUSE)
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(message("a"))
    eventually(paired.clock.waits)
    paired.clock.advance(60)
    eventually(lambda: client.failed_over)
    paired.outage(None)
    eventually(lambda: paired.clock.waits() == [60.0])
    paired.clock.advance(60)
    eventually(lambda: client.failed_over == ())
    assert "'orders' failed over (failing for 60 s): sending to the backlog" in caplog.text
    assert "[Errno 111]" in caplog.text
    eventually(lambda: "'orders' is back after 60 s" in caplog.text)  # the pair logs a change after it has made it


# --- the pool of backlog queues: no namespace, no clock ---


def out(pool: BacklogQueuePool, queue: QueueName, now: float, seconds: float = OUT_FOR) -> list[object]:
    return list(pool.take_out(queue, ERROR, seconds, now))


def test_each_queue_is_picked_now_and_then() -> None:  # F4
    pool = BacklogQueuePool((A, B, C))
    picked = Counter(pool.pick((), 0.0) for _ in range(600))
    assert set(picked) == {A, B, C}
    assert min(picked.values()) > 100  # 200 on average; chance alone would need luck of one in many billions


def test_a_queue_that_failed_is_out_for_a_while_and_then_comes_back() -> None:  # F4
    pool = BacklogQueuePool((A, B))
    assert out(pool, A, 100.0) == [QueueTakenOut(A, OUT_FOR, ERROR)]
    assert {pool.pick((), 100.0) for _ in range(50)} == {B}
    assert not pool.is_in_rotation(A, 100.0 + OUT_FOR - 0.1)
    assert pool.is_in_rotation(A, 100.0 + OUT_FOR)
    assert list(pool.put_back(A)) == [QueueTakenBack(A)]
    assert list(pool.put_back(A)) == []


def test_one_call_does_not_try_a_queue_twice() -> None:
    pool = BacklogQueuePool((A, B))
    assert {pool.pick((A,), 0.0) for _ in range(20)} == {B}
    assert pool.pick((A, B), 0.0) is None


def test_with_all_queues_out_the_one_that_is_out_longest_gets_one_try() -> None:
    pool = BacklogQueuePool((A, B, C))
    for now, queue in ((100.0, B), (101.0, A), (102.0, C)):
        out(pool, queue, now)
    assert pool.pick((), 110.0) == B
    assert pool.pick((B,), 110.0) is None


def test_several_senders_that_find_out_at_the_same_time_are_one_event() -> None:
    pool = BacklogQueuePool((A, B))
    assert len(out(pool, A, 100.0)) == 1
    assert out(pool, A, 100.1) == []
