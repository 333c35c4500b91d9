"""The order of sessions through an outage, from the sender on (X10, D21)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from syphon.emulator import Action, Fault, Operation, Outage
from syphon.sender import BadOptions, BothSidesFailed, PairOptions
from syphon.sender.events import EntityReturned, OrderGivenUp
from tests.integration.sender.conftest import QUEUE_0, QUEUE_1, PairedEmulator, leftovers
from tests.support.waiting import eventually

pytestmark = leftovers
ORDERED: dict[str, Any] = {
    "session_order": True,
    "ping_primary_interval": timedelta(seconds=1),
    "manual_clock": False,
}


def send(sender: Any, *numbers: int) -> None:
    for number in numbers:
        sender.send_messages(ServiceBusMessage("x", message_id=str(number), session_id=f"s{number % 3}"))


def test_each_session_arrives_in_the_order_of_its_sends(paired: PairedEmulator) -> None:  # X10, D21
    client = paired.pair(enable_syphon=True, **ORDERED)
    sender = client.get_queue_sender("orders")
    send(sender, *range(10))
    paired.outage(Outage.REFUSE)
    send(sender, *range(10, 40))
    assert client.failed_over == ("orders",)
    paired.outage(None)
    count = 40
    while client.failed_over:
        send(sender, count)
        count += 1
    send(sender, *range(count, count + 10))
    eventually(lambda: paired.active("orders") >= count + 10)
    numbers = list(dict.fromkeys(int(message.message_id) for message in paired.take("orders", count + 10)))
    for session in range(3):
        assert [n for n in numbers if n % 3 == session] == [n for n in range(count + 10) if n % 3 == session]
    assert not any(isinstance(change, OrderGivenUp) for change in paired.changes)


def error_of(sender: Any, number: int) -> BothSidesFailed | None:
    try:
        send(sender, number)
    except BothSidesFailed as error:
        return error
    return None


def test_a_session_has_one_backlog_queue_and_fails_with_it(paired: PairedEmulator) -> None:  # D21
    client = paired.pair(**ORDERED)
    paired.outage(Outage.REFUSE)
    sender = client.get_queue_sender("orders")
    send(sender, *range(30))
    assert paired.active(QUEUE_0, "contoso-dr") + paired.active(QUEUE_1, "contoso-dr") == 30
    assert paired.active(QUEUE_0, "contoso-dr") % 10 == 0, "a session is in both queues"
    used = QUEUE_0 if paired.active(QUEUE_0, "contoso-dr") else QUEUE_1
    paired.fault(Fault(Action.ERROR, Operation.SEND, used, "amqp:internal-error"), "contoso-dr")
    errors = list(filter(None, (error_of(sender, number) for number in range(3))))
    assert errors
    assert all(set(error.backlog) == {used} for error in errors)
    assert paired.in_backlog() == 33 - len(errors)


def test_an_entity_does_not_return_before_its_backlog_is_empty(paired: PairedEmulator) -> None:  # D21
    client = paired.pair(**ORDERED)
    paired.outage(Outage.REFUSE)
    sender = client.get_queue_sender("orders")
    send(sender, 0)
    paired.outage(None)
    eventually(lambda: paired.sends("orders") >= 2)  # pings
    assert client.failed_over == ("orders",)
    for queue in (QUEUE_0, QUEUE_1):
        if paired.active(queue, "contoso-dr"):
            paired.take(queue, 1, "contoso-dr")
    eventually(lambda: not client.failed_over)
    send(sender, 3)
    assert paired.in_backlog() == 0


def test_order_is_given_up_after_a_while_and_the_application_hears_of_it(paired: PairedEmulator) -> None:  # D21
    client = paired.pair(session_order_wait=1, **ORDERED)
    paired.outage(Outage.REFUSE)
    send(client.get_queue_sender("orders"), 0)
    paired.outage(None)
    eventually(lambda: not client.failed_over)
    (given_up,) = (change for change in paired.changes if isinstance(change, OrderGivenUp))
    assert given_up.entity == "orders"
    assert given_up.waited > 1
    assert isinstance(paired.changes[-1], EntityReturned)


@pytest.mark.parametrize("options", [{"session_order": "strict"}, {"session_order_wait": -1}])
def test_wrong_options_are_named(options: dict[str, Any]) -> None:  # F1
    with pytest.raises(BadOptions, match=next(iter(options))):
        PairOptions(**options)
