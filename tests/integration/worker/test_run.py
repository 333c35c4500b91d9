"""`syphon run` on real Spark, as a process of its own; another process runs the two namespaces."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from tests.support.processes import (
    DESTINATIONS,
    FAULTED_WITHIN,
    EmulatedPair,
    Running,
    aliased,
    command_here,
    emulated_pair,
)
from tests.support.waiting import eventually

pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path) as pair:
        yield pair


def attempts(pair: EmulatedPair) -> int:
    """The number of jobs on record."""
    files = list((pair.folder / "ledger" / "attempts").rglob("*.parquet"))
    return len({job for file in files for job in pq.read_table(file, columns=["job"])["job"].to_pylist()})


def has_arrived(pair: EmulatedPair, path: str, message: str) -> bool:
    return message in pair.arrived(path)


def have_arrived(pair: EmulatedPair, messages: set[str]) -> bool:
    return set(pair.arrived("orders")) == messages


def is_dead(pair: EmulatedPair, message: str) -> bool:
    return message in pair.in_backlog(0, dead=True)


class Shared(NamedTuple):
    """A worker for tests that are not about its start, and the pair that it serves."""

    pair: EmulatedPair
    worker: Running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """One worker for several tests. At their end it is told to end, and does."""
    with emulated_pair(tmp_path_factory.mktemp("shared"), destinations=(*DESTINATIONS, "spare", "late")) as pair:
        worker = pair.worker()
        yield Shared(pair, worker)
        code, out = worker.stop()
        assert (code, out) == (0, ""), worker.said


def test_a_worker_forwards_messages_as_they_come_and_ends_when_told_to(shared: Shared) -> None:  # S1, S2
    pair, worker = shared
    pair.put([aliased(1, "orders")])
    eventually(lambda: has_arrived(pair, "orders", "m1"), what=lambda: worker.said)
    # once its bell is armed again, the next one comes home as well, and so does that of another queue
    pair.put([aliased(2, "orders")])
    pair.put([aliased(number, "billing/invoices") for number in range(3, 300)], index=1)
    eventually(lambda: pair.arrived("orders") == Counter(["m1", "m2"]), what=lambda: worker.said)
    eventually(lambda: len(pair.arrived("billing/invoices")) == 297, what=lambda: worker.said)
    eventually(lambda: not pair.in_backlog(0) and not pair.in_backlog(1), what=lambda: worker.said)
    eventually(lambda: attempts(pair) >= 1)  # one slot may have served both queues


def test_a_destination_that_is_down_does_not_start_job_after_job_and_delays_no_other(shared: Shared) -> None:  # S3, S5
    pair, worker = shared
    pair.control("contoso", "PUT", "quota", {"entity": "spare", "bytes": 0})
    before = attempts(pair)
    pair.put([aliased(number, "spare") for number in range(400, 420)])
    worker.until("destination spare is unavailable")
    # each of these rings: the stuck ones before them do not stand in the way
    for number in range(500, 503):
        pair.put([aliased(number, "news")])
        eventually(partial(has_arrived, pair, "news", f"m{number}"), what=lambda: worker.said)
    rung_for_the_good = 3
    # the full one was retried no more often than its own pace allows: 30 s at first, 60 s after
    assert attempts(pair) <= before + rung_for_the_good + 3, worker.said
    assert not pair.arrived("spare")
    pair.control("contoso", "PUT", "quota", {"entity": "spare", "bytes": 1_000_000_000})
    eventually(lambda: len(pair.arrived("spare")) == 20, what=lambda: worker.said)


def test_an_outage_of_either_side_is_waited_for(shared: Shared) -> None:  # C3
    pair, worker = shared
    pair.control("contoso", "PUT", "outage", {"kind": "refuse"})
    pair.put([aliased(600, "late")])
    eventually(lambda: worker.said.count("is unreachable") == 1, what=lambda: worker.said)
    pair.control("contoso-dr", "PUT", "outage", {"kind": "drop"})
    eventually(lambda: worker.said.count("is unreachable") == 2, what=lambda: worker.said)
    for name in ("contoso", "contoso-dr"):
        pair.control(name, "DELETE", "outage")
    eventually(lambda: pair.arrived("late") == Counter(["m600"]), what=lambda: worker.said)
    assert worker.process.poll() is None


def test_a_worker_serves_several_pairs_and_takes_over_filters_on_sighup(pair: EmulatedPair) -> None:  # X1
    with emulated_pair(pair.folder / "other", queues=1) as other:
        pairs = [
            {
                "name": name,
                "primary": {"connection_string": each.primary, "name": "contoso"},
                "secondary": {"connection_string": each.secondary},
                "backlog_queue_count": 1,
                "destinations": {"allow": ["orders"]},
            }
            for name, each in (("one", pair), ("two", other))
        ]
        config = pair.config(pairs=pairs)
        worker = pair.worker(config=config)
        worker.until("two: listening on")
        for each in (pair, other):
            each.put([aliased(1, "orders"), aliased(2, "news")])
        for each in (pair, other):
            eventually(partial(has_arrived, each, "orders", "m1"), what=lambda: worker.said)
            eventually(partial(is_dead, each, "m2"), what=lambda: worker.said)
        for name in ("one", "two"):
            worker.until(f"{name}: job ended after ")  # a job that runs hears of other settings within a second
        pairs[1]["destinations"] = {"allow": ["orders", "news"]}
        pair.config(pairs=pairs)
        os.kill(worker.process.pid, signal.SIGHUP)
        worker.until("reloaded ")
        for each in (pair, other):
            each.put([aliased(3, "news")])
        eventually(lambda: other.arrived("news") == Counter(["m3"]), what=lambda: worker.said)
        eventually(lambda: pair.in_backlog(0, dead=True) == Counter(["m2", "m3"]), what=lambda: worker.said)
        # settings that are wrong are said, and change nothing
        config.write_text("pairs: 7\n")
        os.kill(worker.process.pid, signal.SIGHUP)
        worker.until("reload rejected")
        assert worker.stop()[0] == 0


def test_a_pair_that_is_refused_at_the_start_or_while_it_works_loses_nothing_and_disturbs_no_other(  # C1, C2, C3, X1
    pair: EmulatedPair,
) -> None:
    """The key of one pair is wrong at the start. Once it is right, both namespaces of that pair refuse the worker."""
    with emulated_pair(pair.folder / "other", queues=1) as other:
        key = pair.folder / "key"
        key.write_text(with_wrong_key(other.primary))
        pairs = [{**each, "rate": 20} for each in (settings_of("one", pair), settings_of("two", other, key))]
        worker = pair.worker(config=pair.config(pairs=pairs))
        url = worker.until("status on http").rpartition(" ")[2]
        every = Counter(f"m{number}" for number in range(300))
        for each in (pair, other):
            each.put([aliased(number, "orders") for number in range(300)])
        worker.until("The pair two has faulted, its primary is unusable")
        eventually(lambda: pair.arrived("orders"), what=lambda: worker.said)
        eventually(lambda: fault_of("two", url), what=lambda: worker.said)
        assert (fault_of("one", url), other.arrived("orders")) == (None, Counter())
        assert (worker.process.poll(), "d3Jvbmc" in worker.said) == (None, False)
        key.write_text(other.primary)
        os.kill(worker.process.pid, signal.SIGHUP)
        eventually(lambda: other.arrived("orders"), what=lambda: worker.said)
        worker.until("two: the pair has recovered")
        eventually(lambda: fault_of("two", url) is None)

        refusal = {"action": "error", "operation": "attach", "condition": "amqp:unauthorized-access"}
        for name in ("contoso", "contoso-dr"):
            other.control(name, "POST", "faults", refusal)
            other.control(name, "PUT", "outage", {"kind": "drop"})
            other.control(name, "DELETE", "outage")
        eventually(lambda: worker.said.count("The pair two has faulted") == 2, what=lambda: worker.said)
        for name in ("contoso", "contoso-dr"):
            other.control(name, "DELETE", "faults")
        os.kill(worker.process.pid, signal.SIGHUP)
        for each in (pair, other):
            eventually(partial(have_arrived, each, set(every)), what=lambda: worker.said)
        assert pair.arrived("orders") == every, "the other pair was not disturbed"
        assert worker.stop()[0] == 0
        assert "Traceback" not in worker.said


def with_wrong_key(connection_string: str) -> str:
    return connection_string.replace("SharedAccessKey=", "SharedAccessKey=d3Jvbmc")


def settings_of(name: str, pair: EmulatedPair, primary_key: Path | None = None) -> dict[str, Any]:
    primary = pair.primary if primary_key is None else f"${{file:{primary_key}}}"
    return {
        "name": name,
        "primary": {"connection_string": primary, "name": "contoso"},
        "secondary": {"connection_string": pair.secondary},
        "backlog_queue_count": 1,
    }


def fault_of(name: str, url: str) -> dict[str, Any] | None:
    """The fault of a pair, as `syphon status` shows it."""
    status = json.loads(command_here("status", "--url", url, "--json")[1])
    found: dict[str, Any] | None = next(pair["fault"] for pair in status["pairs"] if pair["name"] == name)
    return found


@pytest.mark.parametrize(
    ("pairs", "wrong", "options"),
    [
        (1, "primary", ()),
        (1, "primary", ("--no-provision",)),
        (1, "secondary", ("--no-provision",)),
        (2, "primary", ()),
        (2, "secondary", ()),
    ],
)
def test_a_worker_all_of_whose_pairs_are_refused_ends_with_exit_code_77(
    pair: EmulatedPair, pairs: int, wrong: str, options: tuple[str, ...]
) -> None:  # C3, D12
    found = [settings_of(f"pair-{number}", pair) for number in range(pairs)]
    for number, each in enumerate(found):
        each["primary"]["name"] = f"contoso-{number}"
        each[wrong]["connection_string"] = with_wrong_key(each[wrong]["connection_string"])
    worker = pair.start("run", "-c", str(pair.config(pairs=found)), *options)
    code, _ = worker.end()
    assert code == 77, worker.said
    assert all(f"the {wrong} of pair-{number}" in worker.lines[-1] for number in range(pairs)), worker.said
    assert "d3Jvbmc" not in worker.said


def test_credentials_that_are_refused_end_the_worker_with_exit_code_77_at_its_start(
    pair: EmulatedPair,
) -> None:  # P5, D12, C3
    wrong = {"secondary": {"connection_string": with_wrong_key(pair.secondary)}}
    worker = pair.start("run", "-c", str(pair.config(pair=wrong)))
    code, _ = worker.end()
    assert code == 77, worker.said
    assert "Manage claim" in worker.said
    assert "d3Jvbmc" not in worker.said


@pytest.mark.nightly
def test_a_namespace_that_refuses_us_faults_the_pair_and_ends_the_worker(pair: EmulatedPair) -> None:  # C1, C3
    pair.put([aliased(1, "orders")])
    refusal = {"action": "error", "operation": "attach", "entity": pair.backlog(0)}
    pair.control("contoso-dr", "POST", "faults", {**refusal, "condition": "amqp:unauthorized-access"})
    worker = pair.worker()
    code, _ = worker.end()
    assert code == 70, worker.said
    assert "The pair contoso has faulted" in worker.said
    pair.control("contoso-dr", "DELETE", "faults")
    assert pair.in_backlog(0) == Counter(["m1"])


def test_credentials_that_are_refused_while_it_works_end_the_worker(pair: EmulatedPair) -> None:  # C1, X9
    pair.put([aliased(number, "orders") for number in range(500)])
    worker = pair.worker(config=pair.config(pair={"rate": 20}))
    eventually(lambda: pair.arrived("orders"), what=lambda: worker.said)
    refusal = {"action": "error", "operation": "attach", "condition": "amqp:unauthorized-access"}
    worker.end_begins()
    for name in ("contoso", "contoso-dr"):
        pair.control(name, "POST", "faults", refusal)
        pair.control(name, "PUT", "outage", {"kind": "drop"})
        pair.control(name, "DELETE", "outage")
    code, _ = worker.end()
    assert code == 70, worker.said
    worker.check_end_took(FAULTED_WITHIN)
    assert "The pair contoso has faulted" in worker.said
    assert "Traceback" not in worker.said
    for name in ("contoso", "contoso-dr"):
        pair.control(name, "DELETE", "faults")
    assert set(pair.arrived("orders") + pair.in_backlog(0)) == {f"m{number}" for number in range(500)}


def test_a_second_signal_leaves_at_once_and_loses_nothing(pair: EmulatedPair) -> None:
    pair.put([aliased(number, "orders") for number in range(500)])
    worker = pair.worker(config=pair.config(pair={"rate": 20}))
    eventually(lambda: pair.arrived("orders"), what=lambda: worker.said)
    children = [pid for pid, _ in worker.descendants()]
    worker.process.send_signal(signal.SIGTERM)
    worker.until("Press Ctrl-C again")
    code, _ = worker.stop(signal.SIGTERM)
    assert code in (0, 128 + signal.SIGTERM)
    eventually(lambda: not any(Path(f"/proc/{pid}/stat").exists() and _lives(pid) for pid in children))
    assert pair.arrived("orders") | pair.in_backlog(0) == Counter(f"m{number}" for number in range(500))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
