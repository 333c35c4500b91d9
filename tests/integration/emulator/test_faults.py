"""Faults: which operations each one affects, and what it does to the client and to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)

from syphon.amqp import Properties, Section, properties_bytes, section_bytes
from syphon.amqp.frames import SASL_HEADER, Accepted, Attach, Rejected, Source, Target
from syphon.emulator import (
    Action,
    Emulator,
    EmulatorSettings,
    FakeClock,
    Fault,
    NamespaceSettings,
    Operation,
    QueueDescription,
)
from syphon.emulator.broker.faults import APPLIES, BadFault, FaultInjector
from tests.integration.emulator.conftest import EmulatedNamespace, ignore_unclosed_resources
from tests.support.plain_http import AioPlainHttp
from tests.support.raw_client import LinkEnded, raw_client
from tests.support.sdk_client import take
from tests.support.sdk_queue import AIO, MOMENT, SOON, SdkQueue, sdk_queue, texts
from tests.support.waiting import async_eventually

pytestmark = [ignore_unclosed_resources, pytest.mark.usefixtures("garbage_collected")]
ORDER = section_bytes(Section.DATA, b"an order")
TOMORROW = datetime.now(UTC) + timedelta(days=1)


def numbered(number: int) -> bytes:
    return properties_bytes(Properties(message_id=str(number))) + ORDER


@pytest.fixture
async def orders(emulated: EmulatedNamespace) -> AsyncIterator[SdkQueue]:
    """A queue with a client that never retries by itself."""
    async with sdk_queue(emulated, AIO) as it:
        yield it


def persistent(emulated: EmulatedNamespace, **options: Any) -> ServiceBusClient:
    """A client that retries soon."""
    return ServiceBusClient.from_connection_string(
        emulated.connection_string, retry_total=3, retry_backoff_factor=0.01, **options
    )


def set_fault(
    emulated: EmulatedNamespace, action: Action, operation: Operation, entity: str = "*", **options: Any
) -> Fault:
    fault = Fault(action, operation, entity, **options)
    emulated.namespace.faults.add(fault)
    return fault


async def heard_of(fault: Fault) -> None:
    """Waits until the broker has met it. A client may have given up by then."""
    await async_eventually(lambda: fault.struck, "the broker has heard of it")


async def never_answered(asking: Coroutine[Any, Any, object], silent: Fault) -> None:
    """The broker hears of it, and says nothing."""
    task = asyncio.create_task(asking)
    await heard_of(silent)
    answered, _ = await asyncio.wait([task], timeout=MOMENT)
    assert not answered
    task.cancel()
    await asyncio.wait([task])


def is_locked(orders: SdkQueue) -> bool:
    """Whether the one message of the queue is locked."""
    [message] = orders.queue.main.peek(0, 2)
    return message.lock_token is not None


# Which faults strike -------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def faults(clock: FakeClock) -> FaultInjector:
    return FaultInjector(clock)


def hits(
    faults: FaultInjector, count: int, operation: Operation = Operation.SEND, entity: str = "orders"
) -> list[bool]:
    return [faults.strike(operation, entity) is not None for _ in range(count)]


@pytest.mark.parametrize(
    ("pattern", "entity", "strikes"),
    [
        ("*", "orders", True),
        ("orders", "orders", True),
        ("Orders", "oRDERS", True),
        ("orders", "orders-eu", False),
        ("orders", "orders/$DeadLetterQueue", False),
        ("orders*", "Orders/$DeadLetterQueue", True),
        ("orders*", "new-orders", False),
        ("*/x-servicebus-transfer/?", "contoso/x-servicebus-transfer/7", True),
        ("topic/subscriptions/*", "topic/Subscriptions/all", True),
    ],
)
def test_a_fault_strikes_what_its_pattern_names(
    faults: FaultInjector, pattern: str, entity: str, strikes: bool
) -> None:
    faults.add(Fault(Action.DROP, Operation.SEND, pattern))
    assert hits(faults, 1, entity=entity) == [strikes]


def test_a_fault_strikes_its_operation_and_no_other(faults: FaultInjector) -> None:
    faults.add(Fault(Action.DROP, Operation.SETTLE))
    assert [operation for operation in Operation if faults.strike(operation, "orders")] == [Operation.SETTLE]


@pytest.mark.parametrize("action", Action)
def test_a_fault_for_any_operation_strikes_those_it_can_happen_to(faults: FaultInjector, action: Action) -> None:
    faults.add(Fault(action))
    assert {operation for operation in Operation if faults.strike(operation, "orders")} == APPLIES[action]


def test_a_fault_can_be_set_for_a_number_of_times(faults: FaultInjector) -> None:
    fault = Fault(Action.DROP, times=2)
    faults.add(fault)
    assert hits(faults, 4) == [True, True, False, False]
    assert fault.struck == 2
    assert faults.armed() == []


def test_a_fault_can_be_set_again(faults: FaultInjector) -> None:
    fault = Fault(Action.DROP, times=2)
    faults.add(fault)
    hits(faults, 2)
    faults.add(fault)
    assert hits(faults, 3) == [True, True, False]


def test_a_fault_can_be_set_for_a_while(faults: FaultInjector, clock: FakeClock) -> None:
    faults.add(Fault(Action.DROP, period=60))
    clock.advance(59.999)
    assert hits(faults, 1) == [True]
    clock.advance(0.001)
    assert hits(faults, 1) == [False]
    assert faults.armed() == []


def test_a_share_of_times_is_that_share_and_the_same_with_the_same_seed() -> None:
    def run(seed: int) -> list[bool]:
        faults = FaultInjector(FakeClock(), seed)
        faults.add(Fault(Action.DROP, share=0.25))
        return hits(faults, 1000)

    assert 200 < sum(run(1)) < 300
    assert run(1) == run(1)
    assert run(1) != run(2)


def test_of_several_faults_the_first_that_was_set_strikes(faults: FaultInjector) -> None:
    first, second = Fault(Action.DROP, times=1), Fault(Action.HANG)
    faults.add(first)
    faults.add(second)
    assert faults.strike(Operation.SEND, "orders") is first
    assert faults.strike(Operation.SEND, "orders") is second
    assert (first.struck, second.struck) == (1, 1)


def test_one_fault_is_cleared_or_all_of_them(faults: FaultInjector) -> None:
    numbers = [faults.add(Fault(Action.DROP, Operation.SEND, entity)) for entity in ("orders", "invoices", "letters")]
    faults.clear(numbers[1])
    assert [fault.id for fault in faults.armed()] == [numbers[0], numbers[2]]
    faults.clear()
    assert faults.armed() == []
    assert faults.add(Fault(Action.DROP)) not in numbers


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("action", {"action": Action.LOSE_LOCK, "operation": Operation.SEND}),
        ("action", {"action": Action.DETACH, "operation": Operation.CONNECT}),
        ("action", {"action": Action.LOSE_REPLY, "operation": Operation.ATTACH}),
        ("condition", {"condition": ""}),
        ("condition", {"condition": "ungültig"}),
        ("seconds", {"seconds": -1}),
        ("seconds", {"seconds": float("inf")}),
        ("times", {"times": 0}),
        ("share", {"share": 0.0}),
        ("share", {"share": 1.5}),
        ("share", {"share": float("nan")}),
        ("period", {"period": 0}),
        ("period", {"period": float("inf")}),
        ("message_id", {"message_id": "order 1"}),
        ("message_id", {"message_id": "order 1", "operation": Operation.RECEIVE}),
    ],
)
def test_a_fault_that_cannot_be_meant_is_refused(field: str, values: dict[str, Any]) -> None:
    with pytest.raises(BadFault, match=f"^{field}: "):
        Fault(**{"action": Action.ERROR, **values})


async def test_the_seed_of_the_settings_decides_who_is_struck() -> None:
    async def fates(seed: int) -> list[bool]:
        settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")], seed=seed)
        async with Emulator(settings) as emulator:
            emulated = EmulatedNamespace(emulator["contoso"])
            emulated.namespace.create_queue(QueueDescription("orders"))
            set_fault(emulated, Action.REFUSE, Operation.SEND, share=0.5)
            async with raw_client(emulated) as raw:
                sender = await raw.attach_sender("orders")
                return [await raw.send(sender, ORDER) == Accepted() for _ in range(32)]

    assert await fates(7) == await fates(7)
    assert await fates(7) != await fates(8)


async def test_faults_of_one_namespace_leave_the_other_alone() -> None:
    names = ("contoso", "contoso-dr")
    async with Emulator(EmulatorSettings(namespaces=[NamespaceSettings(name=name) for name in names])) as emulator:
        primary, secondary = (EmulatedNamespace(emulator[name]) for name in names)
        for emulated in (primary, secondary):
            emulated.namespace.create_queue(QueueDescription("orders"))
        set_fault(primary, Action.REFUSE, Operation.SEND)
        async with raw_client(primary) as one, raw_client(secondary) as other:
            refused = await one.send(await one.attach_sender("orders"), ORDER)
            accepted = await other.send(await other.attach_sender("orders"), ORDER)
    assert isinstance(refused, Rejected)
    assert accepted == Accepted()


# Connecting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [Action.REFUSE, Action.DROP])
async def test_a_connection_is_cut_without_a_word(emulated: EmulatedNamespace, action: Action) -> None:
    set_fault(emulated, action, Operation.CONNECT, times=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", emulated.running.amqp_port)
    writer.write(SASL_HEADER)
    assert await reader.read() == b""
    writer.close()


async def test_a_connection_that_is_cut_is_made_again_by_a_client_that_may(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    cut = set_fault(emulated, Action.DROP, Operation.CONNECT, times=1)
    client = ServiceBusClient.from_connection_string(emulated.connection_string, retry_total=0)
    async with client, persistent(emulated) as tenacious:
        with pytest.raises(ServiceBusConnectionError):
            async with client.get_queue_sender("orders"):
                pass
        emulated.namespace.faults.add(cut)
        async with tenacious.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("an order"))
    assert cut.struck == 1
    assert emulated.namespace.runtime("orders").active == 1


async def test_a_connection_that_hangs_says_nothing_and_stays(emulated: EmulatedNamespace) -> None:
    set_fault(emulated, Action.HANG, Operation.CONNECT, times=1)
    reader, writer = await asyncio.open_connection("127.0.0.1", emulated.running.amqp_port)
    writer.write(SASL_HEADER)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), MOMENT)
    async with raw_client(emulated):  # others are served meanwhile
        assert not reader.at_eof()
    writer.close()


async def test_a_delayed_connection_is_made_when_its_time_has_come(clocked: EmulatedNamespace) -> None:
    assert clocked.clock is not None
    delay = set_fault(clocked, Action.DELAY, Operation.CONNECT, seconds=20, times=1)
    connecting = asyncio.create_task(_connect(clocked))
    await async_eventually(lambda: delay.struck, "the connection has come")
    await _connect(clocked)  # one that came later is through already
    assert not connecting.done()
    clocked.clock.advance(20)
    await connecting


async def _connect(emulated: EmulatedNamespace) -> None:
    async with raw_client(emulated):
        pass


async def test_a_connection_is_closed_with_the_selected_condition(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    set_fault(emulated, Action.ERROR, Operation.CONNECT, condition="amqp:connection:forced", times=1)
    async with ServiceBusClient.from_connection_string(emulated.connection_string, retry_total=0) as client:
        with pytest.raises(ServiceBusConnectionError, match="amqp:connection:forced"):
            async with client.get_queue_sender("orders"):
                pass


# Attaching -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "condition"), [(Action.REFUSE, "amqp:not-allowed"), (Action.DETACH, "amqp:link:detach-forced")]
)
async def test_a_link_is_refused(emulated: EmulatedNamespace, action: Action, condition: str) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    set_fault(emulated, action, Operation.ATTACH, "orders", times=1)
    async with raw_client(emulated) as raw:
        with pytest.raises(LinkEnded) as refused:
            await raw.attach_sender("orders")
        assert refused.value.condition == condition
        assert await raw.send(await raw.attach_sender("orders"), ORDER) == Accepted()


async def test_a_connection_is_cut_when_it_attaches_and_the_client_reconnects(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    cut = set_fault(emulated, Action.DROP, Operation.ATTACH, "orders", times=1)
    async with persistent(emulated) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("an order"))
    assert cut.struck == 1
    assert emulated.namespace.runtime("orders").active == 1


async def test_a_link_that_hangs_is_never_attached_and_others_are(emulated: EmulatedNamespace) -> None:
    for name in ("orders", "invoices"):
        emulated.namespace.create_queue(QueueDescription(name))
    set_fault(emulated, Action.HANG, Operation.ATTACH, "orders")
    async with raw_client(emulated) as raw:
        raw.post(Attach("hangs", 8, True, source=Source("orders"), target=Target("raw")))
        raw.post(Attach("works", 9, True, source=Source("invoices"), target=Target("raw")))
        attached, _ = await raw.next(Attach)
        assert attached.name == "works"


async def test_a_delayed_link_is_attached_when_its_time_has_come(clocked: EmulatedNamespace) -> None:
    assert clocked.clock is not None
    for name in ("orders", "invoices"):
        clocked.namespace.create_queue(QueueDescription(name))
    set_fault(clocked, Action.DELAY, Operation.ATTACH, "orders", seconds=20)
    async with raw_client(clocked) as raw:
        raw.post(Attach("slow", 8, True, source=Source("orders"), target=Target("raw")))
        raw.post(Attach("quick", 9, True, source=Source("invoices"), target=Target("raw")))
        names = [(await raw.next(Attach))[0].name]
        clocked.clock.advance(20)
        names.append((await raw.next(Attach))[0].name)
        assert names == ["quick", "slow"]


async def test_an_attach_that_waits_ends_with_its_connection(clocked: EmulatedNamespace) -> None:
    assert clocked.clock is not None
    clocked.namespace.create_queue(QueueDescription("orders"))
    slow = set_fault(clocked, Action.DELAY, Operation.ATTACH, "orders", seconds=20)
    async with raw_client(clocked) as raw:
        raw.post(Attach("slow", 8, True, source=Source("orders"), target=Target("raw")))
        await async_eventually(lambda: slow.struck, "the attach has come")
    await async_eventually(lambda: clocked.running.connection_count == 0, "the connection is closed")
    clocked.clock.advance(20)
    assert clocked.namespace.entity("orders").links == set()


# Sending -------------------------------------------------------------------------------------------------------------


async def test_a_refused_send_is_not_stored(orders: SdkQueue) -> None:
    set_fault(orders.emulated, Action.REFUSE, Operation.SEND, "orders", description="not today", times=1)
    with pytest.raises(ServiceBusError, match="not today"):
        await orders.send("first")
    await orders.send("second")
    assert texts(await orders.take(1)) == ["second"]


async def test_a_fault_can_be_about_one_message_alone_and_in_a_batch(orders: SdkQueue) -> None:
    bad = set_fault(orders.emulated, Action.REFUSE, Operation.SEND, "orders", description="bad", message_id="2")
    messages = {number: ServiceBusMessage(f"{number}", message_id=f"{number}") for number in (1, 2, 3)}
    for refused in (messages[2], [messages[1], messages[2]]):
        with pytest.raises(ServiceBusError, match="bad"):
            await orders.sender.send_messages(refused)
    await orders.sender.send_messages([messages[1], messages[3]])
    assert bad.struck == 2
    assert texts(await orders.take(2)) == ["1", "3"]


async def test_a_link_that_breaks_under_a_send_is_opened_again(emulated: EmulatedNamespace) -> None:
    async def send_through(action: Action) -> None:
        queue = f"orders-{action}"
        emulated.namespace.create_queue(QueueDescription(queue))
        async with persistent(emulated) as client, client.get_queue_sender(queue) as sender:
            broken = set_fault(emulated, action, Operation.SEND, queue, times=1)
            await sender.send_messages(ServiceBusMessage("an order"))
        assert broken.struck == 1
        assert emulated.namespace.runtime(queue).active == 1

    await asyncio.gather(send_through(Action.DROP), send_through(Action.DETACH))


async def test_a_link_that_breaks_under_a_send_is_an_error_to_a_client_that_does_not_retry(
    orders: SdkQueue,
) -> None:
    set_fault(orders.emulated, Action.DROP, Operation.SEND, "orders", times=1)
    with pytest.raises(ServiceBusConnectionError):
        await orders.send("an order")
    set_fault(
        orders.emulated, Action.DETACH, Operation.SEND, "orders", condition="com.microsoft:entity-disabled", times=1
    )
    with pytest.raises(ServiceBusError, match="unknown-error"):  # the client does not look why a link has ended
        await orders.send("an order")
    assert orders.stored() == 0


async def test_a_send_without_an_answer_times_out_and_is_stored_only_if_just_the_answer_was_lost(
    orders: SdkQueue,
) -> None:
    for action, text in ((Action.HANG, "unheard"), (Action.LOSE_REPLY, "heard")):
        silent = set_fault(orders.emulated, action, Operation.SEND, "orders", times=1)
        with pytest.raises(OperationTimeoutError):
            await orders.sender.send_messages(ServiceBusMessage(text), timeout=MOMENT)
        await heard_of(silent)
    assert orders.stored() == 1
    assert texts(await orders.take(1)) == ["heard"]


async def test_a_send_that_is_repeated_because_its_answer_was_lost_arrives_twice_unless_duplicates_are_detected(
    emulated: EmulatedNamespace,
) -> None:
    async def arrivals(queue: str) -> list[str | None]:
        async with persistent(emulated) as client, client.get_queue_sender(queue) as sender:
            lost = set_fault(emulated, Action.LOSE_REPLY_AND_DROP, Operation.SEND, queue, times=1)
            await sender.send_messages(ServiceBusMessage("an order", message_id="7"))
            assert lost.struck == 1
            async with client.get_queue_receiver(queue) as receiver:
                return [message.message_id for message in await receiver.peek_messages(10)]

    emulated.namespace.create_queue(QueueDescription("plain"))
    emulated.namespace.create_queue(QueueDescription("detecting", requires_duplicate_detection=True))
    plain, detecting = await asyncio.gather(arrivals("plain"), arrivals("detecting"))
    assert (plain, detecting) == (["7", "7"], ["7"])


async def test_delayed_sends_keep_their_order(clocked: EmulatedNamespace) -> None:
    assert clocked.clock is not None
    for name in ("orders", "invoices"):
        clocked.namespace.create_queue(QueueDescription(name))
    delay = set_fault(clocked, Action.DELAY, Operation.SEND, "orders", seconds=20, times=1)
    refusal = set_fault(clocked, Action.REFUSE, Operation.SEND, "orders", times=1)
    async with raw_client(clocked) as raw:
        sender = await raw.attach_sender("orders")
        for number in range(3):  # the first is delayed, the second refused, the third could go at once
            raw.put(sender, numbered(number))
        elsewhere = await raw.attach_sender("invoices")
        assert await raw.send(elsewhere, ORDER) == Accepted()
        assert (delay.struck, refusal.struck) == (1, 1)
        assert clocked.namespace.runtime("orders").active == 0
        clocked.clock.advance(20)
        outcomes = [await raw.outcome() for _ in range(3)]
    assert [type(outcome) for outcome in outcomes] == [Accepted, Rejected, Accepted]
    stored = clocked.namespace.message_queue("orders").peek(0, 10)
    assert [message.message_id for message in stored] == ["0", "2"]


# Receiving -----------------------------------------------------------------------------------------------------------


async def test_a_link_that_breaks_under_a_receive_takes_no_message_with_it(orders: SdkQueue) -> None:
    await orders.send("an order")
    for action in (Action.REFUSE, Action.DROP, Action.DETACH):
        broken = set_fault(orders.emulated, action, Operation.RECEIVE, "orders", times=1)
        with pytest.raises(ServiceBusError):
            await orders.receiver.receive_messages(max_wait_time=SOON)
        assert broken.struck == 1
    assert (await orders.take_one()).delivery_count == 0


async def test_a_receive_that_hangs_brings_nothing_and_the_next_one_does(orders: SdkQueue) -> None:
    await orders.send("an order")
    hang = set_fault(orders.emulated, Action.HANG, Operation.RECEIVE, "orders", times=1)
    assert await orders.receiver.receive_messages(max_wait_time=MOMENT) == []
    await heard_of(hang)
    assert (await orders.take_one()).delivery_count == 0


async def test_a_delayed_receive_brings_the_message_when_its_time_has_come(clocked: EmulatedNamespace) -> None:
    async with sdk_queue(clocked, AIO) as orders:
        await orders.send("first", "second")
        delay = set_fault(clocked, Action.DELAY, Operation.RECEIVE, "orders", seconds=20, times=1)
        assert await orders.receiver.receive_messages(max_wait_time=MOMENT) == []
        await heard_of(delay)
        orders.advance(19.9)
        assert await orders.receiver.receive_messages(max_wait_time=MOMENT) == []  # asking again makes it no quicker
        orders.advance(0.1)
        assert texts(await orders.take(2)) == ["first", "second"]
        assert delay.struck == 1


async def test_a_message_whose_lock_is_lost_in_flight_cannot_be_completed_and_is_redelivered(orders: SdkQueue) -> None:
    await orders.send("an order")
    set_fault(orders.emulated, Action.LOSE_LOCK, Operation.RECEIVE, "orders", times=1)
    message = await orders.take_one()
    with pytest.raises(MessageLockLostError):
        await orders.receiver.complete_message(message)
    again = await orders.take_one()
    assert (message.delivery_count, again.delivery_count) == (0, 1)
    await orders.receiver.complete_message(again)
    assert orders.stored() == 0


async def test_locks_that_are_always_lost_are_lost_once_for_each_delivery(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders", max_delivery_count=2_000_000_000))
    fault = set_fault(emulated, Action.LOSE_LOCK, Operation.RECEIVE, "orders")
    async with raw_client(emulated) as raw:
        await raw.send(await raw.attach_sender("orders"), ORDER)
        receiver = await raw.attach_receiver("orders")
        raw.grant(receiver, 1000)
        for _ in range(1000):
            await raw.receive(receiver)
    assert fault.struck == 1000
    assert emulated.namespace.message_queue("orders").peek(0, 1)[0].delivery_count == 1000


@pytest.mark.parametrize("action", [Action.LOSE_REPLY, Action.LOSE_REPLY_AND_DROP])
async def test_a_message_that_is_lost_in_flight_is_redelivered_when_its_lock_expires(
    clocked: EmulatedNamespace, action: Action
) -> None:
    async with sdk_queue(clocked, AIO) as orders:
        await orders.send("an order")
        lost = set_fault(clocked, action, Operation.RECEIVE, "orders", times=1)
        if action is Action.LOSE_REPLY:
            assert await orders.receiver.receive_messages(max_wait_time=MOMENT) == []
        else:
            with pytest.raises(ServiceBusConnectionError):
                await orders.receiver.receive_messages(max_wait_time=SOON)
        await heard_of(lost)
        assert is_locked(orders)
        orders.advance(60)
        assert (await orders.take_one()).delivery_count == 1


async def test_a_message_that_is_deleted_as_it_is_received_can_be_lost_for_good(emulated: EmulatedNamespace) -> None:
    async with sdk_queue(emulated, AIO, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as orders:
        await orders.send("an order")
        set_fault(emulated, Action.LOSE_REPLY, Operation.RECEIVE, "orders", times=1)
        assert await orders.receiver.receive_messages(max_wait_time=MOMENT) == []
        await async_eventually(lambda: orders.stored() == 0, "it is deleted")


# Settling ------------------------------------------------------------------------------------------------------------


async def test_a_settlement_that_is_refused_leaves_the_message_locked(orders: SdkQueue) -> None:
    await orders.send("an order")
    message = await orders.take_one()
    set_fault(orders.emulated, Action.REFUSE, Operation.SETTLE, "orders", description="not today", times=1)
    with pytest.raises(ServiceBusError, match="not today"):
        await orders.receiver.complete_message(message)
    assert is_locked(orders)


async def test_a_lock_can_be_lost_just_before_the_settlement(orders: SdkQueue) -> None:
    await orders.send("an order")
    message = await orders.take_one()
    set_fault(orders.emulated, Action.LOSE_LOCK, Operation.SETTLE, "orders", times=1)
    with pytest.raises(MessageLockLostError):
        await orders.receiver.complete_message(message)
    again = await orders.take_one()
    assert again.delivery_count == 1
    await orders.receiver.complete_message(again)


async def test_the_lock_of_a_session_is_lost_as_a_whole(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders", requires_session=True))
    client = ServiceBusClient.from_connection_string(emulated.connection_string, retry_total=0)
    async with client, client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage(body, session_id="s") for body in ("first", "second")])
        async with client.get_queue_receiver("orders", session_id="s") as receiver:
            first, _ = await take(receiver, 2)
            set_fault(emulated, Action.LOSE_LOCK, Operation.SETTLE, "orders", times=1)
            with pytest.raises(SessionLockLostError):
                await receiver.complete_message(first)
        async with client.get_queue_receiver("orders", session_id="s") as receiver:
            messages = await take(receiver, 2)
    assert [(str(message), message.delivery_count) for message in messages] == [("first", 1), ("second", 1)]


async def test_a_message_is_settled_over_the_management_link_when_its_own_has_broken(
    emulated: EmulatedNamespace,
) -> None:
    async def settle_through(action: Action) -> None:
        queue = f"orders-{action}"
        emulated.namespace.create_queue(QueueDescription(queue))
        async with persistent(emulated) as client, client.get_queue_receiver(queue) as receiver:
            async with raw_client(emulated) as raw:
                await raw.send(await raw.attach_sender(queue), ORDER)
            [message] = await receiver.receive_messages(max_wait_time=SOON)
            broken = set_fault(emulated, action, Operation.SETTLE, queue, times=1)
            await receiver.complete_message(message)
        assert broken.struck == 1
        assert emulated.namespace.runtime(queue).active == 0

    await asyncio.gather(settle_through(Action.DROP), settle_through(Action.DETACH))


async def test_a_settlement_without_an_answer_was_made_only_if_just_the_answer_was_lost(orders: SdkQueue) -> None:
    await orders.send("unheard", "heard")
    for message, action in zip(await orders.take(2), (Action.HANG, Action.LOSE_REPLY), strict=True):
        silent = set_fault(orders.emulated, action, Operation.SETTLE, "orders", times=1)
        await never_answered(orders.receiver.complete_message(message), silent)  # the client would wait a minute
    assert [message.ordinal for message in orders.queue.main.peek(0, 10)] == [1]


async def test_a_settlement_that_was_made_is_refused_when_it_is_repeated_after_the_connection_was_cut(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    async with persistent(emulated) as client, client.get_queue_receiver("orders") as receiver:
        async with raw_client(emulated) as raw:
            await raw.send(await raw.attach_sender("orders"), ORDER)
        [message] = await receiver.receive_messages(max_wait_time=SOON)
        set_fault(emulated, Action.LOSE_REPLY_AND_DROP, Operation.SETTLE, "orders", times=1)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
    assert emulated.namespace.runtime("orders").active == 0


async def test_delayed_settlements_keep_their_order(clocked: EmulatedNamespace) -> None:
    async with sdk_queue(clocked, AIO) as orders:
        await orders.send("first", "second")
        first, second = await orders.take(2)
        delay = set_fault(clocked, Action.DELAY, Operation.SETTLE, "orders", seconds=20, times=1)
        settling = asyncio.create_task(orders.receiver.complete_message(first))
        await async_eventually(lambda: delay.struck, "the first settlement has come")
        assert orders.stored() == 2
        orders.advance(20)
        await settling
        await orders.receiver.abandon_message(second)
        assert (await orders.take_one()).delivery_count == 1


# Managing ------------------------------------------------------------------------------------------------------------


async def test_a_request_to_manage_is_refused_or_its_link_detached(orders: SdkQueue) -> None:
    set_fault(orders.emulated, Action.REFUSE, Operation.MANAGE, "orders", description="not today", times=1)
    with pytest.raises(ServiceBusError, match="not today"):
        await orders.receiver.peek_messages()
    set_fault(orders.emulated, Action.DETACH, Operation.MANAGE, "orders", times=1)
    with pytest.raises(ServiceBusError, match="Management Operation error"):
        await orders.receiver.peek_messages()
    assert await orders.receiver.peek_messages() == []


async def test_a_request_without_an_answer_was_carried_out_only_if_just_the_answer_was_lost(orders: SdkQueue) -> None:
    scheduled = []
    await orders.sender.schedule_messages(ServiceBusMessage("first"), TOMORROW)  # and the link is open
    for action in (Action.HANG, Action.LOSE_REPLY):
        silent = set_fault(orders.emulated, action, Operation.MANAGE, "orders", times=1)
        with pytest.raises(OperationTimeoutError):
            await orders.sender.schedule_messages(ServiceBusMessage("later"), TOMORROW, timeout=1)
        await heard_of(silent)
        scheduled.append(orders.emulated.namespace.runtime("orders").scheduled)
    assert scheduled == [1, 2]


async def test_a_request_is_repeated_when_the_connection_was_cut_before_or_instead_of_an_answer(
    emulated: EmulatedNamespace,
) -> None:
    async def scheduled_through(action: Action) -> int:
        queue = f"orders-{action}"
        emulated.namespace.create_queue(QueueDescription(queue))
        async with persistent(emulated) as client, client.get_queue_sender(queue) as sender:
            cut = set_fault(emulated, action, Operation.MANAGE, queue, times=1)
            await sender.schedule_messages(ServiceBusMessage("later"), TOMORROW)
        assert cut.struck == 1
        return emulated.namespace.runtime(queue).scheduled

    actions = (Action.DROP, Action.LOSE_REPLY_AND_DROP)
    assert await asyncio.gather(*map(scheduled_through, actions)) == [1, 2]


async def test_a_lock_can_be_lost_just_before_it_is_renewed(orders: SdkQueue) -> None:
    await orders.send("an order")
    message = await orders.take_one()
    set_fault(orders.emulated, Action.LOSE_LOCK, Operation.MANAGE, "orders", times=1)
    with pytest.raises(MessageLockLostError):
        await orders.receiver.renew_message_lock(message)
    assert (await orders.take_one()).delivery_count == 1


async def test_the_lock_of_a_session_can_be_lost_just_before_it_is_renewed(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders", requires_session=True))
    set_fault(emulated, Action.LOSE_LOCK, Operation.MANAGE, "orders", times=1)
    client = ServiceBusClient.from_connection_string(emulated.connection_string, retry_total=0)
    async with client, client.get_queue_receiver("orders", session_id="s") as receiver:
        with pytest.raises(SessionLockLostError):
            await receiver.session.renew_lock()


async def test_delayed_requests_are_answered_when_their_time_has_come(clocked: EmulatedNamespace) -> None:
    async with sdk_queue(clocked, AIO) as orders:
        delay = set_fault(clocked, Action.DELAY, Operation.MANAGE, "orders", seconds=20, times=1)
        peeking = asyncio.create_task(orders.receiver.peek_messages())
        await async_eventually(lambda: delay.struck, "the request has come")
        assert not peeking.done()
        orders.advance(20)
        assert await peeking == []


# Managing over HTTP --------------------------------------------------------------------------------------------------


@pytest.fixture
async def admin(clocked: EmulatedNamespace) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with ServiceBusAdministrationClient.from_connection_string(
        clocked.connection_string.replace("UseDevelopmentEmulator=true;", ""), transport=AioPlainHttp(), retry_total=0
    ) as it:
        yield it


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("com.microsoft:server-busy", 503),
        ("amqp:unauthorized-access", 401),
        ("amqp:not-found", 404),
        ("amqp:internal-error", 500),
        ("contoso:made-up", 500),
    ],
)
async def test_a_condition_has_its_status_over_http(
    clocked: EmulatedNamespace, admin: ServiceBusAdministrationClient, condition: str, status: int
) -> None:
    set_fault(clocked, Action.ERROR, Operation.MANAGE, "orders", condition=condition, times=1)
    with pytest.raises(HttpResponseError) as refused:
        await admin.create_queue("orders")
    assert refused.value.status_code == status
    await admin.create_queue("orders")


async def test_a_request_over_http_whose_answer_is_lost_was_carried_out(
    clocked: EmulatedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    set_fault(clocked, Action.LOSE_REPLY_AND_DROP, Operation.MANAGE, "orders")  # aiohttp tries twice by itself
    with pytest.raises(ServiceRequestError):
        await admin.create_queue("orders")
    silent = set_fault(clocked, Action.LOSE_REPLY, Operation.MANAGE, "invoices", times=1)
    await never_answered(admin.create_queue("invoices"), silent)
    assert [queue.name for queue in clocked.namespace.queues()] == ["invoices", "orders"]


async def test_a_request_over_http_can_be_delayed(
    clocked: EmulatedNamespace, admin: ServiceBusAdministrationClient
) -> None:
    assert clocked.clock is not None
    delay = set_fault(clocked, Action.DELAY, Operation.MANAGE, "orders", seconds=20)
    creating = asyncio.create_task(admin.create_queue("orders"))
    await async_eventually(lambda: delay.struck, "the request has come")
    assert clocked.namespace.queues() == []
    clocked.clock.advance(20)
    await creating
    assert [queue.name for queue in clocked.namespace.queues()] == ["orders"]
