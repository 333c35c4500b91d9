"""The two sides of an application's pair end together: the five seconds between them (C1, C3)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from syphon.emulator import Action, Fault, Operation, Outage
from syphon.emulator.broker.access import Policy
from syphon.sender import PairFaulted, SideEnded
from syphon.servicebus import NamespaceStatus
from tests.integration.sender.conftest import QUEUE_0, PairedEmulator, leftovers
from tests.support.sender_apis import in_thread
from tests.support.waiting import eventually

pytestmark = leftovers
SIDES = ("primary", "secondary")


def send(client: Any, body: str = "x") -> None:
    client.get_queue_sender("orders").send_messages(ServiceBusMessage(body))


def statuses(client: Any) -> tuple[NamespaceStatus, NamespaceStatus]:
    return client.state.primary.status, client.state.secondary.status


def other_than(side: str) -> str:
    return SIDES[1 - SIDES.index(side)]


def ended(paired: PairedEmulator) -> list[tuple[str, NamespaceStatus]]:
    """What `on_change` was told."""
    found = [change.state for change in paired.changes if isinstance(change, SideEnded)]
    return [(state.side, state.status) for state in found]


@pytest.mark.parametrize("side", SIDES)
def test_closing_a_client_faults_the_other_side_after_exactly_five_seconds(
    paired: PairedEmulator, side: str
) -> None:  # C1
    """The clients are the application's own: it has made them, and closes them."""
    client = paired.pair()
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("before"))
    paired.api.close(getattr(client, side))
    eventually(paired.clock.waits)
    paired.clock.advance(4.999)
    assert getattr(client.state, side).status is NamespaceStatus.CLOSED
    assert getattr(client.state, other_than(side)).status is NamespaceStatus.OPENED
    paired.clock.advance(0.001)
    eventually(lambda: client.closing.is_set())
    assert getattr(client.state, other_than(side)).status is NamespaceStatus.FAULTED
    assert ended(paired) == [(side, NamespaceStatus.CLOSED), (other_than(side), NamespaceStatus.FAULTED)]
    for call in (sender.send_messages, client.get_queue_sender):
        with pytest.raises(PairFaulted) as caught:
            call("orders")
        assert isinstance(caught.value, ServiceBusError)
        for namespace in (client.primary, client.secondary):
            assert namespace.fully_qualified_namespace in str(caught.value)
    assert paired.active("orders") == 1


def test_a_closed_primary_is_not_sent_to_and_not_failed_over(paired: PairedEmulator) -> None:  # C1
    """Closing is not an outage: the messages must not go to the backlog in its five seconds."""
    client = paired.pair()
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("before"))
    paired.api.close(client.primary)
    for late in (sender, client.get_queue_sender("orders")):
        with pytest.raises(PairFaulted, match=r"The primary .* is closed"):
            late.send_messages(ServiceBusMessage("x"))
    assert (paired.active("orders"), paired.in_backlog(), client.failed_over) == (1, 0, ())


def test_while_the_secondary_has_its_five_seconds_the_primary_takes_messages(paired: PairedEmulator) -> None:  # C1
    client = paired.pair()
    paired.api.close(client.secondary)
    send(client)
    assert paired.active("orders") == 1
    paired.outage(Outage.REFUSE)
    with pytest.raises(PairFaulted, match=r"The secondary .* is closed"):
        send(client)


def test_a_failed_over_entity_uses_the_backlog_for_the_five_seconds_and_is_not_pinged_again(
    paired: PairedEmulator,
) -> None:  # C1, F5
    client = paired.pair()
    sender = client.get_queue_sender("orders")
    paired.outage(Outage.REFUSE)
    sender.send_messages(ServiceBusMessage("1"))
    paired.api.close(client.primary)
    sender.send_messages(ServiceBusMessage("2"))
    assert paired.in_backlog() == 2
    paired.outage(None)
    eventually(lambda: 5.0 in paired.clock.waits())
    paired.clock.advance(5)
    eventually(client.closing.is_set)
    with pytest.raises(PairFaulted):
        sender.send_messages(ServiceBusMessage("3"))
    paired.clock.advance(60)
    eventually(lambda: paired.clock.waits() == [])
    assert paired.sends("orders") == 0
    assert paired.in_backlog() == 2


def test_both_clients_closed_in_time_fault_nothing(paired: PairedEmulator) -> None:  # C1
    client = paired.pair()
    paired.api.close(client.primary)
    paired.clock.advance(4.9)
    paired.api.close(client.secondary)
    paired.clock.advance(10)
    assert statuses(client) == (NamespaceStatus.CLOSED, NamespaceStatus.CLOSED)
    eventually(lambda: ended(paired) == [("primary", NamespaceStatus.CLOSED), ("secondary", NamespaceStatus.CLOSED)])
    with pytest.raises(PairFaulted):
        client.get_queue_sender("orders")


