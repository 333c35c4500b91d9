"""`syphon drain` on real Spark; another process runs the two namespaces.

Drains that are about signals, or about drains beside each other, have processes of their own, and so has the first one.
The others share one Spark session.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import syphon
from syphon.worker import DrainProgress
from tests.support.processes import DESTINATIONS, EmulatedPair, aliased, emulated_pair
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(600)]
on_shared_spark = pytest.mark.usefixtures("spark")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path) as pair:
        yield pair


def ids(numbers: range) -> Counter[str]:
    return Counter(f"m{number}" for number in numbers)


def test_everything_is_forwarded_and_the_backlog_is_proven_empty(pair: EmulatedPair) -> None:  # X2, S2, D4
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(600)])
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(600, 900)], index=1)
    code, result = pair.drained()
    assert code == 0, result
    assert pair.arrived(*DESTINATIONS) == ids(range(900))
    assert not pair.in_backlog(0)
    assert not pair.in_backlog(1)
    account = result["account"]
    assert account["received"] == 900 == account["forwarded"]
    assert (account["dead_lettered"], account["left"], account["unaccounted"]) == (0, 0, 0)
    assert [queue["state"] for queue in result["queues"]] == ["empty", "empty"]
    assert result["remaining"] == 0
    assert result["verdict"] == "The backlog is empty: 900 forwarded."


@on_shared_spark
def test_deferred_messages_are_moved_and_the_others_are_left_by_a_filter(pair: EmulatedPair) -> None:  # X2, D4
    pair.defer([aliased(number, DESTINATIONS[number % 2]) for number in range(40)])
    code, result = pair.drained_here("--destination", DESTINATIONS[0])
    assert (code, result["account"]["forwarded"], result["remaining"]) == (0, 20, 0), result
    assert result["verdict"] == (
        "No matching message is left in the backlog: 20 forwarded; 20 messages in the backlog do not match the filter."
    )
    code, result = pair.drained_here()
    assert (code, result["verdict"]) == (0, "The backlog is empty: 20 forwarded."), result
    assert pair.arrived(*DESTINATIONS) == ids(range(40))
    assert not pair.in_backlog(0)


@on_shared_spark
def test_deferred_messages_for_a_missing_destination_are_named_until_they_are_given_up(
    pair: EmulatedPair,
) -> None:  # S4, X7
    pair.defer([aliased(number, "gone") for number in range(5)])
    code, result = pair.drained_here()
    assert (code, result["remaining"]) == (1, 5), result
    assert [(waiting["path"], waiting["left"]) for waiting in result["waiting"]] == [("gone", 5)]
    code, result = pair.drained_here("--give-up", "missing")
    assert (result["remaining"], result["account"]["dead_lettered"]) == (0, 5), result
    assert len(pair.in_backlog(0, dead=True)) == 5


def test_an_empty_backlog_is_proven_without_spark(pair: EmulatedPair) -> None:  # D4
    drain = pair.drain()
    code, out = drain.end()
    assert code == 0, drain.said
    assert "The backlog was already empty." in out
    assert "The queues are empty right now" in out  # S11
    assert "Ledger:" not in out, "there is none to point to"
    assert "Starting Spark" not in drain.said


def test_a_drain_goes_as_fast_as_a_throttled_primary_allows_and_says_so(  # S5, X7
    pair: EmulatedPair, spark: SparkSession
) -> None:
    """Before, it left messages to their locks, received them again and again, and gave up."""
    pair.put([aliased(number, "orders") for number in range(500)])
    pair.control("contoso", "PUT", "throttle", {"credits_per_second": 50})
    seen: set[str | None] = set()

    def watch(progress: DrainProgress) -> None:
        seen.update(queue.state for queue in progress.queues)
        seen.update(limit.set_by for limit in progress.limits.values())
        if seen >= {"throttled", "primary"}:
            pair.control("contoso", "PUT", "throttle", {"credits_per_second": 400})

    summary = syphon.drain(pair.config(), spark, progress=watch)
    pair.control("contoso", "DELETE", "throttle")
    assert seen >= {"throttled", "primary"}
    assert summary.exit_code == 0, summary
    assert summary.account.received == 500
    assert pair.arrived("orders") == ids(range(500))


@on_shared_spark
def test_what_can_never_arrive_is_dead_lettered_and_said(pair: EmulatedPair) -> None:  # M4, S4, D12
    pair.put([aliased(1, "orders"), aliased(2, "$nowhere"), aliased(3, "")])
    code, result = pair.drained_here()
    assert code == 1
    assert pair.arrived("orders") == ids(range(1, 2))
    assert pair.in_backlog(0, dead=True) == ids(range(2, 4))
    assert result["account"]["dead_lettered"] == 2
    assert "2 dead-lettered" in result["verdict"]


@on_shared_spark
def test_queues_beyond_the_count_are_drained_on_request_and_stay_where_they_are(
    tmp_path: Path,
) -> None:  # P4
    with emulated_pair(tmp_path, queues=4) as pair:
        config = pair.config(pair={"backlog_queue_count": 2})
        pair.put([aliased(number, "orders") for number in range(5)], index=3)
        wanted = pair.start("provision", "-c", str(config), "--json")
        code, out = wanted.end()
        assert code == 0, wanted.said
        (provisioned,) = json.loads(out)["pairs"]
        assert provisioned["count"] == 2  # the effective count
        assert provisioned["extra"] == [pair.backlog(2), pair.backlog(3)]

        code, result = pair.drained_here(config=config)  # finds nothing, and needs no Spark for that
        assert [queue["queue"] for queue in result["queues"]] == [pair.backlog(0), pair.backlog(1)]
        assert pair.in_backlog(3) == ids(range(5))

        code, result = pair.drained_here("--all-found", config=config)
        assert code == 0, result
        assert [queue["queue"] for queue in result["queues"]] == [pair.backlog(index) for index in range(4)]
        assert {queue["state"] for queue in result["queues"]} == {"empty"}
        assert pair.arrived("orders") == ids(range(5))
        assert not pair.in_backlog(3)  # it exists, and is empty


@on_shared_spark
def test_a_limit_is_kept_to_the_message(pair: EmulatedPair) -> None:  # X2
    pair.put([aliased(number, "orders") for number in range(50)])
    pair.put([aliased(number, "orders") for number in range(50, 53)], index=1)
    code, result = pair.drained_here("--limit", "37")
    assert code == 1
    assert result["account"]["forwarded"] == 37
    assert result["remaining"] == 16
    assert sum(pair.arrived("orders").values()) == 37


@on_shared_spark
def test_only_matching_messages_are_moved(pair: EmulatedPair) -> None:  # X2
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(30)])
    code, result = pair.drained_here("--destination", "billing/*", "--after", "1h")
    assert code == 0, result
    assert pair.arrived(*DESTINATIONS) == Counter(f"m{number}" for number in range(1, 30, 3))
    assert result["verdict"].startswith("No matching message is left in the backlog: 10 forwarded")
    assert sum(pair.in_backlog(0).values()) == 20
    assert (result["remaining"], result["others"]) == (0, 20)
    code, result = pair.drained_here("--before", "2020-01-01")
    assert (code, result["account"]["forwarded"]) == (0, 0)
    assert result["verdict"].startswith("No message in the backlog matches the filter: 0 forwarded; 20 messages")


@on_shared_spark
def test_a_pattern_that_matches_nothing_is_no_success_and_slashes_and_capitals_do_not_matter(
    pair: EmulatedPair,
) -> None:
    pair.put([aliased(number, "orders") for number in range(3)])
    pair.put([aliased(number, "orders") for number in range(3, 5)], index=1)
    code, foreseen = pair.drained_here("--dry-run", "--destination", "billing/*")
    assert (code, foreseen["messages"], foreseen["others"]) == (1, 0, 5)
    code, result = pair.drained_here("--destination", "billing/*")
    assert code == 1 == result["exit_code"]
    assert (result["remaining"], result["others"]) == (0, 5)
    assert [queue["others"] for queue in result["queues"]] == [3, 2]
    assert result["verdict"] == (
        "No message in the backlog matches the filter: 0 forwarded; 5 messages in the backlog do not match the filter."
    )
    for index, pattern in enumerate(("orders/", "/Orders")):
        code, result = pair.drained_here("--destination", pattern, "--queue", pair.backlog(index))
        assert code == 0, result
        assert (result["verdict"], result["others"]) == (f"The backlog is empty: {3 - index} forwarded.", 0)
    assert pair.arrived("orders") == ids(range(5))


@on_shared_spark
def test_an_unavailable_destination_does_not_hold_up_the_others(pair: EmulatedPair) -> None:  # S3, S4
    pair.control("contoso", "PUT", "quota", {"entity": "orders", "bytes": 0})
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(90)])
    code, result = pair.drained_here("--patience", "8s")
    assert code == 1, result
    assert pair.arrived("billing/invoices", "news") == Counter(f"m{n}" for n in range(90) if n % 3)
    assert result["remaining"] == 30
    assert result["queues"][0]["state"] == "stuck"
    (waiting,) = result["waiting"]
    assert (waiting["path"], waiting["left"], waiting["error"]) == ("orders", 30, "DestinationFull")
    assert "--give-up" not in result["verdict"]  # it is neither missing nor disabled
    account = result["account"]
    assert account["received"] == account["forwarded"] + account["dead_lettered"] + account["left"]
    # and with room again, the rest follows
    pair.control("contoso", "PUT", "quota", {"entity": "orders", "bytes": 1_000_000_000})
    code, result = pair.drained_here()
    assert code == 0, result
    assert pair.arrived(*DESTINATIONS) == ids(range(90))


@on_shared_spark
def test_ctrl_c_finishes_what_is_in_flight_and_abandons_the_rest(pair: EmulatedPair) -> None:
    pair.put([aliased(number, "orders") for number in range(2000)])
    drain = pair.drain("--json", "--rate", "100")
    eventually(lambda: drain.progress().get("moved", 0) > 50, what=lambda: drain.said)
    code, out = drain.stop(signal.SIGINT)
    result = json.loads(out)
    assert code == 1, drain.said
    assert "Press Ctrl-C again" in drain.said
    arrived, left = pair.arrived("orders"), pair.in_backlog(0)
    assert arrived + left == ids(range(2000))
    assert result["account"]["forwarded"] == sum(arrived.values())
    assert result["remaining"] == sum(left.values())
    assert result["account"]["possible_duplicates"] == 0
    # nothing stays locked: a second drain gets all of it
    code, result = pair.drained_here()
    assert code == 0, result
    assert pair.arrived("orders") == ids(range(2000))


@on_shared_spark
def test_two_drains_at_once_move_every_message_once(pair: EmulatedPair) -> None:  # X1
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(3000)])
    other = pair.drain("--json", "--rate", "300", config=pair.config("other.yaml"))
    eventually(lambda: other.progress().get("moved"), what=lambda: other.said)
    here = pair.drained_here("--rate", "300")
    code, out = other.end()
    assert (here[0], code) == (0, 0), other.said
    forwarded = [result["account"]["forwarded"] for result in (here[1], json.loads(out))]
    assert min(forwarded) > 0, "one after the other"
    assert sum(forwarded) == 3000
    assert pair.arrived(*DESTINATIONS) == ids(range(3000))


@on_shared_spark
def test_an_unreachable_primary_is_named_by_drain_and_dry_run_which_keeps_what_it_peeked(
    pair: EmulatedPair, capsys: pytest.CaptureFixture[str]
) -> None:  # X2, X7, D12
    pair.put([aliased(number, "orders") for number in range(20)])
    pair.control("contoso", "PUT", "outage", {"kind": "refuse"})
    code, predicted = pair.drained_here("--dry-run")
    assert (code, predicted["exit_code"], predicted["messages"]) == (69, 69, 20)
    assert [(found["destination"], found["messages"]) for found in predicted["destinations"]] == [("orders", 20)]
    assert "no connection: Connection refused" in predicted["unchecked"][0]["error"]

    capsys.readouterr()
    code, result = pair.drained_here("--patience", "5s", "--queue", "0")
    assert '"state": "waiting", "error": "the primary is unreachable: ' in capsys.readouterr().err
    assert (code, result["remaining"], result["account"]["received"]) == (69, 20, 0)
    assert "Connection refused" in result["queues"][0]["error"]
    assert "20 messages wait in the backlog. The primary is unreachable: " in result["verdict"]
