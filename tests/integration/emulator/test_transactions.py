"""Transactions: sends and settlements that take effect together or not at all, on the wire."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from syphon.amqp import Array, Long, Map, Properties, Section, Symbol, Value, properties_bytes, section_bytes
from syphon.amqp.frames import (
    BATCH_FORMAT,
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Detach,
    Disposition,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from syphon.amqp.sections import data_section
from syphon.emulator import (
    Emulator,
    EmulatorSettings,
    NamespaceSettings,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.broker.descriptions import Tier
from syphon.emulator.broker.faults import Action, Fault, Operation
from syphon.emulator.broker.message import BrokeredMessage, StoredState
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import LinkEnded, RawClient, raw_client, value_bytes
from tests.support.waiting import async_eventually

SPANS = "Local transactions cannot span multiple top-level entities such as queue or topic."
PAYLOAD = data_section(b"hello")


@pytest.fixture
async def orders(emulated: EmulatedNamespace) -> EmulatedNamespace:
    """A namespace with the queues orders and bills, and the topic news with one subscription."""
    for name in ("orders", "bills"):
        emulated.namespace.create_queue(QueueDescription(name))
    emulated.namespace.create_topic(TopicDescription("news"))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "all"))
    return emulated


@pytest.fixture
async def client(orders: EmulatedNamespace) -> AsyncIterator[RawClient]:
    async with raw_client(orders) as client:
        yield client


def active(emulated: EmulatedNamespace, path: str) -> int:
    return emulated.namespace.message_queue(path).count(StoredState.ACTIVE)


def _message() -> BrokeredMessage:
    return BrokeredMessage.parse(PAYLOAD)


def _named(name: str) -> bytes:
    return properties_bytes(Properties(message_id=name)) + PAYLOAD


def _keyed(key: str | None) -> bytes:
    return section_bytes(Section.MESSAGE_ANNOTATIONS, Map(((Symbol("x-opt-partition-key"), key),))) + PAYLOAD


def _disposition(token: bytes) -> dict[str, Value]:
    """The body of a request that completes the message with this lock token."""
    return {"disposition-status": "completed", "lock-tokens": Array(0x98, (uuid.UUID(bytes_le=token),))}


def refusal(outcome: object) -> Error:
    assert isinstance(outcome, Rejected), outcome
    assert outcome.error is not None
    return outcome.error


async def test_sends_take_effect_at_the_commit(orders: EmulatedNamespace, client: RawClient) -> None:
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    transaction = await client.declare(coordinator)
    state = TransactionalState(transaction)
    assert await client.send(sender, PAYLOAD, state=state) == TransactionalState(transaction, Accepted())
    batch = data_section(PAYLOAD) + data_section(PAYLOAD)
    assert await client.send(sender, batch, BATCH_FORMAT, state) == TransactionalState(transaction, Accepted())
    assert active(orders, "orders") == 0
    assert await client.discharge(coordinator, transaction) == Accepted()
    assert active(orders, "orders") == 3


async def test_sends_that_are_rolled_back_never_happened(orders: EmulatedNamespace, client: RawClient) -> None:
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    transaction = await client.declare(coordinator)
    await client.send(sender, PAYLOAD, state=TransactionalState(transaction))
    assert await client.discharge(coordinator, transaction, fail=True) == Accepted()
    assert active(orders, "orders") == 0
    assert await client.send(sender, PAYLOAD) == Accepted()
    assert active(orders, "orders") == 1


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        (Accepted(), {"orders": 0, "orders/$DeadLetterQueue": 0}),
        (Rejected(Error("com.microsoft:dead-letter")), {"orders": 0, "orders/$DeadLetterQueue": 1}),
        (Modified(True, True), {"orders": 0, "orders/$DeadLetterQueue": 0}),
        (Modified(True), {"orders": 1, "orders/$DeadLetterQueue": 0}),
        (Released(), {"orders": 1, "orders/$DeadLetterQueue": 0}),
    ],
    ids=["complete", "dead-letter", "defer", "abandon", "release"],
)
async def test_a_settlement_takes_effect_at_the_commit(
    orders: EmulatedNamespace, client: RawClient, outcome: Any, left: dict[str, int]
) -> None:
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    receiver = await client.attach_receiver("orders")
    await client.send(sender, PAYLOAD)
    client.grant(receiver, 1)
    message = await client.receive(receiver)
    transaction = await client.declare(coordinator)
    echo = await client.settle(message, TransactionalState(transaction, outcome))
    assert echo == TransactionalState(transaction, type(outcome)())
    assert len(orders.namespace.message_queue("orders")) == 1
    orders.namespace.message_queue("orders").held(message.tag)
    assert await client.discharge(coordinator, transaction) == Accepted()
    assert {path: active(orders, path) for path in left} == left
    with pytest.raises(Exception, match="lock"):
        orders.namespace.message_queue("orders").held(message.tag)


async def test_a_message_whose_settlement_is_rolled_back_stays_locked_and_can_be_settled(
    orders: EmulatedNamespace, client: RawClient
) -> None:
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    receiver = await client.attach_receiver("orders")
    await client.send(sender, PAYLOAD)
    client.grant(receiver, 1)
    message = await client.receive(receiver)
    transaction = await client.declare(coordinator)
    await client.settle(message, TransactionalState(transaction, Accepted()))
    await client.discharge(coordinator, transaction, fail=True)
    queue = orders.namespace.message_queue("orders")
    assert queue.held(message.tag).delivery_count == 0
    queue.complete(message.tag)
    assert len(queue) == 0


async def test_a_receive_and_a_send_to_another_entity_commit_together(
    orders: EmulatedNamespace, client: RawClient
) -> None:
    coordinator, receiver = await client.attach_coordinator(), await client.attach_receiver("orders")
    bills, news = await client.attach_sender("bills"), await client.attach_sender("news")
    orders.namespace.target("orders").submit([_message()])
    client.grant(receiver, 1)
    message = await client.receive(receiver)
    transaction = await client.declare(coordinator)
    state = TransactionalState(transaction)
    assert await client.send(bills, PAYLOAD, state=state) == TransactionalState(transaction, Accepted())
    assert await client.send(news, PAYLOAD, state=state) == TransactionalState(transaction, Accepted())
    await client.settle(message, TransactionalState(transaction, Accepted()))
    assert (active(orders, "bills"), active(orders, "news/subscriptions/all")) == (0, 0)
    assert await client.discharge(coordinator, transaction) == Accepted()
    assert (active(orders, "bills"), active(orders, "news/subscriptions/all"), active(orders, "orders")) == (1, 1, 0)


async def test_in_the_session_of_a_coordinator_receivers_belong_to_the_first_entity(client: RawClient) -> None:
    await client.attach_coordinator()
    await client.attach_receiver("news/subscriptions/all")
    await client.attach_receiver("news/subscriptions/all/$DeadLetterQueue")  # of the same topic
    for address in ("orders", "orders/$DeadLetterQueue", "orders/$management"):
        await client.attach_receiver(address)
        with pytest.raises(LinkEnded, match=SPANS) as ended:
            await client.next(Attach)
        assert ended.value.condition == "amqp:not-allowed"


async def test_without_a_coordinator_receivers_of_a_session_may_belong_to_any_entity(client: RawClient) -> None:
    for address in ("orders", "bills"):
        client.grant(await client.attach_receiver(address), 1)


async def test_a_transaction_of_links_in_another_session_has_one_entity(
    orders: EmulatedNamespace, client: RawClient
) -> None:
    sender, other = await client.attach_sender("orders"), await client.attach_sender("bills")
    coordinator = await client.attach_coordinator()  # later: these links do not take part in its rule
    transaction = await client.declare(coordinator)
    state = TransactionalState(transaction)
    await client.send(sender, PAYLOAD, state=state)
    error = await client.refusal_of(other, PAYLOAD, state=state)
    assert (error.condition, error.description) == ("amqp:not-allowed", SPANS)
    assert await client.discharge(coordinator, transaction) == Accepted()  # of what was accepted
    assert (active(orders, "orders"), active(orders, "bills")) == (1, 0)


async def test_an_older_client_names_the_entity_to_send_through(orders: EmulatedNamespace, client: RawClient) -> None:
    via = Map(((Symbol("com.microsoft:transfer-destination-address"), "bills"),))
    sender, through = await client.attach_sender("orders"), await client.attach_sender("orders", via)
    coordinator = await client.attach_coordinator()
    transaction = await client.declare(coordinator)
    for each in (sender, through):
        outcome = await client.send(each, PAYLOAD, state=TransactionalState(transaction))
        assert outcome == TransactionalState(transaction, Accepted())
    await client.discharge(coordinator, transaction)
    assert (active(orders, "orders"), active(orders, "bills")) == (1, 1)


async def test_a_transaction_stays_in_one_partition(orders: EmulatedNamespace, client: RawClient) -> None:
    orders.namespace.create_queue(QueueDescription("parts", enable_partitioning=True))
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("parts")
    transaction = await client.declare(coordinator)
    state = TransactionalState(transaction)
    for key in ("1", "1", None):
        outcome = await client.send(sender, _keyed(key), state=state)
        assert outcome == TransactionalState(transaction, Accepted())
    error = await client.refusal_of(sender, _keyed("2"), state=state)
    assert (error.condition, "entities or partitions" in str(error.description)) == ("amqp:not-allowed", True)
    await client.discharge(coordinator, transaction)
    fragments = {message.fragment for message in orders.namespace.message_queue("parts").peek(0, 10)}
    assert (len(fragments), active(orders, "parts")) == (1, 3)


async def test_a_transaction_has_at_most_a_hundred_messages(orders: EmulatedNamespace, client: RawClient) -> None:
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    transaction = await client.declare(coordinator)
    state = TransactionalState(transaction)
    await client.send(sender, data_section(PAYLOAD) * 99, BATCH_FORMAT, state)
    await client.send(sender, PAYLOAD, state=state)
    error = await client.refusal_of(sender, PAYLOAD, state=state)
    assert error.description == "Cannot send more than 100 messages in a single transaction."
    await client.discharge(coordinator, transaction)
    assert active(orders, "orders") == 100


async def test_a_transaction_times_out_two_minutes_after_its_first_operation(clocked: EmulatedNamespace) -> None:
    assert clocked.clock is not None
    clocked.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(clocked) as client:
        coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
        idle, used = await client.declare(coordinator), await client.declare(coordinator)
        clocked.clock.advance(119)
        await client.send(sender, PAYLOAD, state=TransactionalState(used))
        clocked.clock.advance(121)
        error = refusal(await client.discharge(coordinator, used))
        assert (error.condition, error.description) == ("amqp:transaction:unknown-id", "Transaction is not declared.")
        assert await client.discharge(coordinator, idle) == Accepted()
    assert active(clocked, "orders") == 0


async def test_an_unknown_transaction_is_refused(orders: EmulatedNamespace, client: RawClient) -> None:
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    async with raw_client(orders) as other:
        foreign = await other.declare(await other.attach_coordinator())
        error = await client.refusal_of(sender, PAYLOAD, state=TransactionalState(foreign))
        assert error.condition == "amqp:transaction:unknown-id"
        assert refusal(await client.discharge(coordinator, foreign)).condition == "amqp:transaction:unknown-id"


@pytest.mark.parametrize("how", ["detach", "cut"])
async def test_a_lost_coordinator_rolls_back(orders: EmulatedNamespace, how: str) -> None:
    async with raw_client(orders) as client:
        coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
        transaction = await client.declare(coordinator)
        await client.send(sender, PAYLOAD, state=TransactionalState(transaction))
        if how == "detach":
            await client.detach(coordinator)
            error = await client.refusal_of(sender, PAYLOAD, state=TransactionalState(transaction))
            assert error.condition == "amqp:transaction:unknown-id"
    assert active(orders, "orders") == 0


async def test_a_link_of_the_transaction_may_end_before_the_commit(
    orders: EmulatedNamespace, client: RawClient
) -> None:
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    transaction = await client.declare(coordinator)
    await client.send(sender, PAYLOAD, state=TransactionalState(transaction))
    await client.detach(sender)
    assert await client.discharge(coordinator, transaction) == Accepted()
    assert active(orders, "orders") == 1


async def test_a_commit_does_everything_or_nothing(orders: EmulatedNamespace, client: RawClient) -> None:
    coordinator, receiver = await client.attach_coordinator(), await client.attach_receiver("orders")
    sender = await client.attach_sender("orders")
    for _ in range(2):
        await client.send(sender, PAYLOAD)
    client.grant(receiver, 2)
    first, second = await client.receive(receiver), await client.receive(receiver)
    transaction = await client.declare(coordinator)
    await client.send(sender, PAYLOAD, state=TransactionalState(transaction))
    for message in (first, second):
        await client.settle(message, TransactionalState(transaction, Accepted()))
    queue = orders.namespace.message_queue("orders")
    queue.lose_lock(second.tag)
    error = refusal(await client.discharge(coordinator, transaction))
    assert error.condition == "amqp:transaction:rollback"
    assert "lock" in str(error.description)
    assert (len(queue), queue.held(first.tag).delivery_count) == (2, 0)


async def test_a_commit_to_an_entity_that_was_deleted_is_refused(orders: EmulatedNamespace, client: RawClient) -> None:
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    bills = await client.attach_sender("bills")
    transaction = await client.declare(coordinator)
    for each in (sender, bills):
        await client.send(each, PAYLOAD, state=TransactionalState(transaction))
    orders.namespace.delete("bills")
    with pytest.raises(LinkEnded):
        await client.next(Detach)
    assert refusal(await client.discharge(coordinator, transaction)).condition == "amqp:transaction:rollback"
    assert active(orders, "orders") == 0


async def test_a_message_is_settled_once_in_a_transaction(orders: EmulatedNamespace, client: RawClient) -> None:
    coordinator, receiver = await client.attach_coordinator(), await client.attach_receiver("orders")
    orders.namespace.target("orders").submit([_message()])
    client.grant(receiver, 1)
    message = await client.receive(receiver)
    transaction = await client.declare(coordinator)
    await client.settle(message, TransactionalState(transaction, Accepted()))
    properties, _ = await client.ask(
        "orders", "update-disposition", _disposition(message.tag), TransactionalState(transaction)
    )
    assert properties.get("errorCondition") == "com.microsoft:message-lock-lost"


async def test_deferred_messages_are_settled_in_a_transaction_over_the_management_link(
    orders: EmulatedNamespace, client: RawClient
) -> None:
    coordinator, receiver = await client.attach_coordinator(), await client.attach_receiver("orders")
    orders.namespace.target("orders").submit([_message()])
    client.grant(receiver, 1)
    await client.settle(await client.receive(receiver), Modified(True, True))
    queue = orders.namespace.message_queue("orders")
    (deferred,) = queue.receive_deferred([queue.peek(0, 1)[0].sequence], deletes=False)
    assert deferred.lock_token is not None
    transaction = await client.declare(coordinator)
    state = TransactionalState(transaction)
    properties, _ = await client.ask("orders", "update-disposition", _disposition(deferred.lock_token), state)
    assert properties.get("statusCode") == 200
    assert len(queue) == 1
    assert await client.discharge(coordinator, transaction) == Accepted()
    assert len(queue) == 0


async def test_other_management_operations_cannot_be_part_of_a_transaction(client: RawClient) -> None:
    coordinator = await client.attach_coordinator()
    state = TransactionalState(await client.declare(coordinator))
    numbers = Array(0x81, (Long(1),))
    properties, _ = await client.ask("orders", "cancel-scheduled-message", {"sequence-numbers": numbers}, state)
    assert properties.get("errorCondition") == "amqp:not-allowed"


async def test_requests_to_the_coordinator_must_make_sense(client: RawClient) -> None:
    coordinator = await client.attach_coordinator()
    for payload, condition in (
        (b"nonsense", "amqp:decode-error"),
        (value_bytes(Accepted()), "amqp:not-implemented"),
        (value_bytes(Declare("global")), "amqp:not-implemented"),
    ):
        assert (await client.refusal_of(coordinator, payload)).condition == condition


async def test_the_basic_tier_has_no_transactions() -> None:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso", tier=Tier.BASIC)])
    async with Emulator(settings) as emulator, raw_client(EmulatedNamespace(emulator["contoso"])) as client:
        client.post(Attach("c", 0, False, target=Coordinator(), initial_delivery_count=0))
        with pytest.raises(LinkEnded, match="Standard or Premium"):
            await client.next(Disposition)


@pytest.mark.parametrize(
    ("action", "stored"), [(Action.LOSE_REPLY_AND_DROP, 1), (Action.DROP, 0), (Action.DETACH, 0), (Action.ERROR, 0)]
)
async def test_a_fault_strikes_a_discharge(
    orders: EmulatedNamespace, client: RawClient, action: Action, stored: int
) -> None:
    orders.namespace.faults.add(Fault(action, Operation.DISCHARGE, "orders", times=1))
    coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
    transaction = await client.declare(coordinator)
    await client.send(sender, PAYLOAD, state=TransactionalState(transaction))
    try:
        outcome = await client.discharge(coordinator, transaction)
    except (LinkEnded, asyncio.IncompleteReadError, ConnectionError):
        outcome = None
    assert isinstance(outcome, Rejected) == (action is Action.ERROR)
    await async_eventually(lambda: active(orders, "orders") == stored)


async def test_a_lock_can_be_lost_in_the_middle_of_a_discharge(orders: EmulatedNamespace, client: RawClient) -> None:
    coordinator, receiver = await client.attach_coordinator(), await client.attach_receiver("orders")
    bills = await client.attach_sender("bills")
    orders.namespace.target("orders").submit([_message()])
    client.grant(receiver, 1)
    message = await client.receive(receiver)
    transaction = await client.declare(coordinator)
    await client.settle(message, TransactionalState(transaction, Accepted()))
    await client.send(bills, PAYLOAD, state=TransactionalState(transaction))
    orders.namespace.faults.add(Fault(Action.LOSE_LOCK, Operation.DISCHARGE, times=1))
    assert refusal(await client.discharge(coordinator, transaction)).condition == "amqp:transaction:rollback"
    assert (active(orders, "orders"), active(orders, "bills")) == (1, 0)


async def test_a_restart_finds_what_was_committed_and_nothing_else(tmp_path: Path) -> None:
    namespaces = [NamespaceSettings(name="contoso")]
    async with Emulator(EmulatorSettings(namespaces=namespaces, state=tmp_path)) as emulator:
        emulated = EmulatedNamespace(emulator["contoso"])
        emulated.namespace.create_queue(QueueDescription("orders"))
        async with raw_client(emulated) as client:
            coordinator, sender = await client.attach_coordinator(), await client.attach_sender("orders")
            for name in ("committed", "open"):
                transaction = await client.declare(coordinator)
                await client.send(sender, _named(name), state=TransactionalState(transaction))
                if name == "committed":
                    assert await client.discharge(coordinator, transaction) == Accepted()
    async with Emulator(EmulatorSettings(namespaces=namespaces, state=tmp_path)) as emulator:
        found = emulator["contoso"].namespace.message_queue("orders").peek(0, 10)
        assert [message.message_id for message in found] == ["committed"]
