"""A message that can never arrive lies in the dead letters, and says there why (S4, M4, M7), to the real client."""

from __future__ import annotations

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue

from syphon.emulator import Action, Fault, Operation
from syphon.model.outcome import Result
from tests.transfer.conftest import BACKLOG, Bench, aliased

REFUSALS = {
    "amqp:not-found": "DestinationMissing",
    "amqp:resource-deleted": "DestinationMissing",
    "com.microsoft:entity-disabled": "DestinationDisabled",
    "amqp:link:message-size-exceeded": "MessageTooLarge",
    "amqp:not-allowed": "NotAllowedByEntity",
    "com.microsoft:argument-error": "NotAllowedByEntity",
    "com.microsoft:something-new": "NotAllowedByEntity",
}


def test_a_refusal_for_good_is_a_dead_letter_with_the_path_the_type_and_the_text(bench: Bench) -> None:  # S4, M7
    """Of a message, or of a link; what nobody knows is a word about a message only if it is said of one."""
    expected = {}
    for number, (condition, reason) in enumerate(REFUSALS.items()):
        for path, fault in (
            (f"m{number}", Fault(Action.ERROR, Operation.SEND, f"m{number}", condition, "The cat says no.")),
            (f"l{number}", Fault(Action.DETACH, Operation.ATTACH, f"l{number}", condition, "The cat says no.")),
        ):
            if path != "l6":
                bench.queue(path)
                bench.fault(fault)
                expected[path] = (reason, f"Destination '{path}': {condition}: The cat says no.")
    bench.put(*(aliased(f"for {path}", path, message_id=path) for path in expected))
    _, outcomes = bench.run()
    assert {outcome.result for outcome in outcomes} == {Result.DEAD_LETTERED}
    letters = dead_letters(bench, len(expected))
    told = {letter.message_id: (letter.dead_letter_reason, letter.dead_letter_error_description) for letter in letters}
    assert told == expected
    for letter in letters:  # and all that is needed to put it back
        assert str(letter) == f"for {letter.message_id}"
        assert letter.application_properties == {
            b"x-ms-path": str(letter.message_id).encode(),
            b"DeadLetterReason": str(letter.dead_letter_reason).encode(),
            b"DeadLetterErrorDescription": str(letter.dead_letter_error_description).encode(),
        }


def test_a_text_that_is_too_long_for_a_dead_letter_is_cut(bench: Bench) -> None:  # S4
    bench.queue("orders")
    bench.fault(Fault(Action.REFUSE, Operation.SEND, "orders", description="no " * 3000))
    bench.put(aliased("hello", "orders"))
    bench.run()
    (letter,) = dead_letters(bench, 1)
    assert str(letter.dead_letter_error_description).startswith("Destination 'orders': amqp:not-allowed: no no")
    assert len(str(letter.dead_letter_error_description)) == 4096  # what the service takes


def test_an_alias_that_makes_no_sense_is_a_dead_letter_and_nothing_of_it_is_forwarded(bench: Bench) -> None:  # M4
    bench.queue("orders")
    bad = {"x-ms-timetolive": "soon", "x-ms-scheduledenqueuetimeutc": "tomorrow", "x-ms-sessionid": 7, "x-ms-path": ""}
    bench.put(
        *(
            aliased("x", "orders", message_id=alias, application_properties={alias: value})
            for alias, value in bad.items()
        )
    )
    _, outcomes = bench.run()
    letters = {str(letter.message_id): letter for letter in dead_letters(bench, len(bad))}
    assert letters.keys() == bad.keys()
    for alias, letter in letters.items():
        told = str(letter.dead_letter_error_description)
        assert letter.dead_letter_reason == ("NoDestination" if alias == "x-ms-path" else "BadAlias")
        assert told.startswith(f"{alias} is ")
        assert repr(bad[alias]) in told
        assert "expected is" in told
        assert str(letter) == "x"
        assert f"{letter.dead_letter_reason}: {told}" in {outcome.reason for outcome in outcomes}
    assert bench.active("orders") == 0


def dead_letters(bench: Bench, count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    with bench.client("contoso-dr").get_queue_receiver(BACKLOG, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        while len(found) < count and (more := receiver.receive_messages(count, max_wait_time=20)):
            found += more
    return found
