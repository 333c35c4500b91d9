"""Partitioned destinations: the partition key of a message is kept, and a batch has one key (S8)."""

from __future__ import annotations

from collections import Counter

from azure.servicebus import ServiceBusMessage

from syphon.emulator import Action, Fault, Operation
from syphon.model.outcomes import Result
from tests.integration.transfer.conftest import TwoNamespaces, aliased


def keyed(number: int, path: str) -> ServiceBusMessage:
    """Every third message has a session, every third a partition key, every third none."""
    kind, key = number % 3, f"key-{number % 7}"
    if kind == 0:
        return aliased(f"{number}", path, message_id=f"{number}", application_properties={"x-ms-sessionid": key})
    if kind == 1:
        return aliased(f"{number}", path, message_id=f"{number}", partition_key=key)
    return aliased(f"{number}", path, message_id=f"{number}")


def test_mixed_keys_arrive_at_a_partitioned_queue_each_with_its_own(namespaces: TwoNamespaces) -> None:  # S8
    namespaces.queue("wide", enable_partitioning=True)
    namespaces.put(*(keyed(number, "wide") for number in range(300)))
    torn = aliased("torn", "wide", message_id="torn", partition_key="a", application_properties={"x-ms-sessionid": "b"})
    namespaces.put(torn)
    sends = namespaces.fault(Fault(Action.DELAY, Operation.SEND, "wide", seconds=0))
    pump, outcomes = namespaces.run()
    assert (pump.counters.forwarded, pump.counters.dead_lettered, pump.counters.left) == (300, 1, 0)
    (refused,) = (outcome for outcome in outcomes if outcome.result is Result.DEAD_LETTERED)
    assert refused.message_id == "torn", "the service refuses a session id and a partition key that differ"
    assert sends.struck < 150, "batches of several keys would be refused, and sent again in parts"
    arrived = {message.message_id: message for message in namespaces.take("wide", 300)}
    assert len(arrived) == 300
    for number in range(300):
        message = arrived[f"{number}"]
        expected = [(f"key-{number % 7}", f"key-{number % 7}"), (None, f"key-{number % 7}"), (None, None)][number % 3]
        assert (message.session_id, message.partition_key or message.session_id) == expected


def test_sessions_of_a_partitioned_queue_arrive_whole(namespaces: TwoNamespaces) -> None:  # S8
    namespaces.queue("sessions", enable_partitioning=True, requires_session=True)
    namespaces.put(
        *(
            aliased(f"{number}", "sessions", application_properties={"x-ms-sessionid": f"s{number % 3}"})
            for number in range(90)
        )
    )
    pump, _ = namespaces.run()
    assert pump.counters.forwarded == 90
    for number in range(3):
        with namespaces.client("contoso").get_queue_receiver("sessions", session_id=f"s{number}") as receiver:
            whole: list[int] = []
            while len(whole) < 30 and (messages := receiver.receive_messages(30, max_wait_time=20)):
                whole += (int(str(message)) for message in messages)
        assert sorted(whole) == list(range(number, 90, 3))


def test_with_duplicate_detection_the_message_id_is_the_key(namespaces: TwoNamespaces) -> None:  # S8, S2
    namespaces.queue("once", enable_partitioning=True, requires_duplicate_detection=True)
    namespaces.put(*(aliased(f"{number}", "once", message_id=f"id-{number % 200}") for number in range(400)))
    sends = namespaces.fault(Fault(Action.DELAY, Operation.SEND, "once", seconds=0))
    pump, _ = namespaces.run()
    assert (pump.counters.forwarded, pump.counters.dead_lettered) == (400, 0)
    assert Counter(message.message_id for message in namespaces.take("once", 200)) == {f"id-{n}": 1 for n in range(200)}
    assert sends.struck < 450, "it is soon known that each message has a key of its own"


def test_messages_of_one_key_share_batches(namespaces: TwoNamespaces) -> None:  # S8, D6
    namespaces.queue("wide", enable_partitioning=True)
    for key in ("a", "b", "c"):
        namespaces.put(*(aliased(f"{number}", "wide", partition_key=key) for number in range(100)))
    sends = namespaces.fault(Fault(Action.DELAY, Operation.SEND, "wide", seconds=0))
    pump, _ = namespaces.run()
    assert pump.counters.forwarded == namespaces.active("wide") == 300
    assert sends.struck <= 60
