"""The error table: which error the official client raises for each AMQP condition, in each operation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from syphon.amqp import Map, Section, section_bytes
from syphon.amqp.frames import Accepted, Error, Rejected
from syphon.emulator import Action, Fault, Operation, QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace, ignore_unclosed_resources
from tests.support.raw_client import LinkEnded, raw_client
from tests.support.sdk_queue import SOON

pytestmark = [ignore_unclosed_resources, pytest.mark.usefixtures("garbage_collected")]

ORDER = section_bytes(Section.DATA, b"an order")
AGAIN, ONCE = True, False

TABLE: dict[str, tuple[type[ServiceBusError], bool]] = {
    "com.microsoft:server-busy": (ServiceBusServerBusyError, AGAIN),
    "com.microsoft:timeout": (OperationTimeoutError, AGAIN),
    "amqp:not-found": (MessagingEntityNotFoundError, ONCE),
    "com.microsoft:message-lock-lost": (MessageLockLostError, ONCE),
    "com.microsoft:session-lock-lost": (SessionLockLostError, ONCE),
    "com.microsoft:session-cannot-be-locked": (SessionCannotBeLockedError, AGAIN),
    "com.microsoft:message-not-found": (MessageNotFoundError, AGAIN),
    "amqp:unauthorized-access": (ServiceBusAuthorizationError, ONCE),
    "com.microsoft:auth-failed": (ServiceBusAuthorizationError, AGAIN),
    "amqp:resource-limit-exceeded": (ServiceBusQuotaExceededError, ONCE),
    "com.microsoft:entity-disabled": (MessagingEntityDisabledError, AGAIN),
    "amqp:link:message-size-exceeded": (MessageSizeExceededError, ONCE),
    "amqp:link:detach-forced": (ServiceBusConnectionError, AGAIN),
    "amqp:internal-error": (ServiceBusError, AGAIN),
    "com.microsoft:operation-cancelled": (ServiceBusError, AGAIN),
    "amqp:not-allowed": (ServiceBusError, ONCE),
    "amqp:precondition-failed": (ServiceBusError, ONCE),
    "amqp:resource-deleted": (ServiceBusError, ONCE),
    "amqp:not-implemented": (ServiceBusError, ONCE),
    "com.microsoft:argument-error": (ServiceBusError, ONCE),
    "com.microsoft:argument-out-of-range": (ServiceBusError, ONCE),
}
"""Each condition: the exception, and whether the client retries by itself."""


@pytest.fixture
async def client(emulated: EmulatedNamespace) -> AsyncIterator[ServiceBusClient]:
    """One that retries at most once, and immediately."""
    async with ServiceBusClient.from_connection_string(
        emulated.connection_string, retry_total=1, retry_backoff_factor=0.001
    ) as client:
        yield client


Attempt = Callable[[str, Callable[[], None]], Awaitable[None]]
"""Does something to the queue of that name, and is struck by a fault once it has armed it."""


async def table_of(
    emulated: EmulatedNamespace, operations: set[Operation], attempt: Attempt
) -> dict[str, tuple[type, bool]]:
    """What comes of each condition: all at the same time, each on a queue of its own."""

    async def outcome(number: int, condition: str) -> tuple[type, bool]:
        queue = f"queue-{number}"
        emulated.namespace.create_queue(QueueDescription(queue))
        faults = [Fault(Action.ERROR, operation, queue, condition=condition) for operation in operations]

        def arm() -> None:
            for fault in faults:
                emulated.namespace.faults.add(fault)

        with pytest.raises(ServiceBusError) as caught:
            await attempt(queue, arm)
        struck = sum(fault.struck for fault in faults)
        assert struck in (1, 2), f"{condition} struck {struck} times"
        return caught.type, struck == 2

    outcomes = await asyncio.gather(*(outcome(number, condition) for number, condition in enumerate(TABLE)))
    return dict(zip(TABLE, outcomes, strict=True))


async def put_order(emulated: EmulatedNamespace, queue: str) -> None:
    async with raw_client(emulated) as raw:
        assert await raw.send(await raw.attach_sender(queue), ORDER) == Accepted()


async def test_each_condition_of_a_refused_send(emulated: EmulatedNamespace, client: ServiceBusClient) -> None:
    async def send(queue: str, arm: Callable[[], None]) -> None:
        async with client.get_queue_sender(queue) as sender:
            arm()
            await sender.send_messages(ServiceBusMessage("an order"))

    assert await table_of(emulated, {Operation.SEND}, send) == TABLE
    assert emulated.namespace.counters.totals()["send"] == 0


async def test_each_condition_of_a_refused_attach(emulated: EmulatedNamespace, client: ServiceBusClient) -> None:
    async def attach(queue: str, arm: Callable[[], None]) -> None:
        arm()
        async with client.get_queue_receiver(queue):
            pass

    assert await table_of(emulated, {Operation.ATTACH}, attach) == TABLE


async def test_each_condition_of_a_link_that_ends_while_receiving(
    emulated: EmulatedNamespace, client: ServiceBusClient
) -> None:
    async def receive(queue: str, arm: Callable[[], None]) -> None:
        await put_order(emulated, queue)
        async with client.get_queue_receiver(queue) as receiver:
            arm()
            await receiver.receive_messages(max_wait_time=SOON)

    # After these the client keeps the link for alive: its second try meets the same dead link, not the broker.
    kept = ("com.microsoft:server-busy", "com.microsoft:timeout", "com.microsoft:message-not-found")
    assert await table_of(emulated, {Operation.RECEIVE}, receive) == TABLE | {
        condition: (TABLE[condition][0], ONCE) for condition in kept
    }


async def test_each_condition_of_a_refused_settlement(emulated: EmulatedNamespace, client: ServiceBusClient) -> None:
    # The client's second try to settle goes over the management link: the fault must wait there too.
    async def complete(queue: str, arm: Callable[[], None]) -> None:
        await put_order(emulated, queue)
        async with client.get_queue_receiver(queue) as receiver:
            [message] = await receiver.receive_messages(max_wait_time=SOON)
            arm()
            await receiver.complete_message(message)

    assert await table_of(emulated, {Operation.SETTLE, Operation.MANAGE}, complete) == TABLE
    assert emulated.namespace.counters.totals()["settle"] == 0


async def test_each_condition_of_a_refused_management_request(
    emulated: EmulatedNamespace, client: ServiceBusClient
) -> None:
    async def peek(queue: str, arm: Callable[[], None]) -> None:
        async with client.get_queue_receiver(queue) as receiver:
            arm()
            await receiver.peek_messages()

    assert await table_of(emulated, {Operation.MANAGE}, peek) == TABLE


# One refusal and then none -------------------------------------------------------------------------------------------


async def test_a_send_that_was_refused_as_busy_is_retried_and_arrives_once(
    emulated: EmulatedNamespace, client: ServiceBusClient
) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    busy = Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy", times=1)
    emulated.namespace.faults.add(busy)
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("an order"))
    assert busy.struck == 1
    assert emulated.namespace.runtime("orders").active == 1


async def test_a_settlement_that_was_refused_as_busy_is_made_over_the_management_link(
    emulated: EmulatedNamespace, client: ServiceBusClient
) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    emulated.namespace.faults.add(
        Fault(Action.ERROR, Operation.SETTLE, "orders", condition="com.microsoft:server-busy", times=1)
    )
    await put_order(emulated, "orders")
    async with client.get_queue_receiver("orders") as receiver:
        [message] = await receiver.receive_messages(max_wait_time=SOON)
        await receiver.complete_message(message)
    assert emulated.namespace.runtime("orders").active == 0
    assert emulated.namespace.counters.by_entity()["orders"] == {"receive": 1, "send": 1, "settle": 1}


# On the wire ---------------------------------------------------------------------------------------------------------


async def test_a_rejection_always_has_three_fields(
    emulated: EmulatedNamespace,
) -> None:  # else the client hangs forever
    emulated.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(emulated) as raw:
        sender = await raw.attach_sender("orders")
        assert await raw.send(sender, ORDER) == Accepted()
        emulated.namespace.faults.add(Fault(Action.ERROR, Operation.SEND, description="", times=1))
        assert await raw.refusal_of(sender, ORDER) == Error("amqp:internal-error", "", Map())
        emulated.namespace.faults.add(Fault(Action.REFUSE, Operation.SEND, description="not today", times=1))
        assert await raw.refusal_of(sender, ORDER) == Error("amqp:not-allowed", "not today", Map())
        # One that the broker itself has reason for: the data section is cut off in the middle.
        assert (await raw.refusal_of(sender, ORDER[:-2])).info == Map()

        receiver = await raw.attach_receiver("orders")
        raw.grant(receiver, 1)
        emulated.namespace.faults.add(Fault(Action.ERROR, Operation.SETTLE, condition="amqp:not-found"))
        outcome = await raw.settle(await raw.receive(receiver), Accepted())
        assert outcome == Rejected(Error("amqp:not-found", "A fault was set on this emulator.", Map()))


async def test_the_refusal_of_a_link_carries_its_condition(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    emulated.namespace.faults.add(Fault(Action.ERROR, Operation.ATTACH, "orders", condition="com.microsoft:timeout"))
    async with raw_client(emulated) as raw:
        with pytest.raises(LinkEnded) as refused:
            await raw.attach_sender("orders")
        assert refused.value.condition == "com.microsoft:timeout"
