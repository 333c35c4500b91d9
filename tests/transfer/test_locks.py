"""Locks: as long as the queue has them, renewed for all that is under way, and used to the last when completing."""

from __future__ import annotations

from dataclasses import replace

from syphon.emulator import Action, Fault, Operation, QueueDescription
from syphon.transfer.outcomes import Result

from .conftest import BACKLOG, QUICK, Bench, aliased


def short_locks(bench: Bench) -> str:
    """A backlog queue that somebody made with locks of five seconds: it is used as it is (P3)."""
    queue = QueueDescription("contoso/x-servicebus-transfer/1", lock_duration=5_000)
    bench.emulator.call(lambda: bench.secondary.create_queue(queue))
    return queue.name


def test_a_message_whose_lock_could_not_be_renewed_in_time_is_not_sent(bench: Bench) -> None:  # S6
    bench.queue("orders")
    short = short_locks(bench)
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(20)), queue=short)
    bench.fault(Fault(Action.DELAY, Operation.CONNECT, seconds=6))
    bench.fault(Fault(Action.ERROR, Operation.MANAGE, condition="com.microsoft:message-lock-lost"), "contoso-dr")
    with bench.pump(replace(QUICK, quiet=20.0), short) as (pump, outcomes):
        for _ in pump.turns():
            if pump.tally.forwarded == 20:
                pump.stop()
    left = [outcome for outcome in outcomes if outcome.result is Result.LEFT]
    assert len(left) == 20
    assert all("about to run out" in outcome.reason for outcome in left)
    assert (pump.tally.forwarded, pump.tally.possible_duplicates) == (20, 0)
    assert bench.active("orders") == 20


def test_a_lock_that_was_renewed_says_nothing_of_one_that_was_not(bench: Bench) -> None:  # S6
    bench.queue("orders")
    short = short_locks(bench)
    bench.put(*(aliased(f"{i}", "orders", message_id=f"{i}") for i in range(2)), queue=short)
    bench.fault(Fault(Action.DELAY, Operation.CONNECT, seconds=6))
    line = bench.secondary.line(short)
    lost = False
    with bench.pump(replace(QUICK, quiet=2.0), short) as (pump, outcomes):
        for _ in pump.turns():
            if pump.tally.in_hand == 2 and not lost:
                lost = True
                bench.emulator.call(lambda: line.lose_lock(line.peek(0, 2)[1].lock_token))  # type: ignore[arg-type]
    (left,) = (outcome for outcome in outcomes if outcome.result is Result.LEFT)
    assert (left.message_id, "about to run out" in left.reason) == ("1", True)
    assert (pump.tally.forwarded, pump.tally.possible_duplicates) == (2, 0)
    assert bench.active("orders") == 2


def test_the_locks_of_all_that_is_under_way_are_renewed_however_short_they_are(bench: Bench) -> None:  # S6, P3
    bench.queue("slow")
    short = short_locks(bench)
    bench.put(*(aliased(f"{i}", "slow") for i in range(1400)), queue=short)
    bench.fault(Fault(Action.DELAY, Operation.SEND, "slow", seconds=8))
    with bench.pump(queue=short) as (pump, _):
        pump.run()
    assert (pump.tally.forwarded, pump.tally.possible_duplicates) == (1400, 0)
    assert (bench.active(short, "contoso-dr"), bench.active("slow")) == (0, 1400)


def test_a_completion_that_a_busy_service_refuses_is_asked_for_again(bench: Bench) -> None:  # S5, S6
    bench.queue("orders")
    condition = "amqp:internal-error"  # as server-busy, but a second is enough to wait
    bench.fault(Fault(Action.ERROR, Operation.SETTLE, BACKLOG, condition=condition, times=3), "contoso-dr")
    bench.fault(Fault(Action.ERROR, Operation.MANAGE, f"{BACKLOG}*", condition=condition, times=1), "contoso-dr")
    bench.put(*(aliased(f"{i}", "orders") for i in range(10)))
    pump, outcomes = bench.run(replace(QUICK, quiet=1.0))
    assert (pump.tally.forwarded, pump.tally.possible_duplicates) == (10, 0)
    assert {outcome.result for outcome in outcomes} == {Result.FORWARDED}
    assert bench.active(BACKLOG, "contoso-dr") == 0


def test_one_lost_lock_does_not_keep_the_others_from_being_completed(bench: Bench) -> None:  # D10
    """What was completed when the connection went, and not confirmed, is asked for together with what was not."""
    bench.queue("orders")
    bench.put(*(aliased(f"{i}", "orders") for i in range(60)))
    slow = bench.fault(Fault(Action.DELAY, Operation.SEND, "orders", seconds=1.0))
    with bench.running(replace(QUICK, quiet=2.0)) as (pump, _, thread):
        bench.wait(lambda: slow.struck > 0)
        bench.emulator.call(lambda: lose_link_and_one_lock(bench))
        thread.join(30)
    assert (pump.tally.forwarded, pump.tally.possible_duplicates) == (61, 1)
    assert bench.active("orders") == 61
    assert bench.active(BACKLOG, "contoso-dr") == 0


def lose_link_and_one_lock(bench: Bench) -> None:
    line = bench.secondary.line(BACKLOG)
    for link in list(bench.secondary.entity(BACKLOG).links):
        link.end("amqp:link:detach-forced", "for a test")  # type: ignore[attr-defined]
    token = line.peek(0, 1)[0].lock_token
    assert token is not None
    line.lose_lock(token)
