"""Batches keep within the limits of their link: none is refused for its size (D6)."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp._encode import encode_payload

from syphon.amqp import (
    Header,
    Map,
    Message,
    Properties,
    Section,
    data_section,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.backlog import BrokerStamps, Restored
from syphon.emulator import QueueDescription, Tier
from syphon.model.entity_path import EntityPath
from syphon.model.outcomes import Result
from syphon.servicebus.links import Arrival
from syphon.servicebus.sdk_clients import payloads_of
from syphon.transfer.message_transfer import MessageTransfer
from syphon.transfer.unsent import encoded
from tests.integration.transfer.conftest import TwoNamespaces
from tests.support.destination_trial import Trial, trial

__all__ = ["trial"]

LIMIT = 262_144
"""Bytes that a message, and a batch, may have in a Standard namespace."""


def sized(size: int) -> bytes:
    """A message of exactly so many bytes."""
    head = len(data_section(bytes(size))) - size
    return data_section(bytes(size - head))


def test_messages_go_together_as_far_as_the_link_allows(trial: Trial) -> None:
    for _ in range(12):
        trial.offer(None, sized(60_000))
    trial.turn(lambda: trial.answered() == 12)
    assert [answer.error for answer in trial.results.answers] == [None] * len(trial.results.answers)
    assert max(len(answer.batch) for answer in trial.results.answers) == 4


def test_the_envelope_of_a_batch_counts_as_well(trial: Trial) -> None:
    half = LIMIT // 2 - 100  # two of them fit, but not with an envelope that has the id and key of the first
    for _ in range(2):
        trial.offer("k" * 128, sized(half), message_id="i" * 128)
    trial.turn(lambda: trial.answered() == 2)
    assert [(len(answer.batch), answer.error) for answer in trial.results.answers] == [(1, None), (1, None)]


def test_the_envelope_of_a_batch_is_the_sdks() -> None:  # S8: by it a partitioned entity finds the partition
    theirs = ServiceBusMessageBatch(LIMIT)
    for number in range(2):
        theirs.add_message(ServiceBusMessage("x", message_id=f"m{number}", session_id="s", partition_key="s"))
    envelope = Message(bytes(encode_payload(bytearray(), theirs._message)))
    batch = []
    for payload in payloads_of(theirs):
        message = Message(payload).properties()
        restored = Restored(
            payload, EntityPath.of("orders"), message.message_id, "s", "s", len(payload), BrokerStamps()
        )
        batch.append(MessageTransfer(None, Arrival(None, 0, b"", b"", 0.0, 0.0), restored, 1))  # type: ignore[arg-type]
    ours = Message(encoded(batch)[0])
    assert ours.properties() == envelope.properties() == Properties(message_id="m0", group_id="s")
    assert ours.annotations() == envelope.annotations() == Map.symbols({"x-opt-partition-key": "s"})


def test_a_batch_has_a_limit_of_its_own_where_messages_may_be_larger(trial: Trial) -> None:  # Premium: 1 MB
    premium = trial.namespaces.primary
    trial.namespaces.emulator.call(lambda: setattr(premium, "tier", Tier.PREMIUM))
    trial.namespaces.emulator.call(lambda: premium.delete("orders"))
    large = QueueDescription("orders", max_message_size_in_kilobytes=4096)
    trial.namespaces.emulator.call(lambda: premium.create_queue(large))
    for _ in range(4):
        trial.offer(None, sized(400_000))
    trial.offer(None, sized(2_000_000))
    trial.turn(lambda: trial.answered() == 5)
    assert [answer.error for answer in trial.results.answers] == [None] * len(trial.results.answers)
    assert len(trial.results.accepted) == 5


@pytest.mark.parametrize(("size", "result"), [(LIMIT, Result.FORWARDED), (LIMIT + 1, Result.DEAD_LETTERED)])
def test_a_message_of_the_limit_passes_and_one_byte_more_does_not(  # M7
    namespaces: TwoNamespaces, size: int, result: Result
) -> None:
    namespaces.queue("orders")
    aliases = section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"x-ms-path": "orders"}))
    head = properties_bytes(Properties(message_id="large"))
    body = sized(size - len(head) - len(header_bytes(Header(durable=True))))  # every broker adds it
    namespaces.put_raw(head + aliases + body)
    _, outcomes = namespaces.run()
    assert [(outcome.result, outcome.message_id) for outcome in outcomes] == [(result, "large")]
    if result is Result.DEAD_LETTERED:
        assert outcomes[0].reason.startswith("MessageTooLarge: Destination 'orders': ")
        assert f"The message has {size} bytes; 'orders' accepts at most {LIMIT}" in outcomes[0].reason
    arrived = namespaces.emulator.call(
        lambda: [found.bare for found in namespaces.primary.message_queue("orders").peek(0, 9)]
    )
    assert arrived == ([Message(head + body).bare()] if result is Result.FORWARDED else [])


def test_a_long_line_of_one_key_lets_the_others_have_their_turn(trial: Trial) -> None:  # S8
    for _ in range(250):
        trial.offer("a")
    trial.offer("b")
    trial.turn(lambda: trial.answered() == 251)
    assert [(answer.batch[0].restored.partition_key, len(answer.batch)) for answer in trial.results.answers] == [
        ("a", 100),
        ("b", 1),
        ("a", 100),
        ("a", 50),
    ]
