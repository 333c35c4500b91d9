"""What a message looks like in the backlog, for each way to give it to the sender (M1, M3, M7)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError

from syphon.amqp import Described, Long, Message, Symbol, Timestamp
from syphon.backlog import Restored, restore
from syphon.emulator import Outage
from syphon.emulator.broker.message import BrokeredMessage
from syphon.sender import NOT_CANCELLABLE, TooLargeForBacklog, UnfitForBacklog
from syphon.sender.send_calls import encode
from tests.integration.sender.conftest import QUEUE_0, PairedEmulator, leftovers

pytestmark = leftovers
ONE_API = pytest.mark.parametrize("api", ["sync"])
"""For tests of the bytes: they are the same for both APIs."""
DUE = datetime(2040, 5, 6, 7, 8, 9, tzinfo=UTC)


def failed_over(paired: PairedEmulator, path: str = "orders") -> Any:
    """A sender whose entity is failed over, to a backlog of one queue."""
    client = paired.pair(backlog_queue_count=1)
    sender = client.get_queue_sender(path)
    paired.outage(Outage.REFUSE)
    return sender


def in_backlog(paired: PairedEmulator) -> list[bytes]:
    return paired.stored(QUEUE_0, "contoso-dr")


def home(payload: bytes) -> Restored:
    restored = restore(payload, enqueued_at=None, now=0)
    assert isinstance(restored, Restored)
    return restored


def test_aliases_are_typed_as_the_old_sdk_wrote_them_and_the_properties_are_cleared(
    paired: PairedEmulator,
) -> None:  # M1, M3
    message = ServiceBusMessage(
        b"body",
        message_id="m",
        session_id="s1",
        time_to_live=timedelta(hours=2),
        scheduled_enqueue_time_utc=DUE,
        application_properties={"mine": 7},
    )
    failed_over(paired).send_messages(message)
    (payload,) = in_backlog(paired)
    stored = Message(payload)
    properties = stored.application_properties()
    assert properties.get("x-ms-path") == "orders"
    assert properties.get("x-ms-sessionid") == "s1"
    assert properties.get("x-ms-timetolive") == Described(Symbol("com.microsoft:timespan"), Long(2 * 36_000_000_000))
    due = properties.get("x-ms-scheduledenqueuetimeutc")
    assert isinstance(due, Timestamp)
    assert due == round(DUE.timestamp() * 1000)
    assert properties.get("mine") == 7
    assert stored.properties().group_id is None
    assert stored.header().ttl is None
    assert paired.active(QUEUE_0, "contoso-dr") == 1  # due at once: the schedule is the primary's to keep


def test_a_message_with_none_of_the_three_has_its_path_alone(paired: PairedEmulator) -> None:  # M1
    failed_over(paired).send_messages(ServiceBusMessage("body", message_id="m"))
    (payload,) = in_backlog(paired)
    assert [str(key) for key, _ in Message(payload).application_properties()] == ["x-ms-path"]


def message_with_everything() -> ServiceBusMessage:
    return ServiceBusMessage(
        b"\x00\xff body",
        message_id="m",
        correlation_id="c",
        content_type="text/x",
        subject="s",
        to="t",
        reply_to="r",
        reply_to_session_id="rs",
        session_id="s1",
        partition_key="s1",
        application_properties={"text": "t", "number": 5, "flag": True, "ratio": 0.5},
    )


def through_a_broker(payload: bytes) -> bytes:
    return BrokeredMessage.parse(payload).to_bytes()


def annotated_value() -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(
        value_body={"key": [1, "two", 3.0]},
        header=AmqpMessageHeader(durable=True, priority=3),
        properties=AmqpMessageProperties(message_id="v"),
        annotations={"x-opt-mine": "kept"},
    )


def annotated_sequence() -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(sequence_body=[[1, 2], ["three"]], properties=AmqpMessageProperties(message_id="q"))


def annotated_delivery() -> AmqpAnnotatedMessage:
    """The SDK writes delivery annotations after the body (M8)."""
    return AmqpAnnotatedMessage(
        data_body=b"body",
        properties=AmqpMessageProperties(message_id="d"),
        application_properties={"number": "1" * 230},  # the aliases push the map into its long form
        delivery_annotations={"hint": "now"},
        footer={"checksum": 12},
    )


@ONE_API
@pytest.mark.parametrize("make", [message_with_everything, annotated_value, annotated_sequence, annotated_delivery])
def test_restored_it_is_to_the_byte_what_the_primary_would_get(
    paired: PairedEmulator, make: Callable[[], Any]
) -> None:  # M2, M8
    message = make()
    client = paired.pair(backlog_queue_count=1)
    sender = client.get_queue_sender("orders")
    sender.send_messages(message)
    paired.outage(Outage.REFUSE)
    sender.send_messages(message)
    (stored,), (payload,) = paired.stored("orders"), in_backlog(paired)
    restored = home(payload).payload
    assert Message(restored).bare() == Message(stored).bare()
    # The header and the annotations as well: what a broker adds to both messages is the same.
    assert through_a_broker(restored) == through_a_broker(encode(message)[0])
    assert home(payload).partition_key == ("s1" if make is message_with_everything else None)


@ONE_API
@pytest.mark.parametrize(
    "given",
    [
        lambda: [ServiceBusMessage("a", message_id="1"), ServiceBusMessage("b", message_id="2")],
        lambda: (ServiceBusMessage(body, message_id=identity) for identity, body in (("1", "a"), ("2", "b"))),
        lambda: [{"body": "a", "message_id": "1"}, {"body": "b", "message_id": "2"}],
        lambda: [annotated("1"), ServiceBusMessage("b", message_id="2")],
        lambda: batch(ServiceBusMessage("a", message_id="1"), ServiceBusMessage("b", message_id="2")),
    ],
    ids=["list", "generator", "mappings", "annotated", "batch"],
)
def test_whatever_the_sdk_takes_goes_to_the_backlog_as_well(paired: PairedEmulator, given: Callable[[], Any]) -> None:
    failed_over(paired).send_messages(given())
    assert [home(payload).message_id for payload in in_backlog(paired)] == ["1", "2"]


def annotated(identity: str) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(data_body=b"a", properties=AmqpMessageProperties(message_id=identity))


def batch(*messages: ServiceBusMessage) -> ServiceBusMessageBatch:
    made = ServiceBusMessageBatch(262_144)
    for message in messages:
        made.add_message(message)
    return made


def test_nothing_at_all_is_sent_for_an_empty_list(paired: PairedEmulator) -> None:
    failed_over(paired).send_messages([])
    assert in_backlog(paired) == []


def test_the_callers_message_is_left_as_it_is(paired: PairedEmulator) -> None:
    message = ServiceBusMessage(
        "body", session_id="s", time_to_live=timedelta(minutes=1), application_properties={"raw": b"bytes"}
    )
    sender = failed_over(paired)
    sender.send_messages([{"body": "to be failed over by"}])
    sender.send_messages(message)
    sender.schedule_messages(message, DUE)
    assert message.application_properties == {"raw": b"bytes"}
    assert (message.session_id, message.time_to_live) == ("s", timedelta(minutes=1))
    assert message.scheduled_enqueue_time_utc is None


def test_a_message_too_large_once_aliased_is_refused_by_how_much_before_anything_is_sent(
    paired: PairedEmulator,
) -> None:  # M7
    sender = failed_over(paired)
    large = ServiceBusMessage(b"x" * 262_110, message_id="large")
    with pytest.raises(TooLargeForBacklog, match="more than the 262144 that contoso/x-servicebus-tra") as caught:
        sender.send_messages([ServiceBusMessage("small"), large])
    assert in_backlog(paired) == []
    assert isinstance(caught.value, MessageSizeExceededError)
    assert f"{caught.value.excess} more than" in str(caught.value)
    sender.send_messages(ServiceBusMessage(b"x" * (262_110 - caught.value.excess), message_id="large"))
    with pytest.raises(TooLargeForBacklog):
        sender.send_messages(ServiceBusMessage(b"x" * (262_111 - caught.value.excess), message_id="large"))


def test_a_batch_that_was_full_before_its_aliases_goes_in_parts(paired: PairedEmulator) -> None:  # M7
    sender = failed_over(paired)
    full = batch(*(ServiceBusMessage(b"x" * 900, message_id=str(number)) for number in range(278)))
    assert full.size_in_bytes > 255_000
    sender.send_messages(full)
    assert [home(payload).message_id for payload in in_backlog(paired)] == [str(number) for number in range(278)]


def test_an_application_that_makes_its_batches_goes_on_doing_so(paired: PairedEmulator) -> None:
    sender = failed_over(paired)
    made = sender.create_message_batch()
    made.add_message(ServiceBusMessage("a", message_id="1"))
    sender.send_messages(made)
    assert len(in_backlog(paired)) == 1
    assert made.max_size_in_bytes == 262_144


def test_a_message_out_of_a_backlog_is_not_put_into_one_again(paired: PairedEmulator) -> None:
    sender = failed_over(paired)
    with pytest.raises(UnfitForBacklog, match="x-ms-path"):
        sender.send_messages(ServiceBusMessage("a", application_properties={"x-ms-path": "orders"}))


def test_messages_are_scheduled_by_way_of_the_backlog_and_cannot_be_cancelled(paired: PairedEmulator) -> None:
    sender = failed_over(paired)
    messages = [ServiceBusMessage("a", message_id="1"), annotated("2")]
    numbers = sender.schedule_messages(messages, DUE)
    assert numbers == [NOT_CANCELLABLE, NOT_CANCELLABLE]
    for payload in in_backlog(paired):
        due = Message(payload).application_properties().get("x-ms-scheduledenqueuetimeutc")
        assert due == Timestamp(round(DUE.timestamp() * 1000))
    with pytest.raises(ValueError, match="through the backlog"):
        sender.cancel_scheduled_messages(numbers)


def test_a_healthy_primary_schedules_and_cancels(paired: PairedEmulator) -> None:
    sender = paired.pair().get_queue_sender("orders")
    message = ServiceBusMessage("a", message_id="1")
    numbers = sender.schedule_messages([message, message], DUE)
    assert len(paired.stored("orders")) == 2
    assert message.scheduled_enqueue_time_utc is None
    sender.cancel_scheduled_messages(numbers)
    assert paired.stored("orders") == []


@ONE_API
def test_a_received_message_can_be_sent_again_with_its_partition_key(paired: PairedEmulator) -> None:  # S8
    """The SDK then writes the key as binary."""
    client = paired.pair(backlog_queue_count=1)
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("body", message_id="m", partition_key="k"))
    (received,) = paired.take("orders", 1)
    sender.send_messages(received.raw_amqp_message)
    assert BrokeredMessage.parse(paired.stored("orders")[0]).partition_key == "k"
    paired.outage(Outage.REFUSE)
    sender.send_messages(received.raw_amqp_message)
    (payload,) = in_backlog(paired)
    assert Message(payload).annotations().get("x-opt-partition-key") == b"k"
    assert home(payload).partition_key == "k"