def test_a_pair_that_is_closed_itself_closes_both_sides_and_reports_nothing(paired: PairedEmulator) -> None:
    client = paired.pair()
    client.close()
    assert statuses(client) == (NamespaceStatus.CLOSED, NamespaceStatus.CLOSED)
    paired.api.close(client.primary)
    assert ended(paired) == []


def test_an_outage_is_not_a_fault(paired: PairedEmulator) -> None:  # C3
    client = paired.pair()
    paired.outage(Outage.REFUSE)
    send(client)
    paired.clock.advance(1000)
    assert statuses(client) == (NamespaceStatus.OPENED, NamespaceStatus.OPENED)


# --- faults ---


@pytest.fixture
def revoke(paired: PairedEmulator) -> Callable[[str], None]:
    """Replaces the keys of a namespace, as its owner does who has lost one."""

    def replace(name: str) -> None:
        access = paired.emulator[name].namespace.access
        new = {key: Policy(key, "bmV3", policy.claims) for key, policy in access.policies.items()}
        paired.emulator.call(lambda: access.policies.update(new))

    return replace


def test_a_primary_whose_key_is_revoked_faults_the_pair(
    paired: PairedEmulator, revoke: Callable[[str], None]
) -> None:  # C1, C3
    client = paired.pair()
    revoke("contoso")
    with pytest.raises(ServiceBusAuthenticationError):  # the caller gets the error of the SDK (F3)
        send(client)
    eventually(lambda: client.state.primary.status is NamespaceStatus.FAULTED)
    assert "credentials were refused" in str(client.state.primary.reason)
    eventually(lambda: [side for side, _ in ended(paired)] == ["primary"])
    eventually(paired.clock.waits)
    paired.clock.advance(5)
    eventually(lambda: client.state.secondary.status is NamespaceStatus.FAULTED)
    eventually(lambda: [side for side, _ in ended(paired)] == ["primary", "secondary"])
    with pytest.raises(PairFaulted, match="credentials were refused"):
        client.get_queue_sender("orders")


def test_a_secondary_whose_key_is_revoked_faults_the_pair(
    paired: PairedEmulator, revoke: Callable[[str], None]
) -> None:  # C1, C3
    client = paired.pair()
    revoke("contoso-dr")
    paired.outage(Outage.REFUSE)
    with pytest.raises(ServiceBusError):
        send(client)
    eventually(lambda: client.state.secondary.status is NamespaceStatus.FAULTED)
    eventually(lambda: 5.0 in paired.clock.waits())
    paired.clock.advance(5)
    eventually(lambda: client.state.primary.status is NamespaceStatus.FAULTED)
    assert "credentials were refused" in str(client.state.primary.reason)


def test_an_entity_that_refuses_us_says_nothing_about_its_namespace(paired: PairedEmulator) -> None:  # C3, F3
    """A policy of the entity may lack the claim."""
    client = paired.pair()
    paired.queue("billing")
    paired.fault(Fault(Action.ERROR, Operation.ATTACH, "billing", condition="amqp:unauthorized-access"))
    asked: list[object] = []
    find_fault = client.coupling._find_fault
    client.coupling._find_fault = lambda side, path: asked.append(find_fault(side, path))
    with pytest.raises(ServiceBusError):
        client.get_queue_sender("billing").send_messages(ServiceBusMessage("x"))
    eventually(lambda: asked)
    assert asked == [None]
    assert statuses(client) == (NamespaceStatus.OPENED, NamespaceStatus.OPENED)
    send(client)
    assert paired.active("orders") == 1


