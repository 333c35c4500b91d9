"""What the numbers of a status mean: pure, from the pairs of one look."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from syphon.status.diagnosis import outlook, problems
from syphon.status.snapshot import (
    BacklogQueueState,
    CanaryStatus,
    DestinationState,
    DestinationStatus,
    MessageFlow,
    PairStatus,
    QueueStatus,
    Severity,
    SideState,
    SideStatus,
    SparkStatus,
    StatusTotals,
    WorkerState,
)
from syphon.worker import SparkState

NOW = datetime(2026, 11, 17, 12, 0, tzinfo=UTC)
NOTHING = StatusTotals(**dict.fromkeys(StatusTotals.model_fields, 0))


def side(connected: bool = True, state: SideState = SideState.OPENED, reason: str | None = None) -> SideStatus:
    since = NOW - timedelta(minutes=5, seconds=10)
    return SideStatus(host="contoso.example", state=state, connected=connected, reason=reason, since=since)


def queue(index: int = 0, **more: Any) -> QueueStatus:
    found: dict[str, Any] = {
        "name": f"contoso/x-servicebus-transfer/{index}",
        "state": BacklogQueueState.LISTENING,
        "reason": None,
        "slots": 0,
        "in_flight": 0,
        "per_second": 0.0,
        "left": None,
        "dead_letters": None,
        "oldest": None,
        "totals": NOTHING,
    }
    return QueueStatus(**found | more)


def destination(path: str, state: DestinationState, left: int = 0, error: str | None = None) -> DestinationStatus:
    return DestinationStatus(
        path=path,
        state=state,
        reason="it is so",
        error=error,
        next_attempt=None,
        since=NOW - timedelta(seconds=42),
        forwarded=0,
        dead_lettered=0,
        left=left,
    )


def pair(**more: Any) -> PairStatus:
    found: dict[str, Any] = {
        "name": "contoso",
        "primary": side(),
        "secondary": side(),
        "paused": False,
        "rate_limit": None,
        "per_second": 0.0,
        "dead_lettered_per_second": 0.0,
        "last_success": None,
        "totals": NOTHING,
        "queues": [queue()],
        "destinations": [],
    }
    return PairStatus(**found | more)


FULL = destination("orders", DestinationState.BACKING_OFF, left=7_220, error="DestinationFull")

REFUSED, OPEN = destination("billing", DestinationState.UNKNOWN), destination("orders", DestinationState.AVAILABLE)


@pytest.mark.parametrize(
    ("pairs", "flow"),
    [
        ([pair()], MessageFlow.IDLE),
        ([pair(per_second=3.0)], MessageFlow.FLOWING),
        ([pair(queues=[queue(left=5)])], MessageFlow.FLOWING),
        ([pair(primary=side(False))], MessageFlow.BLOCKED),
        ([pair(secondary=side(False), per_second=3.0)], MessageFlow.BLOCKED),
        ([pair(primary=side(False, SideState.STARTING))], MessageFlow.STARTING),
        ([pair(per_second=6.0, queues=[queue(left=7_942)], destinations=[FULL])], MessageFlow.PARTLY_BLOCKED),
        ([pair(queues=[queue(left=7_220)], destinations=[FULL])], MessageFlow.BLOCKED),
        ([pair(queues=[queue(state=BacklogQueueState.TROUBLED), queue(1)])], MessageFlow.PARTLY_BLOCKED),
        ([pair(paused=True, primary=side(False))], MessageFlow.PAUSED),
        ([pair(), pair(name="other", primary=side(False))], MessageFlow.PARTLY_BLOCKED),
        ([pair(), pair(name="other", per_second=1.0)], MessageFlow.FLOWING),
        # A rejecting destination does not block: its messages leave the backlog.
        ([pair(destinations=[destination("gone", DestinationState.REJECTING)])], MessageFlow.IDLE),
        # While messages go to the dead letters, nothing looks as if all were well.
        (
            [pair(dead_lettered_per_second=6.0, queues=[queue(in_flight=9)], destinations=[REFUSED])],
            MessageFlow.BLOCKED,
        ),
        ([pair(dead_lettered_per_second=6.0, destinations=[REFUSED, OPEN])], MessageFlow.PARTLY_BLOCKED),
        ([pair(dead_lettered_per_second=0.1, per_second=500.0)], MessageFlow.PARTLY_BLOCKED),
        ([pair(dead_lettered_per_second=0.1)], MessageFlow.PARTLY_BLOCKED),
    ],
)
def test_the_flow_says_whether_messages_reach_their_destinations(
    pairs: list[PairStatus], flow: MessageFlow
) -> None:  # X7
    assert outlook(WorkerState.WORKING, pairs, NOW).flow is flow


def test_a_worker_that_starts_or_stops_says_so_whatever_else_is_wrong() -> None:
    pairs = [pair(primary=side(False))]
    assert outlook(WorkerState.STARTING, pairs, NOW).flow is MessageFlow.STARTING
    assert outlook(WorkerState.STOPPING, pairs, NOW).flow is MessageFlow.STOPPING


def test_the_time_to_go_is_of_the_messages_that_move_and_the_stuck_ones_are_named() -> None:  # X7
    found = outlook(WorkerState.WORKING, [pair(per_second=6.0, queues=[queue(left=7_942)], destinations=[FULL])], NOW)
    assert (found.left, found.stuck, found.seconds) == (7_942, 7_220, round(722 / 6, 1))


def test_with_several_pairs_the_slowest_counts_and_one_that_was_not_counted_forbids_a_guess() -> None:  # X7
    slow = pair(per_second=1.0, queues=[queue(left=10_000)])
    fast = pair(name="other", per_second=1_000.0, queues=[queue(left=100)])
    assert outlook(WorkerState.WORKING, [slow, fast], NOW).seconds == 10_000
    uncounted = pair(name="other", per_second=5.0, queues=[queue()])
    assert outlook(WorkerState.WORKING, [fast, uncounted], NOW).seconds is None
    assert outlook(WorkerState.WORKING, [fast, pair(name="idle")], NOW).seconds == 0.1


@pytest.mark.parametrize(
    "stopped",
    [
        pair(queues=[queue(left=100)]),  # nothing moves: any time would be a guess
        pair(queues=[queue(left=0)], per_second=5.0),
        pair(queues=[queue()], per_second=5.0),
        pair(queues=[queue(left=100)], per_second=5.0, primary=side(False)),
    ],
)
def test_no_time_is_predicted_without_a_reason(stopped: PairStatus) -> None:  # X7
    assert outlook(WorkerState.WORKING, [stopped], NOW).seconds is None


def test_in_an_outage_all_that_is_left_is_stuck() -> None:
    found = outlook(WorkerState.WORKING, [pair(primary=side(False), queues=[queue(left=60), queue(1, left=40)])], NOW)
    assert (found.left, found.stuck) == (100, 100)


def test_what_was_not_counted_is_not_called_zero() -> None:  # X7
    found = outlook(WorkerState.WORKING, [pair()], NOW)
    assert (found.left, found.dead_letters) == (None, None)
    counted = outlook(WorkerState.WORKING, [pair(queues=[queue(), queue(1, left=0, dead_letters=3)])], NOW)
    assert (counted.left, counted.dead_letters) == (0, 3)


def test_the_worst_problem_comes_first_and_each_has_a_remedy() -> None:
    paused = destination("held", DestinationState.PAUSED, left=1)
    away = pair(
        primary=side(False, reason="connection refused"),
        queues=[queue(dead_letters=2, held_sessions=3), queue(1, state=BacklogQueueState.PAUSED)],
        destinations=[paused, FULL, destination("gone", DestinationState.REJECTING)],
    )
    found = problems([away], "disk full", NOW)
    assert [problem.severity for problem in found] == sorted(
        (problem.severity for problem in found), key=list(Severity).index
    )
    assert all(problem.remedy for problem in found)
    texts = [problem.text for problem in found]
    assert texts[0] == "contoso: the primary contoso.example has been unreachable for 5 min (connection refused)"
    assert not any("orders" in text for text in texts)  # its last answer is old news: the primary is unreachable
    assert "gone rejects every message: it is so. They go to the dead letters." in texts
    assert "held is paused by the operator. At least 1 message is waiting." in texts
    assert "contoso has 2 dead letters." in texts
    assert any("3 sessions of backlog queue contoso/x-servicebus-transfer/0 wait for" in text for text in texts)
    assert "Backlog queue contoso/x-servicebus-transfer/1 is paused by the operator." in texts
    assert "The ledger is not complete: disk full" in texts


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("DestinationMissing", "--give-up missing"),
        ("DestinationDisabled", "--give-up disabled"),
        ("DestinationFull", "raise its maximum size"),
        ("DestinationSilent", "retries automatically"),
    ],
)
def test_the_remedy_fits_the_error_of_a_destination(error: str, words: str) -> None:  # S4
    found = problems([pair(destinations=[destination("orders", DestinationState.BACKING_OFF, 1, error)])], None, NOW)
    assert words in found[0].remedy


@pytest.mark.parametrize(("error", "option"), [("DestinationMissing", "missing"), ("DestinationDisabled", "disabled")])
def test_a_command_to_give_up_names_this_destination_alone(error: str, option: str) -> None:
    odd = destination("tyre kits; rm", DestinationState.BACKING_OFF, 1, error)
    (problem,) = problems([pair(destinations=[odd])], None, NOW)
    assert f"syphon drain --give-up {option} --destination 'tyre kits; rm' -c FILE" in problem.remedy
    any_of_them = destination("*", DestinationState.BACKING_OFF, 1, error)
    (problem,) = problems([pair(destinations=[any_of_them])], None, NOW)
    assert "--give-up" not in problem.remedy


def test_many_missing_destinations_are_one_problem_and_so_are_queues_with_one_cause() -> None:
    gone = [destination(f"d{n}", DestinationState.BACKING_OFF, 2, "DestinationMissing") for n in range(7)]
    (missing,) = problems([pair(destinations=gone)], None, NOW)
    assert missing.text.startswith("7 destinations do not exist on the primary contoso.example: 'd0', 'd1'")
    assert "and 2 more. At least 14 messages are waiting for them." in missing.text
    queues = [queue(n, state=BacklogQueueState.TROUBLED, reason="no Listen right") for n in range(3)]
    (troubled,) = problems([pair(queues=queues)], None, NOW)
    assert troubled.text == "Backlog queue contoso/x-servicebus-transfer/0 and 2 more are not served: no Listen right"


def test_a_worker_that_starts_or_has_nothing_to_do_has_no_problem() -> None:
    assert problems([pair()], None, NOW) == []
    starting = side(False, SideState.STARTING, "starting: the worker is not up yet")
    assert problems([pair(primary=starting, secondary=starting)], None, NOW) == []


@pytest.mark.parametrize(
    ("pairs", "headline"),
    [
        ([pair()], "Everything is connected, and no message is waiting."),
        (
            [
                pair(
                    primary=side(False),
                    queues=[
                        queue(left=79_000, arriving_per_second=55.0, oldest=NOW - timedelta(minutes=28, seconds=5)),
                        queue(1, left=427),
                    ],
                )
            ],
            "The primary has been unreachable for 5 min. "
            "79,427 messages are safe in the backlog, +55/s, oldest 28 min. Nothing to do.",
        ),
        (
            [pair(), pair(name="other", secondary=side(False))],
            "The secondary of other has been unreachable for 5 min. See the problems below.",
        ),
        (
            [pair(per_second=250.0, queues=[queue(left=75_000)])],
            "Forwarding 250/s; empty in about 5 min. 75,000 messages are safe in the backlog.",
        ),
        (
            [pair(per_second=6.0, queues=[queue(left=7_942)], destinations=[FULL])],
            "Forwarding 6/s, but some messages cannot move: at least 7,220 are stuck. "
            "7,942 messages are safe in the backlog.",
        ),
        (
            [pair(queues=[queue(left=7_220)], destinations=[FULL])],
            "No message can be forwarded: at least 7,220 are stuck. 7,220 messages are safe in the backlog.",
        ),
        ([pair(paused=True)], "Paused by the operator."),
        (
            [pair(dead_lettered_per_second=200.0, destinations=[REFUSED])],
            "No message arrives: all go to the dead letters (200/s).",
        ),
        (
            [pair(per_second=50.0, rate_limit=60.0, rate_limit_set_by="primary", queues=[queue(left=9)])],
            "Forwarding 50/s (the primary throttles); empty in about 1 s. 9 messages are safe in the backlog.",
        ),
    ],
)
def test_one_sentence_says_what_matters_first(pairs: list[PairStatus], headline: str) -> None:  # X7
    assert outlook(WorkerState.WORKING, pairs, NOW).headline == headline


def test_while_some_destinations_accept_messages_not_everything_is_blocked() -> None:  # X7
    """Only the messages of the full one are left: those for the others have gone."""
    found = outlook(WorkerState.WORKING, [pair(queues=[queue(left=7_220)], destinations=[FULL, OPEN])], NOW)
    assert found.flow is MessageFlow.PARTLY_BLOCKED


def test_a_spark_that_does_not_start_blocks_everything_and_is_named_once() -> None:  # X8
    why = "Spark could not be started on local[2]: no memory"
    spark = SparkStatus(
        state=SparkState.BACKING_OFF, since=NOW, error=why, failing_since=NOW, next_attempt=NOW + timedelta(seconds=8)
    )
    waits = [pair(queues=[queue(state=BacklogQueueState.TROUBLED, reason=why), queue(1)])]
    assert outlook(WorkerState.WORKING, waits, NOW, spark).flow is MessageFlow.BLOCKED
    (problem,) = problems(waits, None, NOW, spark)
    assert problem.severity is Severity.CRITICAL
    assert why in problem.text
    assert "Next attempt at" in problem.remedy
    assert outlook(WorkerState.WORKING, [pair()], NOW, spark).flow is MessageFlow.IDLE


def test_commands_name_the_settings_file_of_the_worker() -> None:
    found = pair(destinations=[destination("gone", DestinationState.BACKING_OFF, error="DestinationMissing")])
    (problem,) = problems([found], None, NOW, None, "/etc/syphon/my pair.yaml")
    assert "--destination gone -c '/etc/syphon/my pair.yaml'`" in problem.remedy


def test_a_backlog_queue_that_is_nearly_full_and_a_lost_probe_are_problems() -> None:
    queues = [queue(n).model_copy(update={"used": used}) for n, used in enumerate((0.83, 0.91, 0.2))]
    (full,) = problems([pair(queues=queues)], None, NOW)
    assert full.text == "Backlog queue contoso/x-servicebus-transfer/1 is 91% full, and 1 more queue nearly."
    lost = CanaryStatus(
        destination="syphon-canary",
        arrived=3,
        lost=1,
        failed=0,
        last_seconds=1.0,
        last_ended=NOW - timedelta(minutes=2),
        is_lost=True,
        error=None,
    )
    (problem,) = problems([pair().model_copy(update={"canary": lost})], None, NOW)
    assert problem.text == "contoso: the last probe of the canary did not arrive at syphon-canary in time (2 min ago)."
