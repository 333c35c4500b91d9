"""A single call: which errors the caller gets, and which messages may be on both sides (F3)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from syphon.emulator import Action, Fault, Operation, Outage
from tests.integration.sender.conftest import QUEUE_0, PairedEmulator, leftovers
from tests.support.sender_apis import in_thread
from tests.support.waiting import eventually

pytestmark = leftovers
SOON = timedelta(seconds=3)
"""Long enough for a link to be opened on a slow machine."""


def message(identity: str) -> ServiceBusMessage:
    return ServiceBusMessage(f"body of {identity}", message_id=identity)


def test_a_message_whose_acceptance_was_lost_is_on_both_sides_under_the_same_id(paired: PairedEmulator) -> None:
    sender = paired.pair(backlog_queue_count=1).get_queue_sender("orders")
    paired.fault(Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, "orders", times=1))
    sender.send_messages({"body": "of a mapping, which has no id yet"})
    (at_home,) = paired.take("orders", 1)
    (in_backlog,) = paired.take(QUEUE_0, 1, "contoso-dr")
    assert at_home.message_id == in_backlog.message_id


def test_a_message_that_the_primary_refused_is_in_the_backlog_alone(paired: PairedEmulator) -> None:
    sender = paired.pair().get_queue_sender("orders")
    paired.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:entity-disabled"))
    sender.send_messages(message("a"))
    assert (paired.active("orders"), paired.in_backlog()) == (0, 1)


@pytest.mark.parametrize("kind", [Outage.HANG, Outage.DROP])
def test_a_primary_that_takes_the_connection_and_says_nothing_is_failed_over(
    paired: PairedEmulator, kind: Outage
) -> None:  # F3
    """The SDK alone would wait forever, whatever its timeout."""
    client = paired.pair(operation_timeout=SOON, allow_short_timeouts=True)
    sender = client.get_queue_sender("orders")
    paired.outage(kind)
    sender.send_messages(message("a"))
    assert paired.in_backlog() == 1


def test_a_primary_that_falls_silent_on_an_open_link_is_failed_over(paired: PairedEmulator) -> None:  # F3
    client = paired.pair(operation_timeout=SOON, allow_short_timeouts=True)
    sender = client.get_queue_sender("orders")
    sender.send_messages(message("a"))
    paired.outage(Outage.HANG)
    sender.send_messages(message("b"))
    assert paired.in_backlog() == 1


def test_a_callers_timeout_that_the_primary_used_up_is_an_error_and_the_next_call_goes_to_the_backlog(
    paired: PairedEmulator,
) -> None:
    client = paired.pair(manual_clock=False)
    sender = client.get_queue_sender("orders")
    paired.outage(Outage.HANG)
    with pytest.raises(OperationTimeoutError):
        sender.send_messages(message("a"), timeout=0.5)
    sender.send_messages(message("b"), timeout=20)
    assert paired.in_backlog() == 1


def test_the_clients_own_retries_come_before_the_failover(paired: PairedEmulator) -> None:  # F3
    client = paired.pair()
    client.primary._config.retry_total = 2
    sender = client.get_queue_sender("orders")
    paired.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="amqp:internal-error", times=2))
    with in_thread(lambda: sender.send_messages(message("a"))) as sent:
        eventually(lambda: paired.clock.waits() == [1.6])
        paired.clock.advance(1.6)
        eventually(lambda: paired.clock.waits() == [3.2])
        paired.clock.advance(3.2)
        sent()
    assert paired.active("orders") == 1
    assert client.failed_over == ()


def test_a_busy_primary_is_left_alone_for_ten_seconds_and_then_sent_to_again(paired: PairedEmulator) -> None:  # F3, S5
    client = paired.pair()
    first, second = client.get_queue_sender("orders"), client.get_queue_sender("orders")
    busy = Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy", times=1)
    paired.fault(busy)
    with in_thread(lambda: first.send_messages(message("a"))) as sent:
        eventually(lambda: paired.clock.waits() == [10.0])
        with in_thread(lambda: second.send_messages(message("b"))) as sent_too:  # it waits as well
            eventually(lambda: paired.clock.waits() == [10.0, 10.0])
            assert paired.active("orders") == 0
            paired.clock.advance(10)
            sent_too()
        sent()
    assert busy.struck == 1
    assert paired.active("orders") == 2
    assert client.failed_over == ()


def test_a_call_with_less_than_ten_seconds_gets_the_error_of_the_busy_primary(paired: PairedEmulator) -> None:  # F3, S5
    client = paired.pair()
    paired.outage(Outage.BUSY)
    with pytest.raises(ServiceBusServerBusyError):
        client.get_queue_sender("orders").send_messages(message("a"), timeout=9)
    assert client.failed_over == ()
    assert paired.in_backlog() == 0


@pytest.mark.parametrize(
    ("condition", "error"),
    [("amqp:unauthorized-access", ServiceBusAuthorizationError), ("amqp:not-allowed", ServiceBusError)],
)
def test_the_caller_gets_a_configuration_error_or_the_error_of_a_bad_message(
    paired: PairedEmulator, condition: str, error: type[Exception]
) -> None:  # F3
    client = paired.pair()
    paired.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition=condition, times=1))
    with pytest.raises(error, match=condition):
        client.get_queue_sender("orders").send_messages(message("a"))
    assert client.failed_over == ()
    assert paired.in_backlog() == 0


def test_a_message_too_large_for_the_primary_is_no_reason_to_fail_over(paired: PairedEmulator) -> None:  # F3
    """The service closes the link, and the SDK reports a broken connection."""
    client = paired.pair()
    sender = client.get_queue_sender("orders")
    with pytest.raises(MessageSizeExceededError, match="300"):
        sender.send_messages(ServiceBusMessage(b"x" * 300_000))
    assert client.failed_over == ()
    sender.send_messages(message("a"))
    assert paired.active("orders") == 1


def test_a_message_that_cannot_be_encoded_is_no_reason_to_fail_over(paired: PairedEmulator) -> None:  # F3
    client = paired.pair()
    with pytest.raises(ServiceBusError, match="invalid"):
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("x", application_properties={"n": 2**70}))
    with pytest.raises(TypeError, match="Received instead: int"):
        client.get_queue_sender("orders").send_messages(5)
    assert client.failed_over == ()


def test_a_timeout_of_nothing_is_refused(paired: PairedEmulator) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        paired.pair().get_queue_sender("orders").send_messages(message("a"), timeout=0)


def test_an_entity_that_is_not_there_counts_and_comes_back_when_it_is_made(paired: PairedEmulator) -> None:  # F3
    client = paired.pair()
    sender = client.get_queue_sender("later")
    sender.send_messages(message("a"))
    assert client.failed_over == ("later",)
    paired.queue("later")
    eventually(paired.clock.waits)
    paired.clock.advance(60)
    eventually(lambda: client.failed_over == ())
    sender.send_messages(message("b"))
    assert paired.active("later") == 1
