"""What counts (F3): each AMQP condition, answered by a real emulator, as the SDK makes an error of it."""

from __future__ import annotations

import asyncio

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from syphon.emulator import Action, Emulator, EmulatorSettings, Fault, NamespaceSettings, Operation, QueueDescription
from syphon.sender.error_classes import BY_CONDITION, Verdict, judge
from tests.sender.conftest import leftovers

COUNTS, BUSY, DENIED, INVALID = Verdict.COUNTS, Verdict.BUSY, Verdict.DENIED, Verdict.INVALID

EXPECTED: dict[str, Verdict] = {
    "com.microsoft:timeout": COUNTS,
    "com.microsoft:operation-cancelled": COUNTS,
    "com.microsoft:entity-disabled": COUNTS,
    "amqp:internal-error": COUNTS,
    "amqp:not-found": COUNTS,
    "amqp:resource-deleted": COUNTS,
    "amqp:resource-limit-exceeded": COUNTS,
    "amqp:link:detach-forced": COUNTS,
    "amqp:connection:forced": COUNTS,
    "something:nobody-has-heard-of": COUNTS,
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
"""F3, condition by condition: written down here once more, so that a change in the table is a change in a test."""


def test_every_condition_of_the_table_is_expected_here() -> None:
    assert set(BY_CONDITION) <= set(EXPECTED)


@leftovers
async def test_each_condition_is_judged_as_it_should_when_the_service_answers_with_it() -> None:  # F3
    async with Emulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        running = emulator["contoso"]

        async def verdict(number: int, condition: str) -> Verdict:
            queue = f"q{number}"
            running.namespace.create_queue(QueueDescription(queue))
            running.namespace.faults.add(Fault(Action.ERROR, Operation.SEND, queue, condition=condition))
            async with ServiceBusClient.from_connection_string(running.connection_string, retry_total=0) as client:
                sender = client.get_queue_sender(queue)
                with pytest.raises(ServiceBusError) as caught:
                    await sender.send_messages(ServiceBusMessage("x"), timeout=30)
                await sender.close()
                return judge(caught.value)

        found = await asyncio.gather(*(verdict(*item) for item in enumerate(EXPECTED)))
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
def test_an_error_without_a_condition_is_judged_by_its_kind(error: Exception, expected: Verdict) -> None:  # F3
    assert judge(error) is expected
