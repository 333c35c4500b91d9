"""The class of each AMQP condition (F3): a real emulator answers with it, and the SDK makes an error of it."""

from __future__ import annotations

import asyncio

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from syphon.emulator import Action, Emulator, EmulatorSettings, Fault, NamespaceSettings, Operation, QueueDescription
from syphon.model.errors import CONDITIONS
from syphon.sender.error_classes import FailureClass, classify, may_have_arrived
from tests.integration.sender.conftest import leftovers

COUNTS, BUSY, DENIED, INVALID = FailureClass.COUNTS, FailureClass.BUSY, FailureClass.DENIED, FailureClass.INVALID

EXPECTED: dict[str, FailureClass] = {
    "com.microsoft:timeout": COUNTS,
    "com.microsoft:operation-cancelled": COUNTS,
    "com.microsoft:entity-disabled": COUNTS,
    "amqp:internal-error": COUNTS,
    "amqp:not-found": COUNTS,
    "amqp:resource-deleted": COUNTS,
    "amqp:resource-limit-exceeded": COUNTS,
    "amqp:link:detach-forced": COUNTS,
    "amqp:connection:forced": COUNTS,
    "amqp:resource-locked": COUNTS,
    "amqp:link:stolen": COUNTS,
    "com.microsoft:store-lock-lost": COUNTS,
    "com.microsoft:partition-not-owned": COUNTS,
    "com.microsoft:message-lock-lost": COUNTS,
    "com.microsoft:session-lock-lost": COUNTS,
    "something:unknown": COUNTS,
    "com.microsoft:server-busy": BUSY,
    "amqp:unauthorized-access": DENIED,
    "com.microsoft:auth-failed": DENIED,
    "amqp:link:message-size-exceeded": INVALID,
    "amqp:not-allowed": INVALID,
    "amqp:not-implemented": INVALID,
    "amqp:precondition-failed": INVALID,
    "amqp:invalid-field": INVALID,
    "amqp:decode-error": INVALID,
    "com.microsoft:argument-error": INVALID,
    "com.microsoft:argument-out-of-range": INVALID,
}
"""F3, condition by condition: repeated here, so that a change in the table needs a change in a test."""


def test_every_condition_of_the_table_is_expected_here() -> None:
    assert set(CONDITIONS) <= set(EXPECTED)


@leftovers
async def test_each_condition_that_the_service_answers_with_has_its_class() -> None:  # F3
    async with Emulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        running = emulator["contoso"]

        async def failure_class(number: int, condition: str) -> FailureClass:
            queue = f"q{number}"
            running.namespace.create_queue(QueueDescription(queue))
            running.namespace.faults.add(Fault(Action.ERROR, Operation.SEND, queue, condition=condition))
            async with ServiceBusClient.from_connection_string(running.connection_string, retry_total=0) as client:
                sender = client.get_queue_sender(queue)
                with pytest.raises(ServiceBusError) as caught:
                    await sender.send_messages(ServiceBusMessage("x"), timeout=30)
                await sender.close()
                return classify(caught.value)

        found = await asyncio.gather(*(failure_class(*item) for item in enumerate(EXPECTED)))
    assert dict(zip(EXPECTED, found, strict=True)) == EXPECTED


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationTimeoutError(), COUNTS),
        (ServiceBusConnectionError(), COUNTS),
        (ServiceBusError("Handler failed", error=AttributeError("'NoneType' object has no attribute 'close'")), COUNTS),
        (ServiceBusError("Handler failed", error=TypeError("Unable to encode")), INVALID),
        (ServiceBusError("Handler failed", error=ValueError("Value supplied for int invalid")), INVALID),
        (ServiceBusError("Handler failed", error=ClientAuthenticationError("no token")), DENIED),
        (OSError("no route to host"), COUNTS),
        (TypeError("Only messages can be sent"), INVALID),
    ],
)
def test_an_error_without_a_condition_is_classified_by_its_type(error: Exception, expected: FailureClass) -> None:  # F3
    assert classify(error) is expected


NO_REFUSAL = {
    "amqp:resource-locked",
    "amqp:link:stolen",
    "com.microsoft:store-lock-lost",
    "com.microsoft:partition-not-owned",
    "com.microsoft:message-lock-lost",
    "com.microsoft:session-lock-lost",
    "something:unknown",
}
"""Conditions that do not say that the service has refused this message."""


@pytest.mark.parametrize("condition", list(EXPECTED))
def test_a_message_may_have_arrived_unless_the_service_has_refused_it(condition: str) -> None:  # D10
    error = ServiceBusError("x")
    error._condition = condition
    assert may_have_arrived(error) == (condition in NO_REFUSAL)


def test_a_message_whose_answer_was_lost_may_have_arrived() -> None:  # D10
    assert may_have_arrived(ServiceBusConnectionError())
    assert may_have_arrived(OSError("connection reset"))
