"""Transactions: what takes effect together, and what a transaction refuses."""

from __future__ import annotations

from syphon.amqp.frames import Accepted, TransactionalState
from tests.conformance.comparison import Comparison
from tests.conformance.target import Entities, Target
from tests.conformance.wire import PAYLOAD, annotated, outcome_of, peeked, put, take


async def test_sends_take_effect_at_the_commit(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("transactions")
    queue = entities.queue()
    async with target.primary.raw() as client:
        coordinator, sender = await client.attach_coordinator(), await client.attach_sender(queue)
        for fail, kept in ((True, 0), (False, 1)):
            transaction = await client.declare(coordinator)
            echo = await client.send(sender, PAYLOAD, state=TransactionalState(transaction))
            behaviour.same("answer to a send", echo, TransactionalState(transaction, Accepted()))
            behaviour.same("before the end", len(await peeked(client, queue)), 0)
            behaviour.same("end", outcome_of(await client.discharge(coordinator, transaction, fail)), "accepted")
            behaviour.same("afterwards", len(await peeked(client, queue)), kept)


async def test_a_receive_and_a_send_to_another_entity(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    target.need("transactions")
    orders, bills = entities.queue("orders"), entities.queue("bills")
    async with target.primary.raw() as client:
        await put(client, orders)
        async with target.primary.raw() as session:
            coordinator = await session.attach_coordinator()
            arrival = await take(session, orders)
            sender = await session.attach_sender(bills)
            transaction = await session.declare(coordinator)
            state = TransactionalState(transaction, Accepted())
            behaviour.same("answer to a complete", await session.settle(arrival, state), state)
            outcome = outcome_of(await session.send(sender, PAYLOAD, state=TransactionalState(transaction)))
            behaviour.same("answer to a send", outcome, "accepted")
            behaviour.same("end", outcome_of(await session.discharge(coordinator, transaction)), "accepted")
        left = len(await peeked(client, orders)), len(await peeked(client, bills))
        behaviour.same("left in both", left, (0, 1))


async def test_a_transaction_stays_in_one_partition(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("transactions", "partitions")
    queue = entities.queue(enable_partitioning=True)
    async with target.primary.raw() as client:
        coordinator, sender = await client.attach_coordinator(), await client.attach_sender(queue)
        state = TransactionalState(await client.declare(coordinator))
        outcomes = [
            outcome_of(await client.send(sender, annotated(x_opt_partition_key=key), state=state)) for key in ("1", "2")
        ]
    behaviour.same("two keys", outcomes, ["accepted", "amqp:not-allowed"])


async def test_a_transaction_that_was_never_declared(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("transactions")
    queue = entities.queue()
    async with target.primary.raw() as client:
        coordinator, sender = await client.attach_coordinator(), await client.attach_sender(queue)
        unknown = b"\x01" * 16
        outcome = outcome_of(await client.send(sender, PAYLOAD, state=TransactionalState(unknown)))
        behaviour.same("a send", outcome, "amqp:transaction:unknown-id")
        outcome = outcome_of(await client.discharge(coordinator, unknown))
        behaviour.same("a discharge", outcome, "amqp:transaction:unknown-id")


async def test_a_transaction_times_out(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("transactions")
    queue = entities.queue()
    async with target.primary.raw() as client:
        coordinator, sender = await client.attach_coordinator(), await client.attach_sender(queue)
        transaction = await client.declare(coordinator)
        await client.send(sender, PAYLOAD, state=TransactionalState(transaction))
        await target.pass_time(121)
        outcome = outcome_of(await client.discharge(coordinator, transaction))
    behaviour.same("a late end", outcome, "amqp:transaction:unknown-id")
