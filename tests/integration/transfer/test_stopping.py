"""How a pump ends: other receivers get the messages it did not forward at once, and it says why it ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syphon.amqp import data_section
from syphon.backlog import to_backlog
from syphon.emulator import Action, Fault, Operation
from syphon.model.errors import NotAuthorized
from syphon.servicebus.namespace import NamespaceStatus
from syphon.transfer.destinations import IN_FLIGHT_SHARE
from syphon.transfer.pump import Ended, Pump
from syphon.transfer.unsent import MOST_IN_BATCH
from tests.integration.transfer.conftest import BACKLOG, PATIENT, ManualTimeNamespaces, TwoNamespaces, aliased


def test_what_a_stopped_pump_did_not_forward_can_be_had_at_once(manual: ManualTimeNamespaces) -> None:  # C2
    manual.queue("orders")
    manual.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=2.0))
    manual.put(*(aliased(f"{i}", "orders") for i in range(1900)))
    with manual.pump(replace(PATIENT, window=1900, first_window=1900, grace=50.0)) as (pump, _):
        for _ in pump.turns():
            if pump.stopping:
                manual.advance(0.25)
            elif pump.counters.received > 1700:  # more than may be sent before the first answer
                pump.stop()
    assert manual.locked() == 0
    assert pump.counters.received == pump.counters.forwarded + pump.counters.left
    assert pump.counters.forwarded <= IN_FLIGHT_SHARE * 1900 + MOST_IN_BATCH, (
        "what was not sent yet is released, and not sent first"
    )
    assert manual.active("orders") == pump.counters.forwarded
    assert manual.active(BACKLOG, "contoso-dr") == 1900 - pump.counters.forwarded
    assert (pump.queues[BACKLOG].ended, pump.counters.possible_duplicates) == (Ended.STOPPED, 0)


def test_what_arrives_while_it_stops_is_released_too(namespaces: TwoNamespaces) -> None:  # C2
    namespaces.queue("orders")
    with namespaces.pump() as (pump, _):
        for _ in pump.turns():
            if namespaces.credit() > 0 and not pump.stopping:
                namespaces.put_raw(to_backlog(data_section(b"x"), "orders"))
                assert namespaces.locked() == 1
                pump.stop()  # the service has sent it, and the pump has not read it yet
    assert namespaces.locked() == 0
    assert namespaces.active(BACKLOG, "contoso-dr") == 1
    assert (pump.counters.received, pump.counters.left) == (1, 1)


def test_after_its_lease_nothing_stays_locked_and_it_says_that_there_is_more(namespaces: TwoNamespaces) -> None:
    namespaces.queue("orders")
    namespaces.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=0.2))
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(1000)))
    pump, _ = namespaces.run(replace(PATIENT, lease=1.5, window=100))
    assert pump.queues[BACKLOG].ended is Ended.LEASE
    assert namespaces.locked() == 0
    assert namespaces.active(BACKLOG, "contoso-dr") == 1000 - pump.counters.forwarded > 0


def test_at_its_limit_it_finishes_what_it_has_and_takes_no_more(namespaces: TwoNamespaces) -> None:
    namespaces.queue("orders")
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(300)))
    pump, _ = namespaces.run(replace(PATIENT, limit=120))
    assert (pump.counters.received, pump.counters.forwarded, pump.queues[BACKLOG].ended) == (120, 120, Ended.LIMIT)
    assert namespaces.locked() == 0


def test_a_quiet_queue_ends_it_and_there_is_no_more_to_do(manual: ManualTimeNamespaces) -> None:
    manual.queue("orders")
    manual.put(aliased("x", "orders"))
    with manual.pump() as (pump, outcomes):
        for _ in pump.turns():
            if pump.counters.forwarded == 1:
                manual.advance(PATIENT.quiet + 0.1)
    assert pump.queues[BACKLOG].ended is Ended.QUIET
    assert pump.counters.bytes_forwarded == outcomes[0].size > 0


def test_messages_of_a_throttled_destination_are_released_when_it_stops(namespaces: TwoNamespaces) -> None:  # D5, D26
    namespaces.put(aliased("x", "orders"))
    namespaces.queue("orders")
    namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", condition="com.microsoft:server-busy"))
    pump, _ = namespaces.run()
    assert pump.counters.left == 1
    assert namespaces.locked() == 0
    assert namespaces.active(BACKLOG, "contoso-dr") == 1


def test_what_was_sent_and_not_answered_when_it_ends_is_reported_as_a_possible_duplicate(
    namespaces: TwoNamespaces,
) -> None:  # D10
    namespaces.queue("orders")
    silent = namespaces.fault(Fault(Action.LOSE_REPLY, Operation.SEND, "orders", times=1))
    namespaces.put(aliased("x", "orders"))
    with namespaces.pump(replace(PATIENT, grace=0.5)) as (pump, outcomes):
        for _ in pump.turns():
            if silent.struck:
                pump.stop()
    assert namespaces.active("orders") == namespaces.active(BACKLOG, "contoso-dr") == 1
    assert (pump.counters.left, pump.counters.possible_duplicates) == (1, 1)
    assert outcomes[0].possible_duplicate


def test_without_a_primary_it_releases_what_it_has_and_reports_the_fault(namespaces: TwoNamespaces) -> None:  # C2, C3
    namespaces.queue("orders")
    namespaces.put(*(aliased(f"{i}", "orders") for i in range(50)))
    namespaces.fault(Fault(Action.DELAY, Operation.ATTACH, "orders", seconds=60))  # nothing is sent
    with namespaces.pump() as (pump, _):
        turns = pump.turns()
        while pump.counters.received < 50:
            next(turns)
        pump._sides.primary.fault(NotAuthorized("contoso: the key was refused"))
        with pytest.raises(NotAuthorized, match="the key was refused"):
            list(turns)
    assert (pump.counters.received, pump.counters.left) == (50, 50)
    assert namespaces.locked() == 0


def test_a_key_that_the_secondary_does_not_take_any_more_faults_it(namespaces: TwoNamespaces) -> None:  # C3
    secondary, primary = namespaces.namespace("contoso-dr", BACKLOG), namespaces.namespace("contoso", "")
    namespaces.wait(lambda: secondary.connection() is not None and primary.connection() is not None)
    namespaces.emulator.call(
        namespaces.secondary.access.policies.clear
    )  # the key is rotated: the next token is refused
    pump = Pump(secondary, primary, lambda outcome: None, PATIENT)  # noqa: ARG005
    pump.serve(BACKLOG)
    with pytest.raises(NotAuthorized, match=f"'{BACKLOG}' was refused"):
        pump.run()
    assert secondary.status is NamespaceStatus.FAULTED
    secondary.close()
    primary.close()