@pytest.mark.parametrize("api", ["sync"])  # asyncio looks up no name for an IP address
def test_a_namespace_whose_name_does_not_exist_is_faulted(
    paired: PairedEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:  # C1, C3
    client = paired.pair()
    port = paired.emulator["contoso"].amqp_port
    look_up = socket.getaddrinfo

    def no_such_name(host: Any, service: Any, *arguments: Any, **options: Any) -> Any:
        if service == port:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(host, service, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)
    send(client)  # it goes to the backlog
    assert paired.in_backlog() == 1
    eventually(lambda: client.state.primary.status is NamespaceStatus.FAULTED)
    assert "no such host" in str(client.state.primary.reason)
    eventually(lambda: 5.0 in paired.clock.waits())
    paired.clock.advance(5)
    eventually(lambda: client.state.secondary.status is NamespaceStatus.FAULTED)


# --- the application's own senders and receivers ---


@pytest.mark.parametrize("side", SIDES)
def test_senders_and_receivers_of_a_faulted_client_raise_an_error_that_names_both_sides(
    paired: PairedEmulator, side: str
) -> None:  # C1
    """They are the application's own, made from its own client, and in use when the other client is closed."""
    client, run = paired.pair(), paired.api.run
    path = "orders" if side == "primary" else QUEUE_0
    faulted = getattr(client, side)
    receiver, sender = faulted.get_queue_receiver(path), faulted.get_queue_sender(path)
    run(lambda: sender.send_messages(ServiceBusMessage("before")))
    assert len(run(lambda: receiver.receive_messages(max_wait_time=20))) == 1
    paired.api.close(getattr(client, other_than(side)))
    eventually(paired.clock.waits)
    paired.clock.advance(4.999)
    run(lambda: sender.send_messages(ServiceBusMessage("in the five seconds")))
    paired.clock.advance(0.001)
    eventually(client.closing.is_set)
    for use in (
        lambda: sender.send_messages(ServiceBusMessage("after")),
        lambda: receiver.receive_messages(max_wait_time=1),
        lambda: receiver.peek_messages(),
        lambda: faulted.get_queue_sender(path),
        lambda: faulted.get_queue_receiver(path),
        lambda: faulted.get_subscription_receiver("news", "all"),
    ):
        with pytest.raises(PairFaulted) as caught:
            run(use)
        for namespace in (client.primary, client.secondary):
            assert namespace.fully_qualified_namespace in str(caught.value)
    eventually(lambda: sender._shutdown.is_set() and receiver._shutdown.is_set())
    paired.api.close(faulted)  # the application may close its client as always


def test_a_receive_that_waits_for_messages_ends_when_its_side_is_faulted(paired: PairedEmulator) -> None:  # C1
    client, run = paired.pair(manual_clock=False), paired.api.run
    receiver = client.primary.get_queue_receiver("orders")
    run(lambda: receiver.peek_messages())
    with in_thread(lambda: run(lambda: receiver.receive_messages(max_wait_time=50))) as waiting:
        began = time.monotonic()
        paired.api.close(client.secondary)
        with suppress(ServiceBusError, ValueError):  # what the SDK says when its link is closed during a call
            assert waiting() == []
        assert 4.9 <= time.monotonic() - began < 30.0
    with pytest.raises(PairFaulted):
        run(lambda: receiver.receive_messages(max_wait_time=1))


def test_clients_whose_sides_were_closed_in_time_are_left_alone(paired: PairedEmulator) -> None:  # C1
    client = paired.pair()
    for side in SIDES:
        paired.api.close(getattr(client, side))
    eventually(client.closing.is_set)
    client.primary.get_queue_sender("orders")  # it is the application's: it may open it again


# --- the embedded syphon ---


@pytest.mark.parametrize("side", SIDES)
def test_the_embedded_syphon_ends_with_the_pair_and_loses_nothing(paired: PairedEmulator, side: str) -> None:  # C1, C2
    client = paired.pair(enable_syphon=True)
    paired.outage(Outage.REFUSE)
    for number in range(20):
        send(client, str(number))
    paired.api.close(getattr(client, side))
    paired.outage(None)
    eventually(lambda: 5.0 in paired.clock.waits())
    paired.clock.advance(5)
    eventually(lambda: not client.syphon._thread.is_alive())
    assert client.closing.is_set()
    assert client.syphon.fault is not None
    assert paired.in_backlog() + paired.active("orders") == 20
    assert paired.in_backlog() == 20 - client.syphon.forwarded


def test_a_fault_that_the_syphon_finds_is_the_pairs(paired: PairedEmulator) -> None:  # C1
    refusal = Fault(Action.ERROR, Operation.ATTACH, condition="amqp:unauthorized-access")
    paired.fault(refusal, "contoso-dr")
    client = paired.pair(enable_syphon=True)
    eventually(lambda: client.state.secondary.status is NamespaceStatus.FAULTED)


# --- once for real ---


@pytest.mark.parametrize("side", SIDES)
def test_the_five_seconds_on_the_real_clock(paired: PairedEmulator, side: str) -> None:  # C1
    client = paired.pair(manual_clock=False)
    send(client)
    began = time.monotonic()
    paired.api.close(getattr(client, side))
    eventually(client.closing.is_set)
    assert time.monotonic() - began >= 5.0
    with pytest.raises(PairFaulted):
        send(client)


def test_a_send_in_flight_when_its_client_is_closed_ends_with_the_clear_error(paired: PairedEmulator) -> None:  # C1
    client = paired.pair(manual_clock=False)
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("x"))
    paired.outage(Outage.HANG)
    with in_thread(lambda: sender.send_messages(ServiceBusMessage("x"), timeout=20)) as stuck:
        eventually(lambda: sender._turn.locked())
        with in_thread(lambda: paired.api.close(client.primary)), pytest.raises(PairFaulted):
            stuck()
