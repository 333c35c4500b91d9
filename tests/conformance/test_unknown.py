"""Questions that no documentation answers: the list of RECORD.md, one test for each.

On the emulator a test states what it does. On another target the answer is part of the report.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import SqlRuleAction

from syphon.amqp import Int, Map, Message, Section, Symbol, Timestamp, Value, data_section, section_bytes
from syphon.amqp.frames import BATCH_FORMAT, Accepted, Declare, Declared, Modified, Source, TransactionalState
from tests.conformance.comparison import Comparison
from tests.conformance.target import Entities, Target
from tests.conformance.wire import (
    PAYLOAD,
    accept_session,
    annotated,
    annotation,
    attach_receiver,
    condition_of,
    outcome_of,
    peeked,
    put,
    scheduled,
    take,
)
from tests.support.raw_client import value_bytes
from tests.support.tools import ROOT

SHORT = timedelta(seconds=5)
"""The shortest lock that the service allows."""
MOST = 1_050
"""So many transactions are tried to be open at once."""


async def test_an_idle_receive_and_the_lock_of_a_session(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    target.need("sessions")
    queue = entities.queue("chats", requires_session=True, lock_duration=SHORT)
    async with target.primary.raw() as client:
        client.grant(await accept_session(client, queue, "a", deletes=True), 1)
        await target.pass_time(8)
        properties, _ = await client.ask(queue, "renew-session-lock", {"session-id": "a"})
    found = str(properties.get("errorCondition") or "the lock is held")
    question = "Does an idle receive extend the lock of a session in receive-and-delete mode? After it a renewal finds:"
    behaviour.answer(question, found, "com.microsoft:session-lock-lost")


async def test_a_peek_and_delivery_annotations(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    async with target.primary.raw() as client:
        await put(client, queue, section_bytes(Section.DELIVERY_ANNOTATIONS, Map(((Symbol("hop"), Int(1)),))) + PAYLOAD)
        (message,) = await peeked(client, queue)
    found = message.read(Section.DELIVERY_ANNOTATIONS)
    shown = isinstance(found, Map) and "hop" in found
    behaviour.answer("Does a peek show the delivery annotations of a sender?", "yes" if shown else "no", "yes")


async def test_an_action_with_an_unknown_value(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("topics")
    topic = entities.topic()
    path = entities.subscription(topic)
    action = SqlRuleAction("SET x = missing")
    entities.namespace.admin.create_rule(topic, "audit", "mine", action=action)
    entities.namespace.admin.delete_rule(topic, "audit", "$Default")
    async with target.primary.raw() as client:
        await put(client, topic)
        properties = Message((await take(client, path)).payload).application_properties()
    found = repr(properties.get("x")) if "x" in properties else "nothing"
    behaviour.answer("What does SET write for a property that does not exist?", found, "None")


@pytest.mark.parametrize("is_set", [True, False])
async def test_an_action_that_fails(target: Target, entities: Entities, behaviour: Comparison, is_set: bool) -> None:
    target.need("topics")
    topic = entities.topic()
    path = entities.subscription(topic, dead_lettering_on_filter_evaluation_exceptions=is_set)
    entities.namespace.admin.create_rule(topic, "audit", "bad", action=SqlRuleAction("SET sys.TimeToLive = 'soon'"))
    entities.namespace.admin.delete_rule(topic, "audit", "$Default")
    async with target.primary.raw() as client:
        await put(client, topic)
        letters, kept = await peeked(client, f"{path}/$DeadLetterQueue"), await peeked(client, path)
    reasons = [str(each.application_properties().get("DeadLetterReason")) for each in letters]
    found = f"dead letters {reasons}, {len(kept)} delivered"
    expected = f"dead letters {['RuleActionFailed'] if is_set else []}, 0 delivered"
    question = (
        f"What becomes of a message whose action fails, with dead_lettering_on_filter_evaluation_exceptions={is_set}?"
    )
    behaviour.answer(question, found, expected)


async def test_the_state_of_a_message_that_was_scheduled(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    target.need("forwarding")
    end = entities.queue("end")
    start = entities.queue("start", forward_to=end)
    async with target.primary.raw() as client:
        await put(client, start, scheduled(target.now() + 3))
        await target.pass_time(5)
        state = annotation(Message((await take(client, end)).payload), "x-opt-message-state")
    question = "Which x-opt-message-state has a message that was scheduled, when it is received after it was forwarded?"
    behaviour.answer(question, repr(state), "2")


async def test_a_batch_that_the_client_has_filled(target: Target, entities: Entities, behaviour: Comparison) -> None:
    queue = entities.queue()
    with target.primary.client() as client, client.get_queue_sender(queue) as sender:
        batch = sender.create_message_batch()
        with suppress(ValueError):
            while True:  # until it says that it is full
                batch.add_message(ServiceBusMessage(b"x" * 100))
        try:
            sender.send_messages(batch)
            found = "yes"
        except ServiceBusError as error:
            found = f"no: {type(error).__name__}"
    question = "Is a batch taken that the Python client has filled to its limit with bodies of 100 bytes?"
    behaviour.answer(question, found, "no: MessageSizeExceededError")


async def test_the_hundred_and_first_message_of_a_transaction(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    target.need("transactions")
    queue = entities.queue()
    async with target.primary.raw() as client:
        coordinator, sender = await client.attach_coordinator(), await client.attach_sender(queue)
        state = TransactionalState(await client.declare(coordinator))
        await client.send(sender, data_section(PAYLOAD) * 100, BATCH_FORMAT, state)
        found = outcome_of(await client.send(sender, PAYLOAD, state=state))
    question = "How is the 101st message of a transaction answered?"
    behaviour.answer(question, found, "amqp:resource-limit-exceeded")


async def test_a_lock_that_expires_in_a_transaction(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("transactions")
    queue = entities.queue(lock_duration=SHORT)
    async with target.primary.raw() as client:
        coordinator = await client.attach_coordinator()
        await put(client, queue)
        arrival = await take(client, queue)
        transaction = await client.declare(coordinator)
        await client.settle(arrival, TransactionalState(transaction, Accepted()))
        await target.pass_time(8)
        found = outcome_of(await client.discharge(coordinator, transaction))
    question = "Does an open transaction keep the locks of its messages? A commit after their time is answered with:"
    behaviour.answer(question, found, "amqp:transaction:rollback")


async def test_a_session_without_a_coordinator(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("transactions")
    orders, bills = entities.queue("orders"), entities.queue("bills")
    async with target.primary.raw() as client:
        first, other = await client.attach_sender(orders), await client.attach_sender(bills)
        coordinator = await client.attach_coordinator()
        state = TransactionalState(await client.declare(coordinator))
        await client.send(first, PAYLOAD, state=state)
        found = outcome_of(await client.send(other, PAYLOAD, state=state))
    question = "Are links that are older than the coordinator sent through the first entity? A send to a second one is:"
    behaviour.answer(question, found, "amqp:not-allowed")


async def test_a_partition_key_of_the_transfer(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("transactions", "partitions")
    queue = entities.queue(enable_partitioning=True)
    async with target.primary.raw() as client:
        coordinator, sender = await client.attach_coordinator(), await client.attach_sender(queue)
        state = TransactionalState(await client.declare(coordinator))
        outcomes = [
            outcome_of(await client.send(sender, annotated(x_opt_via_partition_key=key), state=state))
            for key in ("1", "2")
        ]
    question = "How does x-opt-via-partition-key count? Two sends with different ones, without a partition key, are:"
    behaviour.answer(question, " and ".join(outcomes), "accepted and accepted")


async def test_how_many_transactions_are_open(target: Target, behaviour: Comparison) -> None:
    target.need("transactions")
    async with target.primary.raw() as client:
        coordinator = await client.attach_coordinator()
        count, outcome = 0, await client.send(coordinator, value_bytes(Declare()))
        while isinstance(outcome, Declared) and count < MOST:
            count, outcome = count + 1, await client.send(coordinator, value_bytes(Declare()))
    found = f"{count}, then {outcome_of(outcome)}" if count < MOST else f"{MOST} or more"
    question = "How many transactions may a connection have open?"
    behaviour.answer(question, found, "1000, then amqp:resource-limit-exceeded")


async def test_temporary_queues(target: Target, behaviour: Comparison) -> None:
    async with target.primary.raw() as client:
        found = await condition_of(attach_receiver(client, Source(dynamic=True)))
    question = "Is a temporary queue offered outside the JMS clients of the tier Premium?"
    behaviour.answer(question, "yes" if found == "attached" else f"no: {found}", "yes")


async def test_which_messages_a_batch_deletion_leaves(
    target: Target, entities: Entities, behaviour: Comparison
) -> None:
    queue = entities.queue()
    async with target.primary.raw() as client:
        await put(client, queue, PAYLOAD, PAYLOAD, PAYLOAD, scheduled(target.now() + 600))
        receiver = await client.attach_receiver(queue)
        client.grant(receiver, 2)
        await client.receive(receiver)
        await client.settle(await client.receive(receiver), Modified(True, True))
        await target.pass_time(2)
        before = Timestamp(round(target.now() * 1000))
        asked: dict[str, Value] = {"message-count": Int(100), "enqueued-time-utc": before}
        await client.ask(queue, "batch-delete-messages", asked)
        states = [annotation(message, "x-opt-message-state") for message in await peeked(client, queue)]
    found = ", ".join(("locked", "deferred", "scheduled")[state] for state in sorted(map(_number, states)))
    question = "Which messages does batch-delete-messages leave?"
    behaviour.answer(question, found, "locked, deferred, scheduled")


def _number(state: Value) -> int:
    return int(state) if isinstance(state, int) else 0


async def test_the_order_of_a_partitioned_queue(target: Target, entities: Entities, behaviour: Comparison) -> None:
    target.need("partitions")
    queue = entities.queue(enable_partitioning=True)
    _, document = await target.primary.http("GET", queue)
    found = document.partition("<SupportOrdering>")[2].partition("<")[0]
    behaviour.answer("SupportOrdering of a queue with partitions and without sessions?", found, "true")


def test_every_open_question_of_the_record_has_a_test() -> None:
    record = (ROOT / "tests/integration/emulator/RECORD.md").read_text()
    listed = record.partition("## What is not known")[2].partition("\n## ")[0]
    questions = re.split(r"(?m)^- ", listed)[1:]
    assert questions
    assert all("test_unknown.py::test_" in question for question in questions)
    tests = set(re.findall(r"test_unknown\.py::(test_\w+)", listed))
    assert tests == {name for name in globals() if name.startswith("test_")} - {
        test_every_open_question_of_the_record_has_a_test.__name__
    }
