"""Deferred messages in a backlog queue: the pump finds them by peeking, and moves them like all others (S2, X2)."""

from __future__ import annotations

from dataclasses import replace

from syphon.emulator import Action, Fault, Kind, Operation
from syphon.model.entity_path import PathPatterns
from syphon.model.message_filter import MessageFilter
from syphon.model.outcomes import Result
from syphon.servicebus import MessageState
from syphon.transfer.pump import Pump, PumpOptions
from tests.integration.transfer.conftest import BACKLOG, ManualTimeNamespaces, TwoNamespaces, aliased

OPTIONS = PumpOptions(quiet=0.5, lease=None)


def defer(namespaces: TwoNamespaces, *bodies_and_paths: tuple[str, str]) -> None:
    """Puts messages into the backlog, and defers them as an application does."""
    namespaces.put(*(aliased(body, path) for body, path in bodies_and_paths))
    with namespaces.client("contoso-dr").get_queue_receiver(BACKLOG) as receiver:
        found: list[object] = []
        while len(found) < len(bodies_and_paths):
            for message in receiver.receive_messages(100, max_wait_time=20):
                receiver.defer_message(message)
                found.append(message)


def states(namespaces: TwoNamespaces) -> list[int]:
    line = namespaces.secondary.message_queue(BACKLOG)
    return namespaces.emulator.call(lambda: [int(message.state) for message in line.peek(0, 10_000)])


def serve(namespaces: TwoNamespaces, options: PumpOptions = OPTIONS) -> tuple[Pump, list[Result]]:
    """Runs a pump that looks for deferred messages until its queue is quiet."""
    with namespaces.pump(options) as (pump, outcomes):
        pump.serve(BACKLOG, deferred=True)
        pump.run()
        return pump, [outcome.result for outcome in outcomes]


def test_deferred_messages_are_moved_with_the_active_ones(namespaces: TwoNamespaces) -> None:  # S2
    namespaces.queue("orders")
    defer(namespaces, *((f"deferred {number}", "orders") for number in range(150)))
    namespaces.put(aliased("active", "orders"))
    pump, _ = serve(namespaces)
    assert (pump.counters.received, pump.counters.forwarded, pump.counters.in_flight) == (151, 151, 0)
    assert len(namespaces.take("orders", 151)) == 151
    assert states(namespaces) == []


def test_a_pump_that_is_not_asked_to_does_not_look_for_them(namespaces: TwoNamespaces) -> None:
    defer(namespaces, ("a", "orders"))
    with namespaces.pump(OPTIONS) as (pump, _):
        pump.run()
    assert namespaces.emulator.call(lambda: namespaces.secondary.counters.of(BACKLOG, Kind.PEEK)) == 0
    assert states(namespaces) == [MessageState.DEFERRED]


def test_the_filter_leaves_the_other_deferred_messages(namespaces: TwoNamespaces) -> None:  # X2
    namespaces.queue("orders")
    defer(namespaces, ("a", "orders"), ("b", "billing"), ("c", ""))
    before = namespaces.received(BACKLOG)
    pump, _ = serve(namespaces, replace(OPTIONS, messages=MessageFilter(PathPatterns.of(["orders"]))))
    assert (pump.counters.forwarded, pump.counters.left) == (1, 0)
    assert namespaces.received(BACKLOG) == before + 1
    assert states(namespaces) == [MessageState.DEFERRED] * 2


def test_a_limit_is_kept_to_the_message(namespaces: TwoNamespaces) -> None:  # X2
    namespaces.queue("orders")
    defer(namespaces, *((str(number), "orders") for number in range(10)))
    namespaces.put(*(aliased("active", "orders") for _ in range(2)))
    pump, _ = serve(namespaces, replace(OPTIONS, limit=5))
    assert (pump.counters.received, pump.counters.forwarded) == (5, 5)
    assert len(states(namespaces)) == 7


def test_one_that_cannot_be_restored_is_dead_lettered(namespaces: TwoNamespaces) -> None:  # M4
    defer(namespaces, ("lost", ""), ("forbidden", "$management"))
    _, results = serve(namespaces)
    assert results == [Result.DEAD_LETTERED] * 2
    assert (namespaces.dead(BACKLOG), states(namespaces)) == (2, [])


def test_those_of_a_missing_destination_stay_deferred_and_one_shows_that_it_is_missing(
    namespaces: TwoNamespaces,
) -> None:  # S3, S7
    namespaces.queue("orders")
    defer(namespaces, *((str(number), path) for number in range(20) for path in ("gone", "orders")))
    before = namespaces.received(BACKLOG)
    pump, _ = serve(namespaces)
    assert (pump.counters.forwarded, pump.counters.left) == (20, 1)
    assert namespaces.received(BACKLOG) == before + 21
    assert states(namespaces) == [MessageState.DEFERRED] * 20
    assert namespaces.locked() == 0


def test_one_that_another_receiver_has_locked_does_not_keep_the_others(namespaces: TwoNamespaces) -> None:
    namespaces.queue("orders")
    defer(namespaces, *((str(number), "orders") for number in range(9)))
    with namespaces.client("contoso-dr").get_queue_receiver(BACKLOG) as receiver:
        receiver.receive_deferred_messages([4])
        pump, _ = serve(namespaces)
        assert pump.counters.forwarded == 8
    assert states(namespaces) == [MessageState.DEFERRED]


def test_what_was_not_accepted_when_the_pump_ended_is_still_deferred(namespaces: TwoNamespaces) -> None:  # S2
    """The destination does not answer: the pump stops, gives the messages back, and loses none."""
    namespaces.queue("orders")
    defer(namespaces, *((str(number), "orders") for number in range(5)))
    namespaces.fault(Fault(Action.HANG, Operation.SEND, entity="orders"))
    with namespaces.pump(replace(OPTIONS, grace=0.5)) as (pump, _):
        pump.serve(BACKLOG, deferred=True)
        for _ in pump.turns():
            if pump.counters.received:
                pump.stop()
    assert states(namespaces) == [MessageState.DEFERRED] * 5


def test_a_completion_that_was_lost_with_the_connection_is_repeated(namespaces: TwoNamespaces) -> None:  # S6, D10
    namespaces.queue("orders")
    defer(namespaces, ("a", "orders"))
    namespaces.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=1.0))
    with namespaces.pump(OPTIONS) as (pump, _):
        pump.serve(BACKLOG, deferred=True)
        fault: Fault | None = None
        for _ in pump.turns():
            peeks = namespaces.emulator.call(lambda: namespaces.secondary.counters.of(BACKLOG, Kind.PEEK))
            if pump.counters.received and peeks == 2 and fault is None:
                fault = namespaces.fault(Fault(Action.DROP, Operation.MANAGE, BACKLOG, times=1), "contoso-dr")
    assert fault is not None
    assert (fault.struck, pump.counters.forwarded) == (1, 1)
    assert states(namespaces) == []


def test_a_lock_is_renewed_while_the_destination_takes_its_time(manual: ManualTimeNamespaces) -> None:  # S6
    manual.queue("orders")
    defer(manual, ("a", "orders"))
    slow = manual.fault(Fault(Action.HANG, Operation.SEND, entity="orders"))
    with manual.pump(replace(OPTIONS, quiet=600.0)) as (pump, _):
        pump.serve(BACKLOG, deferred=True)
        turns = pump.turns()
        while not pump.counters.received:
            next(turns)
            manual.advance(0.1)
        for _ in range(50):
            manual.advance(1.0)
            next(turns)
        token = manual.locked()
        assert token == 1
        assert slow.struck == 1
