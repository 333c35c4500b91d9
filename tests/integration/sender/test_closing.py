"""Closing: a send in flight finishes or fails, and no call hangs."""

from __future__ import annotations

import asyncio
import threading

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from syphon.emulator import Outage
from syphon.sender import PairOptions, SenderClosed, aio, sync
from syphon.sender import sender_links as links
from tests.integration.sender.conftest import PairedEmulator, leftovers
from tests.support.sender_apis import in_thread
from tests.support.waiting import eventually

pytestmark = leftovers


@pytest.fixture(autouse=True)
def _shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sync, aio):
        monkeypatch.setattr(module, "CLOSE_WITHIN", 0.3)


def send(sender: object) -> None:
    sender.send_messages(ServiceBusMessage("x"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_send_that_is_stuck_fails_when_its_sender_is_closed(paired: PairedEmulator, is_open: bool) -> None:
    sender = paired.pair(manual_clock=False).get_queue_sender("orders")
    if is_open:
        send(sender)
    paired.outage(Outage.HANG)
    with in_thread(lambda: send(sender)) as stuck, in_thread(lambda: send(sender)) as next_in_line:
        eventually(lambda: sender._turn.locked())
        sender.close()
        for result in (stuck, next_in_line):
            with pytest.raises(SenderClosed):
                result()


def test_a_send_that_waits_out_a_busy_primary_ends_when_the_pair_is_closed(paired: PairedEmulator) -> None:
    client = paired.pair()
    sender = client.get_queue_sender("orders")
    paired.outage(Outage.BUSY)
    with in_thread(lambda: send(sender)) as waiting:
        eventually(paired.clock.waits)
        client.close()
        with pytest.raises(SenderClosed):
            waiting()


def test_closing_a_pair_ends_its_pings(paired: PairedEmulator) -> None:
    client = paired.pair()
    paired.outage(Outage.REFUSE)
    send(client.get_queue_sender("orders"))
    eventually(paired.clock.waits)
    client.close()
    eventually(lambda: paired.clock.waits() == [])


def test_a_closed_sender_and_a_closed_pair_say_so(paired: PairedEmulator) -> None:
    client = paired.pair()
    sender = client.get_queue_sender("orders")
    sender.close()
    sender.close()
    with pytest.raises(SenderClosed) as caught:
        send(sender)
    assert isinstance(caught.value, ServiceBusError)
    assert isinstance(caught.value, ValueError)  # as the SDK has it
    client.close()
    with pytest.raises(SenderClosed):
        client.get_queue_sender("orders")


def test_clients_that_were_given_stay_open(paired: PairedEmulator) -> None:
    client = paired.pair()
    given = client.primary
    send(client.get_queue_sender("orders"))
    client.close()
    again = paired.api.pair(given, client.secondary, client.failover.options)
    send(again.get_queue_sender("orders"))
    again.close()
    assert paired.active("orders") == 2


def test_a_sender_that_many_threads_share_loses_and_doubles_nothing(paired: PairedEmulator) -> None:
    sender = paired.pair().get_queue_sender("orders")
    size, threads = 20, 6

    def work(thread: int) -> None:
        for number in range(size):
            sender.send_messages(ServiceBusMessage(b"x" * 50_000, message_id=f"{thread}-{number}"))

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = [str(message.message_id) for message in paired.take("orders", size * threads)]
    assert sorted(found) == sorted(f"{thread}-{number}" for thread in range(threads) for number in range(size))


@pytest.mark.parametrize("api", ["sync"])  # asyncio cancels it
def test_a_link_that_opens_too_late_is_closed_when_it_is_open(paired: PairedEmulator) -> None:
    """The link has given it up, so its connection must not stay open."""
    client = paired.pair()
    paired.outage(Outage.HANG)
    made = client.primary.get_queue_sender("orders")
    with pytest.raises(ServiceBusError, match="could not be opened"):
        links.SenderLink(lambda: made).use(lambda sender, left: None, 0.3)  # noqa: ARG005
    paired.outage(None)
    eventually(lambda: made._shutdown.is_set())


@pytest.mark.parametrize("api", ["sync"])  # the test uses the asyncio API directly
async def test_a_call_that_comes_between_two_turns_waits_no_longer_than_its_timeout(paired: PairedEmulator) -> None:
    primary, secondary = (paired.emulator[name].connection_string for name in ("contoso", "contoso-dr"))
    async with aio.pair(primary, secondary, PairOptions(primary_name="contoso")) as client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("x"))
        await sender._turn.acquire()
        first = asyncio.create_task(sender.send_messages(ServiceBusMessage("x")))
        while not sender._turn._waiters:
            await asyncio.sleep(0)
        paired.outage(Outage.HANG)
        sender._turn.release()  # the first call has its turn, and is not scheduled yet
        with pytest.raises(OperationTimeoutError, match="used up all the time"):
            async with asyncio.timeout(20):
                await sender.send_messages(ServiceBusMessage("x"), timeout=0.3)
        first.cancel()
        await asyncio.wait([first])
