"""Failing over and returning, on the emulator's faults and a clock moved by hand (F2, F4, F5)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from syphon.emulator import Action, Fault, Operation, Outage
from syphon.sender import BothSidesFailed, EntityFailedOver, EntityPinged, EntityReturned, QueueTakenBack, QueueTakenOut
from tests.sender.conftest import QUEUE_0, QUEUE_1, Bench, leftovers
from tests.support.sender_faces import eventually

pytestmark = leftovers
MINUTE = timedelta(minutes=1)


def message(identity: str) -> ServiceBusMessage:
    return ServiceBusMessage(f"body of {identity}", message_id=identity)


def test_a_healthy_primary_gets_the_messages_and_the_backlog_none(bench: Bench) -> None:  # F2
    sender = bench.pair().get_queue_sender("orders")
    sender.send_messages(message("a"))
    assert bench.active("orders") == 1
    assert bench.in_backlog() == 0
    assert bench.changes == []


def test_with_an_interval_of_zero_the_first_failure_sends_the_message_itself_to_the_backlog(bench: Bench) -> None:  # F2
    client = bench.pair()
    sender = client.get_queue_sender("orders")
    bench.outage(Outage.REFUSE)
    sender.send_messages(message("a"))
    assert bench.in_backlog() == 1
    assert client.failed_over == ("orders",)


def test_before_the_interval_has_passed_the_caller_hears_of_failures_and_after_it_none(bench: Bench) -> None:  # F2
    client = bench.pair(failover_interval=MINUTE)
    sender = client.get_queue_sender("orders")
    bench.outage(Outage.REFUSE)
    for _ in range(3):
        with pytest.raises(ServiceBusConnectionError):
            sender.send_messages(message("lost"))
        bench.clock.advance(19)
    assert client.failed_over == ()
    bench.clock.advance(3)
    sender.send_messages(message("kept"))
    assert bench.in_backlog() == 1


def test_the_interval_passes_even_if_nothing_is_sent_meanwhile(bench: Bench) -> None:  # F2
    client = bench.pair(failover_interval=MINUTE)
    bench.outage(Outage.REFUSE)
    with pytest.raises(ServiceBusConnectionError):
        client.get_queue_sender("orders").send_messages(message("lost"))
    eventually(bench.clock.waits)
    bench.clock.advance(60)
    eventually(lambda: client.failed_over)


def test_a_success_within_the_interval_starts_it_anew(bench: Bench) -> None:  # F2
    client = bench.pair(failover_interval=MINUTE)
    sender = client.get_queue_sender("orders")
    bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error", times=1))
    with pytest.raises(ServiceBusError):
        sender.send_messages(message("a"))
    bench.clock.advance(40)
    sender.send_messages(message("b"))
    bench.clock.advance(40)
    sender.send_messages(message("c"))
    assert client.failed_over == ()
    assert bench.in_backlog() == 0


def test_a_failure_of_one_entity_says_nothing_of_another(bench: Bench) -> None:  # F2
    bench.queue("billing")
    client = bench.pair()
    bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error"))
    client.get_queue_sender("orders").send_messages(message("a"))
    client.get_queue_sender("billing").send_messages(message("b"))
    assert client.failed_over == ("orders",)
    assert bench.active("billing") == 1


def test_all_senders_of_the_pair_follow_whoever_finds_out(bench: Bench) -> None:  # F4
    client = bench.pair()
    first, second = client.get_queue_sender("orders"), client.get_queue_sender("Orders")
    second.send_messages(message("before"))
    bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error", times=1))
    first.send_messages(message("a"))
    second.send_messages(message("b"))  # the fault has struck: this one would have arrived
    assert bench.in_backlog() == 2
    assert bench.active("orders") == 1


def test_a_ping_goes_to_the_entity_once_an_interval_whoever_sends_and_brings_all_back(bench: Bench) -> None:  # F5
    client = bench.pair(ping_primary_interval=MINUTE)
    senders = [client.get_queue_sender("orders") for _ in range(2)]
    bench.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error"))
    for sender in senders:
        sender.send_messages(message("x"))
    for minute in range(2):
        eventually(bench.clock.waits)
        assert pings(bench) == minute
        bench.clock.advance(59)
        eventually(bench.clock.waits)
        assert pings(bench) == minute
        bench.clock.advance(1)
        eventually(lambda minute=minute: pings(bench) == minute + 1)  # type: ignore[misc]
    bench.clear()
    eventually(lambda: bench.clock.waits() == [60.0])
    bench.clock.advance(60)
    eventually(lambda: client.failed_over == () and pings(bench) == 3)
    for sender in senders:
        sender.send_messages(message("y"))
    assert bench.active("orders") == 2  # and no ping among them
    assert bench.in_backlog() == 2
    bench.clock.advance(600)
    assert pings(bench) == 3


def pings(bench: Bench) -> int:
    return sum(isinstance(change, EntityPinged) for change in bench.changes)


def test_no_receiver_ever_sees_a_ping_and_a_session_queue_takes_it(bench: Bench) -> None:  # F5
    bench.queue("invoices", requires_session=True)
    client = bench.pair()
    bench.fault(Fault(Action.ERROR, Operation.SEND, "invoices", condition="amqp:internal-error", times=1))
    sender = client.get_queue_sender("invoices")
    sender.send_messages(ServiceBusMessage("a", session_id="s1"))
    eventually(bench.clock.waits)
    bench.clock.advance(60)
    eventually(lambda: client.failed_over == ())
    sender.send_messages(ServiceBusMessage("b", session_id="s1"))
    assert bench.active("invoices") == 1
    assert bench.sends("invoices") == 2  # the ping and b


def test_links_from_before_the_outage_are_not_used_after_it(bench: Bench) -> None:
    """Each would fail once, and fail the entity over again."""
    client = bench.pair()
    senders = [client.get_queue_sender("orders") for _ in range(2)]
    for sender in senders:
        sender.send_messages(message("before"))
    bench.outage(Outage.REFUSE)
    senders[0].send_messages(message("during"))
    bench.outage(None)
    eventually(bench.clock.waits)
    bench.clock.advance(60)
    eventually(lambda: client.failed_over == ())
    for sender in senders:
        sender.send_messages(message("after"))
    assert bench.active("orders") == 4
    eventually(lambda: len(bench.changes) >= 3)  # told when it is so already
    assert [type(change) for change in bench.changes] == [EntityFailedOver, EntityPinged, EntityReturned]


def test_a_backlog_queue_that_fails_is_out_for_all_senders_and_tried_again_later(bench: Bench) -> None:  # F4
    client = bench.pair()
    bench.outage(Outage.REFUSE)
    fault = Fault(Action.ERROR, Operation.SEND, QUEUE_0, condition="amqp:internal-error")
    bench.fault(fault, "contoso-dr")

    def send_with_a_new_sender() -> bool:  # each picks at random
        client.get_queue_sender("orders").send_messages(message("x"))
        return True

    def taken_out() -> list[str]:
        return [change.queue for change in bench.changes if isinstance(change, QueueTakenOut)]

    eventually(lambda: send_with_a_new_sender() and taken_out())
    for _ in range(3):
        send_with_a_new_sender()
    assert fault.struck == 1
    assert taken_out() == [QUEUE_0]
    assert bench.active(QUEUE_0, "contoso-dr") == 0
    bench.clear("contoso-dr")
    bench.clock.advance(60)
    eventually(lambda: send_with_a_new_sender() and QueueTakenBack(QUEUE_0) in bench.changes)
    assert bench.active(QUEUE_0, "contoso-dr") == 1


def test_both_sides_down_is_an_error_that_names_both_causes_and_nothing_is_kept(bench: Bench) -> None:
    client = bench.pair()
    sender = client.get_queue_sender("orders")
    bench.outage(Outage.REFUSE)
    bench.fault(Fault(Action.ERROR, Operation.SEND, QUEUE_0, condition="amqp:internal-error"), "contoso-dr")
    bench.fault(Fault(Action.ERROR, Operation.SEND, QUEUE_1, condition="com.microsoft:entity-disabled"), "contoso-dr")
    with pytest.raises(BothSidesFailed) as caught:
        sender.send_messages(message("a"))
    text = str(caught.value)
    assert "[Errno 111]" in text
    assert QUEUE_0 in text
    assert "internal-error" in text
    assert "entity-disabled" in text
    assert set(caught.value.backlog) == {QUEUE_0, QUEUE_1}
    assert isinstance(caught.value, ServiceBusError)
    bench.clear("contoso-dr")
    assert bench.in_backlog() == 0
    sender.send_messages(message("b"))
    assert bench.in_backlog() == 1


def test_a_backlog_link_that_went_stale_is_opened_again(bench: Bench) -> None:
    client = bench.pair(backlog_queue_count=1)
    sender = client.get_queue_sender("orders")
    bench.outage(Outage.REFUSE)
    sender.send_messages(message("a"))
    bench.fault(Fault(Action.DETACH, Operation.SEND, QUEUE_0, times=1), "contoso-dr")
    sender.send_messages(message("b"))
    assert bench.in_backlog() == 2
    assert not any(isinstance(change, QueueTakenOut) for change in bench.changes)


def test_an_observer_that_fails_disturbs_nobody(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def explode(change: object) -> None:
        raise RuntimeError("the observer")

    sender = bench.pair(on_change=explode).get_queue_sender("orders")
    bench.outage(Outage.REFUSE)
    sender.send_messages(message("a"))
    assert bench.in_backlog() == 1
    assert "sending goes on" in caplog.text


def test_the_log_says_that_an_entity_failed_over_why_and_that_it_is_back(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "syphon.sender")
    client = bench.pair(failover_interval=MINUTE)
    sender = client.get_queue_sender("orders")
    bench.outage(Outage.REFUSE)
    with pytest.raises(ServiceBusConnectionError):
        sender.send_messages(message("a"))
    eventually(bench.clock.waits)
    bench.clock.advance(60)
    eventually(lambda: client.failed_over)
    bench.outage(None)
    eventually(lambda: bench.clock.waits() == [60.0])
    bench.clock.advance(60)
    eventually(lambda: client.failed_over == ())
    assert "'orders' is failed over (failing for 60 s)" in caplog.text
    assert "[Errno 111]" in caplog.text
    eventually(lambda: "'orders' is back after 60 s" in caplog.text)  # said when it is so already
