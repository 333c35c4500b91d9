"""`syphon run` on real Spark: a process of its own, between two namespaces in another."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from syphon.spark.session import cores_of
from tests.support.processes import Plant, aliased, eventually, plant

pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Plant]:
    with plant(tmp_path) as site:
        yield site


def attempts(site: Plant) -> int:
    """How many files the ledger has of jobs: one for each."""
    return len(list((site.folder / "ledger" / "attempts").rglob("*.parquet")))


def has_arrived(site: Plant, path: str, message: str) -> bool:
    return message in site.arrived(path)


def is_dead(site: Plant, message: str) -> bool:
    return message in site.in_backlog(0, dead=True)


def test_a_worker_carries_home_what_comes_and_ends_when_told_to(site: Plant) -> None:  # S1, S2
    worker = site.worker()
    site.put([aliased(1, "orders")])
    eventually(lambda: site.arrived("orders") == Counter(["m1"]), explain=lambda: worker.said)
    # once its bell is armed again, the next one comes home as well, and so does that of another queue
    site.put([aliased(2, "orders")])
    site.put([aliased(number, "news") for number in range(3, 300)], index=1)
    eventually(lambda: site.arrived("orders") == Counter(["m1", "m2"]), explain=lambda: worker.said)
    eventually(lambda: len(site.arrived("news")) == 297, explain=lambda: worker.said)
    code, out = worker.stop()
    assert (code, out) == (0, ""), worker.said
    assert not site.in_backlog(0)
    assert not site.in_backlog(1)
    assert attempts(site) >= 2


def test_a_destination_that_is_down_does_not_start_job_after_job_and_holds_up_nobody(site: Plant) -> None:  # S3, S5
    site.control("contoso", "PUT", "quota", {"entity": "orders", "bytes": 0})
    worker = site.worker()
    site.put([aliased(number, "orders") for number in range(20)])
    worker.until("destination orders takes no messages")
    # each of these rings: the stuck ones before them do not stand in the way
    for number in range(100, 103):
        site.put([aliased(number, "news")])
        eventually(partial(has_arrived, site, "news", f"m{number}"), explain=lambda: worker.said)
    rung_for_the_good = 3
    # the full one was tried again no more often than its own pace allows: 30 s at first, 60 s after
    assert attempts(site) <= rung_for_the_good + 3, worker.said
    assert not site.arrived("orders")
    site.control("contoso", "PUT", "quota", {"entity": "orders", "bytes": 1_000_000_000})
    eventually(lambda: len(site.arrived("orders")) == 20, within=150, explain=lambda: worker.said)
    assert worker.stop()[0] == 0


def test_a_worker_serves_several_pairs_and_takes_over_filters_on_sighup(site: Plant) -> None:  # X1
    with plant(site.folder / "other", queues=1) as other:
        pairs = [
            {
                "name": name,
                "primary": {"connection_string": each.primary, "name": "contoso"},
                "secondary": {"connection_string": each.secondary},
                "backlog_queue_count": 1,
                "destinations": {"allow": ["orders"]},
            }
            for name, each in (("one", site), ("two", other))
        ]
        config = site.config(pairs=pairs)
        worker = site.worker(config=config)
        worker.until("two: listening to")
        for each in (site, other):
            each.put([aliased(1, "orders"), aliased(2, "news")])
        for each in (site, other):
            eventually(partial(has_arrived, each, "orders", "m1"), explain=lambda: worker.said)
            eventually(partial(is_dead, each, "m2"), explain=lambda: worker.said)
        for name in ("one", "two"):
            worker.until(f"{name}: 1 forwarded")  # a job that runs hears of other settings within a second
        pairs[1]["destinations"] = {"allow": ["orders", "news"]}
        site.config(pairs=pairs)
        os.kill(worker.process.pid, signal.SIGHUP)
        worker.until("are taken over")
        for each in (site, other):
            each.put([aliased(3, "news")])
        eventually(lambda: other.arrived("news") == Counter(["m3"]), explain=lambda: worker.said)
        eventually(lambda: site.in_backlog(0, dead=True) == Counter(["m2", "m3"]), explain=lambda: worker.said)
        # settings that are wrong are said, and change nothing
        config.write_text("pairs: 7\n")
        os.kill(worker.process.pid, signal.SIGHUP)
        worker.until("the settings stay as they are")
        assert worker.stop()[0] == 0


def test_an_outage_of_either_side_is_waited_for(site: Plant) -> None:  # C3
    worker = site.worker()
    site.control("contoso", "PUT", "outage", {"kind": "refuse"})
    site.put([aliased(1, "orders")])
    worker.until("out of reach")
    site.control("contoso-dr", "PUT", "outage", {"kind": "drop"})
    worker.until("127.0.0.1", within=60)
    for name in ("contoso", "contoso-dr"):
        site.control(name, "DELETE", "outage")
    eventually(lambda: site.arrived("orders") == Counter(["m1"]), within=150, explain=lambda: worker.said)
    assert worker.process.poll() is None
    assert worker.stop()[0] == 0


def test_credentials_that_are_refused_end_the_worker_with_exit_code_77_at_its_start(site: Plant) -> None:  # P5, D12
    wrong = site.secondary.replace("SharedAccessKey=", "SharedAccessKey=d3Jvbmc")
    worker = site.start("run", "-c", str(site.config(pair={"secondary": {"connection_string": wrong}})))
    code, _ = worker.end()
    assert code == 77, worker.said
    assert "Manage claim" in worker.said
    assert "d3Jvbmc" not in worker.said


def test_a_namespace_that_refuses_us_faults_the_pair_and_ends_the_worker(site: Plant) -> None:  # C1, C3
    site.put([aliased(1, "orders")])
    refusal = {"action": "error", "operation": "attach", "entity": site.backlog(0)}
    site.control("contoso-dr", "POST", "faults", {**refusal, "condition": "amqp:unauthorized-access"})
    worker = site.worker()
    code, _ = worker.end()
    assert code == 70, worker.said
    assert "The pair contoso has faulted" in worker.said
    site.control("contoso-dr", "DELETE", "faults")
    assert site.in_backlog(0) == Counter(["m1"])


def test_a_second_signal_leaves_at_once_and_loses_nothing(site: Plant) -> None:
    site.put([aliased(number, "orders") for number in range(500)])
    worker = site.worker(config=site.config(pair={"rate": 20}))
    eventually(lambda: site.arrived("orders"), explain=lambda: worker.said)
    children = [pid for pid, _ in worker.descendants()]
    worker.process.send_signal(signal.SIGTERM)
    worker.until("Once more to leave at once")
    code, _ = worker.stop(signal.SIGTERM, within=30)
    assert code in (0, 128 + signal.SIGTERM)
    eventually(lambda: not any(Path(f"/proc/{pid}/stat").exists() and _lives(pid) for pid in children), within=30)
    assert site.arrived("orders") | site.in_backlog(0) == Counter(f"m{number}" for number in range(500))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("local[5, 1]", 5)])
def test_a_local_master_says_how_many_tasks_it_runs(master: str, cores: int) -> None:
    assert cores_of(master) == cores


@pytest.mark.parametrize("master", ["spark://host:7077", "k8s://https://host", "yarn", "local-cluster[2,1,1024]"])
def test_a_cluster_knows_by_itself(master: str) -> None:
    assert cores_of(master) is None
