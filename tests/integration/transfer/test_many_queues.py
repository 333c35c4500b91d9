"""One pump serves many queues: fairly, with counters of their own, and each until its own end (D15)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from syphon.emulator import Action, Fault, Kind, Operation, QueueDescription
from syphon.model.entity_path import EntityPath, PathPatterns
from syphon.model.errors import DestinationMissing, SyphonError
from syphon.model.message_filter import MessageFilter
from syphon.model.outcomes import Outcome, Result
from syphon.transfer.pump import PERMANENT, Ended, Pump, PumpOptions
from tests.integration.transfer.conftest import BACKLOG, PATIENT, ManualTimeNamespaces, TwoNamespaces, aliased

SECOND, THIRD = "contoso/x-servicebus-transfer/1", "contoso/x-servicebus-transfer/2"
WAITING = replace(PATIENT, permanent=PERMANENT - {DestinationMissing})
"""A missing destination backs off."""


def create(namespaces: TwoNamespaces, *queues: str) -> None:
    for queue in queues:
        description = QueueDescription(queue, max_delivery_count=2**31 - 1)
        namespaces.emulator.call(lambda found=description: namespaces.secondary.create_queue(found))  # type: ignore[misc]


@contextmanager
def serving(
    namespaces: TwoNamespaces, *queues: str, options: PumpOptions = PATIENT
) -> Iterator[tuple[Pump, list[Outcome]]]:
    """A pump that serves the first backlog queue and these."""
    create(namespaces, *queues)
    with namespaces.pump(options) as (pump, outcomes):
        for queue in queues:
            pump.serve(queue)
        yield pump, outcomes


def test_the_messages_of_each_queue_arrive_and_are_counted_for_it(namespaces: TwoNamespaces) -> None:  # S2, D15
    namespaces.queue("orders")
    with serving(namespaces, SECOND, THIRD) as (pump, outcomes):
        for number, queue in enumerate((BACKLOG, SECOND, THIRD), start=1):
            namespaces.put(*(aliased("x", "orders") for _ in range(10 * number)), queue=queue)
        namespaces.finish(pump)
    for number, queue in enumerate((BACKLOG, SECOND, THIRD), start=1):
        counters = pump.queues[queue].counters
        assert (counters.received, counters.forwarded, counters.in_flight) == (10 * number, 10 * number, 0)
        assert sum(outcome.queue == queue for outcome in outcomes) == 10 * number
        assert namespaces.active(queue, "contoso-dr") == 0
    assert (pump.counters.forwarded, namespaces.active("orders")) == (60, 60)


def test_results_settle_on_the_queue_that_a_message_came_from(namespaces: TwoNamespaces) -> None:  # S2, S4
    namespaces.queue("orders")
    giving_up = replace(PATIENT, permanent=PERMANENT | {DestinationMissing})
    with serving(namespaces, SECOND, options=giving_up) as (pump, _):
        namespaces.put(aliased("a", "orders"), aliased("b", "gone"))
        namespaces.put(aliased("c", "orders"), aliased("d", "gone"), aliased("e", "gone"), queue=SECOND)
        namespaces.finish(pump)
    assert [(pump.queues[queue].counters.moved, namespaces.dead(queue)) for queue in (BACKLOG, SECOND)] == [
        (2, 1),
        (3, 2),
    ]


def test_a_long_queue_does_not_keep_one_message_of_another_waiting(namespaces: TwoNamespaces) -> None:  # S10
    namespaces.queue("orders")
    namespaces.put(*(aliased("x", "orders") for _ in range(5000)))
    with serving(namespaces, SECOND, options=replace(PATIENT, window=400)) as (pump, _):
        turns = pump.turns()
        while pump.queues[BACKLOG].counters.in_flight < 200:
            next(turns)
        namespaces.put(aliased("alone", "orders"), queue=SECOND)
        before, waited = pump.queues[BACKLOG].counters.received, 0
        while not pump.queues[SECOND].counters.forwarded:
            next(turns)
            waited += 1
        assert pump.queues[BACKLOG].counters.received - before < 4000, f"it waited {waited} turns"
        pump.stop()
        list(turns)


def test_a_silent_destination_of_one_queue_leaves_the_others_their_room(manual: ManualTimeNamespaces) -> None:  # S10
    manual.queue("orders")
    manual.queue("silent")
    manual.fault(Fault(Action.HANG, Operation.SEND, "silent"))
    manual.put(*(aliased("x", "silent") for _ in range(500)))
    options = replace(PATIENT, window=200, grace=0.1)
    with serving(manual, SECOND, options=options) as (pump, _):
        turns = pump.turns()
        while pump.counters.in_flight < 150:
            next(turns)
        manual.put(*(aliased("x", "orders") for _ in range(300)), queue=SECOND)
        while pump.queues[SECOND].counters.forwarded < 300:
            next(turns)
        assert pump.window_is_full
        pump.stop()
        manual.advance(1)
        for _ in turns:
            manual.advance(1)


def test_the_limit_holds_for_all_queues_together(manual: ManualTimeNamespaces) -> None:  # D7
    manual.queue("orders")
    manual.put(*(aliased("x", "orders") for _ in range(300)))
    with serving(manual, SECOND, THIRD, options=replace(PATIENT, limit=100)) as (pump, _):
        manual.put(*(aliased("x", "orders") for _ in range(10)), queue=SECOND)
        for _ in pump.turns():
            idle = pump.queues[THIRD].ended is None and pump.queues[BACKLOG].counters.forwarded >= 33
            if idle and not pump.counters.in_flight:
                manual.advance(PATIENT.quiet + 1)  # the empty queue returns its unused credit
    assert (pump.counters.received, pump.counters.forwarded) == (100, 100)
    assert pump.queues[SECOND].counters.forwarded == 10
    assert pump.queues[BACKLOG].ended is Ended.LIMIT


def test_a_queue_can_be_served_between_turns_and_again_when_it_was_quiet(manual: ManualTimeNamespaces) -> None:  # D15
    manual.queue("orders")
    create(manual, SECOND)
    with manual.pump(replace(PATIENT, quiet=3.0, linger=30.0, lease=None)) as (pump, _):
        turns = pump.turns()
        while not (manual.links() and pump.is_primary_connected and manual.credit()):
            next(turns)
        for queue in (SECOND, BACKLOG, BACKLOG, BACKLOG, BACKLOG):  # no pause before a link, however often
            manual.advance(4.0)
            while any(served.is_served for served in pump.queues.values()):
                next(turns)
            assert {served.ended for served in pump.queues.values()} == {Ended.QUIET}
            assert pump.accepting
            assert manual.links() == 0, "the link of a queue that is not served is closed"
            manual.put(aliased("x", "orders"), queue=queue)
            before = pump.counters.forwarded
            pump.serve(queue)
            while pump.counters.forwarded == before:
                next(turns)
        manual.advance(4.0)
        while pump.queues[BACKLOG].is_served:
            next(turns)
        manual.advance(30.1)
        assert list(turns) == []
    assert not pump.accepting
    assert pump.counters.forwarded == 5


def test_a_queue_can_be_released_while_the_others_are_served(manual: ManualTimeNamespaces) -> None:  # D15, C2
    manual.queue("orders")
    late = manual.fault(Fault(Action.DELAY, Operation.ATTACH, "orders", seconds=5))
    manual.put(*(aliased("x", "orders") for _ in range(20)))
    with serving(manual, SECOND) as (pump, outcomes):
        manual.put(aliased("x", "orders"), queue=SECOND)
        turns = pump.turns()
        while pump.counters.received < 21 or not late.struck:  # from then on the delay counts
            next(turns)
        pump.release(BACKLOG)
        while pump.queues[BACKLOG].is_served:
            next(turns)
        assert (manual.locked(), manual.links()) == (0, 0)
        assert pump.queues[BACKLOG].ended is Ended.STOPPED
        assert pump.queues[SECOND].is_served
        manual.advance(5)
        while not pump.queues[SECOND].counters.forwarded:
            next(turns)
        pump.stop()
        list(turns)
    assert {outcome.result for outcome in outcomes if outcome.queue == BACKLOG} == {Result.LEFT}


def test_an_error_of_one_queue_ends_the_service_of_that_queue_alone(namespaces: TwoNamespaces) -> None:  # S10, S4
    namespaces.queue("orders")
    with serving(namespaces, SECOND) as (pump, _):
        turns = pump.turns()
        while not (namespaces.credit() and namespaces.credit(SECOND)):
            next(turns)
        namespaces.emulator.call(lambda: namespaces.secondary.delete(SECOND))
        while pump.queues[SECOND].is_served:
            next(turns)
        assert isinstance(pump.queues[SECOND].error, DestinationMissing)
        assert pump.queues[BACKLOG].error is None
        namespaces.put(aliased("x", "orders"))
        while not pump.counters.forwarded:
            next(turns)
        pump.stop()
        list(turns)


def test_if_every_queue_ended_with_an_error_the_pump_raises_it(namespaces: TwoNamespaces) -> None:  # S4
    with namespaces.pump(queue="gone") as (pump, _):
        pump.serve("gone, too")
        with pytest.raises(SyphonError, match="gone"):
            pump.run()
    assert all(isinstance(queue.error, SyphonError) for queue in pump.queues.values())


def test_the_lease_is_over_after_so_many_outcomes(namespaces: TwoNamespaces) -> None:  # D2
    namespaces.queue("orders")
    namespaces.put(*(aliased("x", "orders") for _ in range(500)))
    with serving(namespaces, SECOND, options=replace(PATIENT, window=50, most_outcomes=100)) as (pump, outcomes):
        pump.run()
    assert 100 <= len(outcomes) <= 200
    assert {queue.ended for queue in pump.queues.values()} == {Ended.LEASE}
    assert not pump.accepting
    assert namespaces.locked() == 0


# --- what a dead destination costs -----------------------------------------------------------------------------------


def received(namespaces: TwoNamespaces) -> int:
    return namespaces.emulator.call(lambda: namespaces.secondary.counters.of(BACKLOG, Kind.RECEIVE))


def test_messages_for_a_missing_destination_are_received_once_and_those_behind_them_arrive(  # S3, S7
    namespaces: TwoNamespaces,
) -> None:
    namespaces.queue("orders")
    namespaces.put(*(aliased("x", "later") for _ in range(500)), aliased("x", "orders"))
    with namespaces.pump(WAITING) as (pump, _):
        namespaces.finish(pump)
    assert (pump.counters.received, pump.counters.forwarded, pump.counters.left) == (501, 1, 500)
    assert (received(namespaces), namespaces.locked(), namespaces.deferred()) == (501, 0, 500)


def test_messages_for_a_paused_destination_are_deferred_and_follow_when_the_pause_ends(
    namespaces: TwoNamespaces,
) -> None:  # S7, D16
    namespaces.queue("orders")
    namespaces.put(*(aliased("x", "orders") for _ in range(50)))
    with namespaces.pump() as (pump, _):
        pump.pause(frozenset({EntityPath.of("orders")}))
        for _ in pump.turns():
            if namespaces.deferred() == 50:
                pump.pause(frozenset())
            if pump.counters.forwarded == 50:
                pump.stop()
    assert (pump.counters.received, pump.counters.forwarded) == (100, 50)


def test_messages_outside_the_filter_do_not_count_as_left_by_their_destination(namespaces: TwoNamespaces) -> None:  # X1
    namespaces.queue("orders")
    namespaces.put(*(aliased("x", "other") for _ in range(30)), aliased("x", "orders"))
    options = replace(PATIENT, messages=MessageFilter(destinations=PathPatterns.of(["orders"])))
    with namespaces.pump(options) as (pump, _):
        namespaces.finish(pump)
    assert (pump.counters.forwarded, pump.counters.outside) == (1, 30)
    assert pump.queues[BACKLOG].ended is Ended.STOPPED


def test_a_queue_starts_slowly_and_gets_its_share_when_messages_are_accepted(
    manual: ManualTimeNamespaces,
) -> None:  # S7
    manual.queue("orders")
    late = manual.fault(Fault(Action.DELAY, Operation.ATTACH, "orders", seconds=5, times=1))
    manual.put(*(aliased("x", "orders") for _ in range(3000)))
    with manual.pump(replace(PATIENT, first_window=20)) as (pump, _):
        turns = pump.turns()
        while not late.struck:
            next(turns)
        for _ in range(20):
            next(turns)
        assert (pump.counters.received, manual.credit()) == (20, 0)
        manual.advance(5)
        while pump.counters.forwarded < 2000:
            next(turns)
        pump.stop()
        list(turns)


def test_a_destination_that_is_back_is_found_without_a_message_and_the_deferred_ones_follow(  # D16
    manual: ManualTimeNamespaces,
) -> None:
    manual.put(*(aliased("x", "later") for _ in range(50)))
    with manual.pump(replace(WAITING, quiet=10_000.0, lease=None)) as (pump, _):
        turns = pump.turns()
        while manual.deferred() < 50:
            next(turns)
        for _ in range(5):
            manual.advance(121)  # the destination is retried
            for _ in range(50):
                next(turns)
        assert received(manual) == 50
        manual.queue("later")
        manual.advance(121)
        while pump.counters.forwarded < 50:
            manual.advance(0.1)
            next(turns)
        pump.stop()
        list(turns)
    assert received(manual) == 100


def test_a_queue_that_is_handed_over_after_the_lease_is_not_received_from(manual: ManualTimeNamespaces) -> None:  # D15
    create(manual, SECOND)
    manual.put(aliased("x", "orders"), queue=SECOND)
    with manual.pump() as (pump, _):
        turns = pump.turns()
        while not manual.credit():
            next(turns)
        manual.advance(61)
        assert not pump.accepting
        pump.serve(SECOND)
        list(turns)
    assert {queue.ended for queue in pump.queues.values()} == {Ended.LEASE}
    assert pump.counters.received == 0
