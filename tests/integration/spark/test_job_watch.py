"""A job that Spark's UI shows while it runs, and an executor that leaves while one of its slots works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import syphon
from syphon.spark import job_watch
from syphon.worker import DrainProgress
from tests.support.processes import EmulatedPair, aliased, emulated_pair
from tests.support.scripts import run_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path, queues=1) as pair:
        yield pair


def test_the_page_of_the_stage_shows_what_its_slots_have_moved(
    pair: EmulatedPair, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_watch, "_is_seen", lambda _: True)
    monkeypatch.setattr(job_watch, "JOB_WATCHED_EVERY", 0.1)
    pair.put([aliased(number, "orders") for number in range(100)])
    core: Any = spark.sparkContext._jsc.sc()
    seen: list[int] = []

    def look(progress: DrainProgress) -> None:
        stages = core.dagScheduler().runningStages().iterator()
        while stages.hasNext():
            shown = stages.next().latestInfo().accumulables().values().iterator()
            seen.extend(int(each.value().get()) for each in _each(shown) if each.name().get() == "messages forwarded")

    assert syphon.drain(pair.config(), spark, rate=40, progress=look).account.forwarded == 100
    assert seen == sorted(seen)
    assert any(0 < count < 100 for count in seen), "while it runs"


def _each(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()


SESSION = """
import json
from pyspark.sql import SparkSession
import syphon
from syphon.datasource import ledger
from syphon.spark import access_to

settings = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1", "spark.task.cpus": "2", "spark.decommission.enabled": "true"}
spark = SparkSession.builder.master("local-cluster[1,2,512]").config(map=settings).getOrCreate()
context = spark.sparkContext
core, jvm = context._jsc.sc(), context._jvm
places = access_to(spark).most_slots()
left = []

def decommission(progress):
    if progress.moved > 30 and not left:
        left.append(progress.moved)
        leaves = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("the node goes", jvm.scala.Option.empty())
        core.schedulerBackend().decommissionExecutor("0", leaves, False, False)

account = syphon.drain("config.yaml", spark, rate=30, progress=decommission).account
jobs = {row.job for row in ledger(spark, "ledger", "attempts").collect()}
spark.stop()
print(json.dumps([places, len(jobs), account.forwarded, account.killed, account.unaccounted]))
"""


@pytest.mark.nightly
def test_a_slot_ends_in_order_when_its_executor_is_decommissioned_and_another_one_goes_on(
    pair: EmulatedPair, tmp_path: Path
) -> None:
    """Without that it would work until the end of its lease. It takes one core, however many a task has."""
    pair.put([aliased(number, "orders") for number in range(600)])
    pair.config("config.yaml")
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(tmp_path)}  # executors inherit it
    script = run_script(pair, "session", SESSION, **environment)
    code, out = script.end(150)
    assert code == 0, script.said
    places, jobs, *account = json.loads(out)
    assert (places, account) == (2, [600, 0, 0])
    assert jobs >= 2
    assert sum(pair.arrived("orders").values()) == 600
