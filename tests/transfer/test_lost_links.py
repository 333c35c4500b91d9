"""A link that is lost in the middle: what has arrived is completed in another way, and is no duplicate."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syphon.emulator import Action, Fault, Operation

from .conftest import BACKLOG, QUICK, Bench, aliased


def test_what_had_arrived_when_its_link_was_lost_is_completed_over_the_management_node(bench: Bench) -> None:  # D10
    bench.queue("orders")
    slow = bench.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=1.0))
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(50)))
    with bench.running(replace(QUICK, quiet=2.0)) as (pump, outcomes, thread):
        bench.wait(lambda: slow.struck > 0)
        detach(bench)
        thread.join(30)
    assert (pump.tally.forwarded, pump.tally.possible_duplicates) == (50, 0)
    assert {outcome.result for outcome in outcomes} == {"forwarded"}
    assert bench.active(BACKLOG, "contoso-dr") == 0
    assert bench.active("orders") == 50


def test_a_completion_that_was_never_confirmed_is_a_possible_duplicate(bench: Bench) -> None:  # D10
    bench.queue("orders")
    bench.fault(Fault(Action.LOSE_REPLY_AND_DROP, Operation.SETTLE, BACKLOG, times=1), "contoso-dr")
    bench.put(aliased("x", "orders", message_id="x"))
    pump, outcomes = bench.run(replace(QUICK, quiet=2.0))
    assert (pump.tally.forwarded, pump.tally.possible_duplicates) == (1, 1)
    assert outcomes[0].possible_duplicate
    assert bench.active(BACKLOG, "contoso-dr") == 0


@pytest.mark.parametrize("operation", [Operation.ATTACH, Operation.RECEIVE])
def test_a_link_that_breaks_again_and_again_is_not_opened_without_a_pause(  # S9
    bench: Bench, operation: Operation
) -> None:
    bench.put(aliased("x", "orders"))
    broken = bench.fault(Fault(Action.DETACH, operation, BACKLOG), "contoso-dr")
    pump, _ = bench.run(replace(QUICK, lease=2.0))
    assert 1 <= broken.struck <= 3  # at once, and after a second
    assert pump.tally.received == 0


def test_a_queue_that_is_busy_is_left_alone_before_it_is_received_from_again(bench: Bench) -> None:  # S5
    bench.queue("orders")
    busy = Fault(Action.DETACH, Operation.RECEIVE, BACKLOG, condition="com.microsoft:server-busy")
    bench.fault(busy, "contoso-dr")
    bench.put(aliased("x", "orders"))
    pump, _ = bench.run(replace(QUICK, lease=2.0))
    assert busy.struck == 1
    assert pump.tally.received == 0
    assert bench.active(BACKLOG, "contoso-dr") == 1


def detach(bench: Bench) -> None:
    """The service detaches who receives from the backlog queue."""

    def end() -> None:
        for link in list(bench.secondary.entity(BACKLOG).links):
            link.end("amqp:link:detach-forced", "for a test")  # type: ignore[attr-defined]

    bench.emulator.call(end)


def test_a_link_that_ends_for_a_reason_nobody_knows_is_opened_again(bench: Bench) -> None:  # S4
    """The service has said nothing about a message: none goes to the dead letters for it."""
    bench.queue("orders")
    strange = Fault(Action.DETACH, Operation.SEND, "orders", condition="com.microsoft:something-new", times=1)
    bench.fault(strange)
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(20)))
    pump, _ = bench.run(replace(QUICK, quiet=2.0))
    assert strange.struck == 1
    assert (pump.tally.forwarded, pump.tally.dead_lettered) == (20, 0)


def test_an_entity_that_lets_nobody_send_has_its_messages_dead_lettered(bench: Bench) -> None:  # S4
    bench.queue("orders")
    bench.fault(Fault(Action.DETACH, Operation.ATTACH, "orders", condition="amqp:not-allowed"))
    bench.put(aliased("x", "orders"))
    pump, outcomes = bench.run(replace(QUICK, quiet=2.0))
    assert (pump.tally.forwarded, pump.tally.dead_lettered) == (0, 1)
    assert "amqp:not-allowed" in str(outcomes[0].reason)
