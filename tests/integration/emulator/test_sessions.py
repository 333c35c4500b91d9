"""Sessions: their locks, their messages and their state."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from syphon.amqp import Array, Long, Map, Symbol, UInt, Value
from syphon.amqp.frames import Attach, Detach, End, Flow, Modified, Source, Target
from syphon.emulator.broker.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from syphon.emulator.broker.faults import Action, Fault, Operation
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.raw_client import LinkEnded, RawClient, raw_client
from tests.support.sdk_client import (
    SdkClient,
    advance,
    message_queue,
    put,
    rest,
    sdk_client,
    session_of,
    sessions,
    take,
    take_one,
)
from tests.support.sdk_queue import AIO, MOMENT, SOON, both, texts
from tests.support.waiting import async_eventually

ORDERS = QueueDescription("orders", requires_session=True)


@pytest.fixture(autouse=True)
def _orders(request: pytest.FixtureRequest) -> None:
    for emulated in ("emulated", "clocked"):
        if emulated in request.fixturenames:
            request.getfixturevalue(emulated).namespace.create_queue(ORDERS)


async def send(it: SdkClient, *messages: tuple[str, str]) -> None:
    """Session and body, one by one."""
    await it.send("orders", *(ServiceBusMessage(body, session_id=session) for session, body in messages))


# Having a session


@both
async def test_a_receiver_has_the_session_it_asks_for_in_order_and_no_other(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_client(emulated, flavour) as it:
        await send(it, ("a", "1"), ("b", "2"), ("a", "3"), ("b", "4"), ("a", "5"))
        a, b = await asyncio.gather(it.receiver("orders", session_id="a"), it.receiver("orders", session_id="b"))
        of_a, of_b = await rest(a), await rest(b)
        assert (texts(of_a), texts(of_b)) == (["1", "3", "5"], ["2", "4"])
        assert {message.session_id for message in of_a} == {"a"}
        await a.abandon_message(of_a[0])
        again = await take_one(a)
        assert (str(again), again.delivery_count) == ("1", 1)
        for message in [again, *of_a[1:]]:
            await a.complete_message(message)
        assert len(message_queue(emulated, "orders")) == 2


async def test_the_next_available_session_is_one_with_messages_that_no_receiver_holds(
    emulated: EmulatedNamespace,
) -> None:
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        put(emulated, "orders", "2", session_id="b")
        got = await it.receivers("orders", "orders", session_id=NEXT_AVAILABLE_SESSION)
        found = {session_of(receiver).session_id: texts(await take(receiver)) for receiver in got}
        assert found == {"a": ["1"], "b": ["2"]}


async def test_who_waits_for_the_next_session_gets_it_when_its_first_message_comes(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        waiting = asyncio.create_task(it.receiver("orders", session_id=NEXT_AVAILABLE_SESSION))
        await async_eventually(lambda: emulated.namespace.entity("orders").links, "the receiver waits")
        assert not waiting.done()
        put(emulated, "orders", "1", session_id="late")
        receiver = await waiting
        assert session_of(receiver).session_id == "late"
        assert texts(await take(receiver)) == ["1"]


async def test_who_waits_for_the_next_session_gets_one_that_another_releases(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        holder = await it.receiver("orders", session_id="a")
        waiting = asyncio.create_task(it.receiver("orders", session_id=NEXT_AVAILABLE_SESSION))
        await async_eventually(lambda: len(emulated.namespace.entity("orders").links) == 2, "the receiver waits")
        assert not waiting.done()
        await it.close(holder)
        assert texts(await take(await waiting)) == ["1"]


@both
async def test_waiting_for_the_next_session_ends_when_the_client_says_so(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_client(emulated, flavour) as it, asyncio.timeout(30):  # unasked it would be 60 seconds and more
        with pytest.raises(OperationTimeoutError, match="came free"):
            await it.receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1)
    assert not emulated.namespace.entity("orders").links


async def test_a_session_that_another_receiver_has_cannot_be_locked_until_it_is_closed(
    emulated: EmulatedNamespace,
) -> None:
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        first = await it.receiver("orders", session_id="a")
        assert (await take_one(first)).delivery_count == 0
        with pytest.raises(SessionCannotBeLockedError):
            await it.receiver("orders", session_id="a")
        await it.close(first)
        second = await it.receiver("orders", session_id="a")
        assert (await take_one(second)).delivery_count == 0, "closing a receiver is no failed delivery"


async def test_a_session_without_messages_can_be_had_and_gets_what_comes_later(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        receiver = await it.receiver("orders", session_id="empty")
        assert await receiver.receive_messages(max_wait_time=MOMENT) == []
        put(emulated, "orders", "1", session_id="empty")
        assert texts(await take(receiver)) == ["1"]


async def test_a_dropped_connection_frees_its_session_and_counts_no_delivery(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        async with raw_client(emulated) as gone:
            handle = await accept(gone, "a")
            gone.grant(handle, 1)
            await gone.receive(handle)
        await async_eventually(lambda: not emulated.namespace.entity("orders").links, "the connection is closed")
        receiver = await it.receiver("orders", session_id="a")
        assert (await take_one(receiver)).delivery_count == 0


# A link that waits for a session


async def accept(client: RawClient, session_id: str | None, wait: bool = True) -> int:
    handle = next(client._handles)
    wanted = Map(((Symbol("com.microsoft:session-filter"), session_id),))
    client.post(Attach(f"r{handle}", handle, True, 0, 1, Source("orders", filter=wanted), Target("raw")))
    if wait:
        await client.next(Attach)
    return handle


async def wait_in_vain(client: RawClient, emulated: EmulatedNamespace) -> int:
    handle = await accept(client, None, wait=False)
    await async_eventually(lambda: emulated.namespace.entity("orders").links, "the receiver waits")
    return handle


async def next_goes_to_another(emulated: EmulatedNamespace) -> None:
    await async_eventually(lambda: not emulated.namespace.entity("orders").links, "the waiting receiver is closed")
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        receiver = await it.receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SOON)
        assert texts(await take(receiver)) == ["1"]


async def test_a_client_that_disconnects_while_it_waits_swallows_no_session(emulated: EmulatedNamespace) -> None:
    async with raw_client(emulated) as gone:
        await wait_in_vain(gone, emulated)
    await next_goes_to_another(emulated)


async def test_a_link_that_is_detached_while_it_waits_swallows_no_session(emulated: EmulatedNamespace) -> None:
    async with raw_client(emulated) as client:
        handle = await wait_in_vain(client, emulated)
        client.post(Detach(handle, True))
        attached, _ = await client.next(Attach)
        assert (attached.name, attached.source) == ("r0", None)
        await client.detach(handle)
        await next_goes_to_another(emulated)


async def test_an_amqp_session_that_ends_while_a_link_waits_in_it_swallows_none(emulated: EmulatedNamespace) -> None:
    async with raw_client(emulated) as client:
        await wait_in_vain(client, emulated)
        client.post(End())
        await client.next(End)
        await next_goes_to_another(emulated)


async def test_a_refused_receiver_leaves_no_link_behind(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        await it.receiver("orders", session_id="a")
        refused = (it.receiver("orders", session_id="a"), it.receiver("orders"))
        outcomes = await asyncio.gather(*refused, return_exceptions=True)
        assert all(isinstance(outcome, ServiceBusError) for outcome in outcomes)
        assert len(emulated.namespace.entity("orders").links) == 1


# The lock


@both
async def test_an_expired_session_lock_is_lost_and_the_session_free_for_others(
    clocked: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_client(clocked, flavour) as it:
        put(clocked, "orders", "1", session_id="a")
        put(clocked, "orders", "2", session_id="a")
        late = await it.receiver("orders", session_id="a")
        first, _ = await take(late, 2)
        advance(clocked, 61)
        with pytest.raises(SessionLockLostError):
            await late.complete_message(first)
        next_one = await it.receiver("orders", session_id="a")
        again = await take(next_one, 2)
        assert [(str(message), message.delivery_count) for message in again] == [("1", 1), ("2", 1)]
        for operation in (session_of(late).renew_lock, session_of(late).get_state):
            with pytest.raises(SessionLockLostError):
                await operation()


async def test_a_session_lock_lives_as_long_as_it_is_renewed_in_time(clocked: EmulatedNamespace) -> None:
    async with sdk_client(clocked) as it:
        put(clocked, "orders", "1", session_id="a")
        receiver = await it.receiver("orders", session_id="a")
        message = await take_one(receiver)
        session = session_of(receiver)
        before = session.locked_until_utc
        for _ in range(3):
            advance(clocked, 40)
            renewed = await session.renew_lock()
        assert renewed - before == timedelta(seconds=120)
        await receiver.complete_message(message)
        assert len(message_queue(clocked, "orders")) == 0


async def test_only_the_receiver_that_has_a_session_can_renew_it_or_touch_its_state(
    emulated: EmulatedNamespace,
) -> None:
    async with sdk_client(emulated) as it:
        holder, other = await asyncio.gather(
            it.receiver("orders", session_id="a"), it.receiver("orders", session_id="b")
        )
        await session_of(holder).set_state(b"mine")
        session_of(other)._session_id = "a"
        for operation in (
            session_of(other).renew_lock,
            session_of(other).get_state,
            lambda: session_of(other).set_state(b"theirs"),
        ):
            with pytest.raises(SessionLockLostError):
                await operation()
        assert await session_of(holder).get_state() == b"mine"


async def test_a_message_whose_session_lock_expired_too_often_is_dead_lettered(clocked: EmulatedNamespace) -> None:
    clocked.namespace.update_queue(replace(ORDERS, max_delivery_count=1))
    async with sdk_client(clocked) as it:
        put(clocked, "orders", "1", session_id="a")
        await take(await it.receiver("orders", session_id="a"))
        advance(clocked, 61)
        dead = await take_one(await it.receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER))
    assert (dead.dead_letter_reason, dead.session_id) == ("MaxDeliveryCountExceeded", "a")


async def test_a_link_that_a_fault_detaches_in_mid_receive_loses_no_message(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        emulated.namespace.faults.add(Fault(Action.DETACH, Operation.RECEIVE, entity="orders", times=1))
        receiver = await it.receiver("orders", session_id="a")
        with pytest.raises(ServiceBusError):
            await receiver.receive_messages(max_wait_time=SOON)
        assert texts(await take(await it.receiver("orders", session_id="a"))) == ["1"]


# What is in a session


@both
async def test_the_state_of_a_session_outlives_its_receivers_until_it_is_cleared(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_client(emulated, flavour) as it:
        first = await it.receiver("orders", session_id="a")
        assert await session_of(first).get_state() is None
        await session_of(first).set_state("step 1")
        assert await session_of(first).get_state() == b"step 1"
        await it.close(first)
        second = await it.receiver("orders", session_id="a")
        assert await session_of(second).get_state() == b"step 1"
        await session_of(second).set_state(None)
        await it.close(second)
        third = await it.receiver("orders", session_id="a")
        assert await session_of(third).get_state() is None


@both
async def test_a_deferred_message_is_had_by_its_number_within_its_session_alone(
    emulated: EmulatedNamespace, flavour: str
) -> None:
    async with sdk_client(emulated, flavour) as it:
        await send(it, ("a", "1"), ("a", "2"))
        a, b = await asyncio.gather(it.receiver("orders", session_id="a"), it.receiver("orders", session_id="b"))
        deferred = await take_one(a)
        number = deferred.sequence_number
        assert number is not None
        await a.defer_message(deferred)
        assert texts(await rest(a)) == ["2"]
        with pytest.raises(MessageNotFoundError):
            await b.receive_deferred_messages(number)
        (again,) = await a.receive_deferred_messages(number)
        assert (str(again), again.session_id) == ("1", "a")
        await a.complete_message(again)
        with pytest.raises(MessageNotFoundError):
            await a.receive_deferred_messages(number)


async def test_the_go_client_asks_for_deferred_messages_without_naming_their_session(
    emulated: EmulatedNamespace,
) -> None:
    put(emulated, "orders", "1", session_id="a")
    queue = message_queue(emulated, "orders")
    body: dict[str, Value] = {
        "sequence-numbers": Array(0x81, (Long(queue.peek(0, 1)[0].sequence),)),
        "receiver-settle-mode": UInt(1),
    }
    async with raw_client(emulated) as client:
        session = Map(((Symbol("com.microsoft:session-filter"), "a"),))
        client.post(Attach("r", 200, True, 0, 1, source=Source("orders", filter=session), target=Target("raw")))
        await client.next(Attach)
        client.grant(200, 1)
        await client.settle(await client.receive(200), Modified(True, True))
        properties, _ = await client.ask("orders", "receive-by-sequence-number", body)
        assert properties.get("statusCode") == 200
        async with raw_client(emulated) as stranger:
            properties, _ = await stranger.ask("orders", "receive-by-sequence-number", body)
            assert properties.get("errorCondition") == "com.microsoft:session-lock-lost"


async def test_a_deferred_message_outlives_the_receiver_of_its_session(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        first = await it.receiver("orders", session_id="a")
        deferred = await take_one(first)
        await first.defer_message(deferred)
        await it.close(first)
        second = await it.receiver("orders", session_id="a")
        assert await second.receive_messages(max_wait_time=MOMENT) == []
        assert deferred.sequence_number is not None
        assert texts(await second.receive_deferred_messages(deferred.sequence_number)) == ["1"]


async def test_peeking_in_a_session_shows_its_messages_only(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        put(emulated, "orders", "2", session_id="b")
        put(emulated, "orders", "3", session_id="a")
        receiver = await it.receiver("orders", session_id="a")
        assert texts(await receiver.peek_messages(max_message_count=10)) == ["1", "3"]


async def test_a_scheduled_message_makes_its_session_available_when_its_time_has_come(
    clocked: EmulatedNamespace,
) -> None:
    async with sdk_client(clocked) as it:
        sender = await it.sender("orders")
        assert clocked.clock is not None
        due = datetime.fromtimestamp(clocked.clock.now() / 1000, UTC) + timedelta(hours=1)
        await sender.schedule_messages(ServiceBusMessage("1", session_id="a"), due)
        waiting = asyncio.create_task(it.receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=7200))
        await async_eventually(lambda: len(clocked.namespace.entity("orders").links) == 2, "the receiver waits")
        assert not waiting.done()
        advance(clocked, 3600)
        assert texts(await take(await waiting)) == ["1"]


async def test_what_is_dead_lettered_in_a_session_is_received_without_one(emulated: EmulatedNamespace) -> None:
    async with sdk_client(emulated) as it:
        put(emulated, "orders", "1", session_id="a")
        receiver, dead = await asyncio.gather(
            it.receiver("orders", session_id="a"), it.receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        )
        await receiver.dead_letter_message(await take_one(receiver), reason="bad", error_description="very")
        letter = await take_one(dead)
        assert (str(letter), letter.session_id, letter.dead_letter_reason) == ("1", "a", "bad")
        await dead.complete_message(letter)


# What an entity asks for


async def test_sessions_are_requested_where_they_are_required_and_nowhere_else(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("plain"))
    async with sdk_client(emulated) as it:
        refused = it.receiver("orders"), it.receiver("plain", session_id="a")
        outcomes, plain, _, _ = await asyncio.gather(
            asyncio.gather(*refused, return_exceptions=True),
            it.receiver("plain"),
            it.sender("plain"),
            it.sender("orders"),
        )
        for outcome, why in zip(outcomes, ("requires sessions", "does not require sessions"), strict=True):
            assert why in str(outcome)
        with pytest.raises(ServiceBusError, match="SessionId"):
            await it.send("orders", "without")
        with pytest.raises(ServiceBusError, match="SessionId"):
            await it.send("orders", ServiceBusMessage("with", session_id="a"), "without")
        assert len(message_queue(emulated, "orders")) == 0
        await it.send("plain", "with", session_id="a")  # where it only goes along
        assert (await take_one(plain)).session_id == "a"


# Which sessions there are


async def listed(found: Any) -> list[str]:
    return list(found) if not hasattr(found, "__aiter__") else [each async for each in found]


@both
async def test_sessions_with_messages_or_a_state_are_listed(emulated: EmulatedNamespace, flavour: str) -> None:
    async with sdk_client(emulated, flavour) as it:
        names = [f"{number:03}" for number in range(120)]  # more than a page
        for name in names:
            put(emulated, "orders", "body", session_id=name)
        # One with neither messages nor a state is no session.
        stated, _ = await asyncio.gather(*(it.receiver("orders", session_id=name) for name in ("stated", "void")))
        beginning = datetime.now(UTC) - timedelta(minutes=1)

        async def found(**options: Any) -> list[str]:
            paged = it.client.list_queue_sessions("orders", **options)
            return await (listed(paged) if flavour == AIO else asyncio.to_thread(list, paged))

        await session_of(stated).set_state(b"x")
        every, since, none = await asyncio.gather(
            found(), found(state_updated_after=beginning), found(state_updated_after=datetime.max)
        )
        assert (sorted(every), since, none) == ([*names, "stated"], ["stated"], [])


async def test_the_sessions_of_a_subscription_are_its_own(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_topic(TopicDescription("news"))
    for name in ("one", "two"):
        emulated.namespace.create_subscription(SubscriptionDescription("news", name, requires_session=True))
    async with sdk_client(emulated) as it:
        await it.send("news", ServiceBusMessage("1", session_id="a"), ServiceBusMessage("2", session_id="b"))
        one, two = await asyncio.gather(
            it.receiver(("news", "one"), session_id="a"),
            it.receiver(("news", "two"), session_id=NEXT_AVAILABLE_SESSION),
        )
        await one.complete_message(await take_one(one))
        assert session_of(two).session_id == "a"
        assert texts(await take(two)) == ["1"]
        await session_of(one).set_state(b"done")
        assert await session_of(two).get_state() is None
        assert sorted(await listed(it.client.list_subscription_sessions("news", "one"))) == ["a", "b"]


async def test_a_subscription_with_sessions_puts_messages_without_one_aside(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_topic(TopicDescription("news"))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "strict", requires_session=True))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "easy"))
    async with sdk_client(emulated) as it:
        await it.send("news", "without")
        dead, easy = await asyncio.gather(
            it.receiver(("news", "strict"), sub_queue=ServiceBusSubQueue.DEAD_LETTER), it.receiver(("news", "easy"))
        )
        assert (await take_one(dead)).dead_letter_reason == "Session ID is null"
        assert texts(await take(easy)) == ["without"]
    assert sessions(emulated, "news/subscriptions/strict").session_ids(None) == []


async def test_a_receiver_that_deletes_learns_of_its_lost_session_with_the_next_receive(
    clocked: EmulatedNamespace,
) -> None:
    assert clocked.clock is not None
    clocked.namespace.create_queue(QueueDescription("chats", requires_session=True))
    async with raw_client(clocked) as client:
        wanted = Map(((Symbol("com.microsoft:session-filter"), "a"),))
        client.post(Attach("r", 0, True, 1, 0, source=Source("chats", filter=wanted), target=Target("raw")))
        await client.next(Attach)
        client.post(Flow(0, 1 << 20, 0, 1 << 20, 0, None, 1, None, False, True))
        assert (await client.next(Flow))[0].link_credit == 1
        clocked.clock.advance(301)
        client.post(Flow(0, 1 << 20, 0, 1 << 20, 0, None, 0, None, False, True))
        assert (await client.next(Flow))[0].link_credit == 0  # still attached
        client.grant(0, 1)
        with pytest.raises(LinkEnded, match="session-lock-lost"):
            await client.next(Flow)
