"""A message that can never arrive is dead-lettered, and the real client can read why (S4, M4, M7)."""

from __future__ import annotations

from dataclasses import replace

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue

from syphon.emulator import Action, Fault, Operation
from syphon.model.errors import DestinationDisabled, DestinationMissing
from syphon.model.outcomes import Result
from syphon.transfer.pump_options import PERMANENT
from tests.integration.transfer.conftest import BACKLOG, PATIENT, TwoNamespaces, aliased

REFUSALS = {
    "amqp:not-found": "DestinationMissing",
    "amqp:resource-deleted": "DestinationMissing",
    "com.microsoft:entity-disabled": "DestinationDisabled",
    "amqp:link:message-size-exceeded": "MessageTooLarge",
    "amqp:not-allowed": "NotAllowedByEntity",
    "com.microsoft:argument-error": "NotAllowedByEntity",
    "com.microsoft:something-new": "NotAllowedByEntity",
}


def test_a_permanent_refusal_is_a_dead_letter_with_the_path_the_type_and_the_text(
    namespaces: TwoNamespaces,
) -> None:  # S4, M7
    """A condition of a message, or of a link; an unknown one is about a message only if it answers a message."""
    expected = {}
    for number, (condition, reason) in enumerate(REFUSALS.items()):
        for path, fault in (
            (f"m{number}", Fault(Action.ERROR, Operation.SEND, f"m{number}", condition, "The cat says no.")),
            (f"l{number}", Fault(Action.DETACH, Operation.ATTACH, f"l{number}", condition, "The cat says no.")),
        ):
            if path != "l6":
                namespaces.queue(path)
                namespaces.fault(fault)
                expected[path] = (reason, f"Destination '{path}': {condition}: The cat says no.")
    namespaces.put(*(aliased(f"for {path}", path, message_id=path) for path in expected))
    _, outcomes = namespaces.run(replace(PATIENT, permanent=PERMANENT | {DestinationMissing, DestinationDisabled}))
    assert {outcome.result for outcome in outcomes} == {Result.DEAD_LETTERED}
    letters = dead_letters(namespaces, len(expected))
    told = {letter.message_id: (letter.dead_letter_reason, letter.dead_letter_error_description) for letter in letters}
    assert told == expected
    for letter in letters:  # all that is needed to put it back is there
        assert str(letter) == f"for {letter.message_id}"
        assert letter.application_properties == {
            b"x-ms-path": str(letter.message_id).encode(),
            b"DeadLetterReason": str(letter.dead_letter_reason).encode(),
            b"DeadLetterErrorDescription": str(letter.dead_letter_error_description).encode(),
        }


def test_a_text_that_is_too_long_for_a_dead_letter_is_cut(namespaces: TwoNamespaces) -> None:  # S4
    namespaces.queue("orders")
    namespaces.fault(Fault(Action.REFUSE, Operation.SEND, "orders", description="no " * 3000))
    namespaces.put(aliased("hello", "orders"))
    namespaces.run()
    (letter,) = dead_letters(namespaces, 1)
    assert str(letter.dead_letter_error_description).startswith("Destination 'orders': amqp:not-allowed: no no")
    assert len(str(letter.dead_letter_error_description)) == 4096  # the limit of the service


def test_an_alias_that_makes_no_sense_is_a_dead_letter_and_nothing_of_it_is_forwarded(
    namespaces: TwoNamespaces,
) -> None:  # M4
    namespaces.queue("orders")
    bad = {"x-ms-timetolive": "soon", "x-ms-scheduledenqueuetimeutc": "tomorrow", "x-ms-sessionid": 7, "x-ms-path": ""}
    namespaces.put(
        *(
            aliased("x", "orders", message_id=alias, application_properties={alias: value})
            for alias, value in bad.items()
        )
    )
    _, outcomes = namespaces.run()
    letters = {str(letter.message_id): letter for letter in dead_letters(namespaces, len(bad))}
    assert letters.keys() == bad.keys()
    for alias, letter in letters.items():
        told = str(letter.dead_letter_error_description)
        assert letter.dead_letter_reason == ("NoDestination" if alias == "x-ms-path" else "BadAlias")
        assert told.startswith(f"{alias} is ")
        assert (repr(bad[alias]) if bad[alias] else "empty") in told
        assert "; expected " in told
        assert str(letter) == "x"
        assert f"{letter.dead_letter_reason}: {told}" in {outcome.reason for outcome in outcomes}
    assert namespaces.active("orders") == 0


def dead_letters(namespaces: TwoNamespaces, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    with namespaces.client("contoso-dr").get_queue_receiver(
        BACKLOG, sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        while len(found) < count and (more := receiver.receive_messages(count, max_wait_time=20)):
            found += more
    return found
