"""A drain on a standalone Spark cluster on loopback, whose executors are killed and replaced (D3, X2)."""

from __future__ import annotations

import json
import os
import signal
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import EmulatedPair, aliased, emulated_pair, parent_of
from tests.support.scripts import run_script
from tests.support.spark_cluster import cluster
from tests.support.waiting import eventually

pytestmark = [pytest.mark.timeout(600), pytest.mark.nightly]

MESSAGES = 3000


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path, queues=2) as pair:
        yield pair


def has_children(pid: int) -> bool:
    """Whether a process has started others: an executor starts Python when it gets a task."""
    return any(parent_of(int(entry.name)) == pid for entry in Path("/proc").iterdir() if entry.name.isdigit())


def test_a_drain_on_a_cluster_survives_an_executor_that_is_killed(pair: EmulatedPair, tmp_path: Path) -> None:  # T9
    for index in range(2):
        share = range(index, MESSAGES, 2)
        pair.put([aliased(number, "orders") for number in share], index)
    with cluster(tmp_path) as spark:
        settings = {
            "master": spark.url,
            "spark": {
                "spark.driver.host": "127.0.0.1",
                "spark.executor.memory": "512m",
                "spark.cores.max": 2,
                "spark.authenticate": "true",  # and with it, encryption (T9)
                "spark.authenticate.secret": spark.secret,
            },
        }
        drain = pair.drain("--json", "--rate", "300", config=pair.config(pipeline=settings))
        eventually(lambda: drain.progress().get("moved", 0) > 200, within=120, what=lambda: drain.said)
        executors = spark.executors()
        assert len(executors) == 2, "both workers take part"
        # One slot is enough for this backlog: the executor that runs it is killed.
        (busy,) = [pid for pid in executors if has_children(pid)]
        os.kill(busy, signal.SIGKILL)
        code, out = drain.end(200)
        assert code == 0, drain.said
    result = json.loads(out)
    account = result["account"]
    assert account["killed"] >= 1
    assert account["received"] == (
        account["forwarded"] + account["dead_lettered"] + account["left"] + account["unaccounted"]
    )
    arrived = pair.arrived("orders")
    assert set(arrived) == {f"m{number}" for number in range(MESSAGES)}
    assert not pair.in_backlog(0)
    assert not pair.in_backlog(1)
    assert sum(arrived.values()) - MESSAGES <= account["possible_duplicates"] + account["unaccounted"] + 300


SESSION = """
import json, os, signal, sys
from pyspark.sql import SparkSession
import syphon
from syphon.datasource import backlog
from syphon.spark import PythonUnusable, access_to

settings = {"spark.executor.memory": "512m", "spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1", "spark.default.parallelism": "64"}
builder = SparkSession.builder.master("local-cluster[1,3,512]")
spark = builder.config(map=settings).getOrCreate()
places = access_to(spark).most_slots()

def parent_of(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def executors(batches):
    import pyarrow
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"pid": [os.getppid()]})  # the daemon of its Python workers

def executor():
    return parent_of(spark.range(0, 1, 1, 1).mapInArrow(executors, "pid long").first()[0])

context = spark.sparkContext
python, context.pythonExec = context.pythonExec, sys.argv[1]  # as a wrong PYSPARK_PYTHON sets it
refused = syphon.drain("config.yaml", spark)
said = [refused.exit_code, refused.queues[0].state, refused.queues[0].error]
said.append(len(context.statusTracker().getJobIdsForGroup("syphon contoso")))
try:
    syphon.inspect("config.yaml", spark)
except PythonUnusable as error:
    said.append(str(error))
context.pythonExec = python
found = [syphon.inspect("config.yaml", spark).messages, syphon.drain("config.yaml", spark).account.forwarded]
first = executor()
os.kill(first, signal.SIGKILL)
second = executor()  # a new executor, which fetches all files of the session
found += [backlog(spark, "config.yaml").count(), first != second, places]
spark.stop()
print(json.dumps([said, found]))
"""


def test_a_session_on_a_cluster_can_be_used_again_and_again_and_its_new_executors_too(
    pair: EmulatedPair, tmp_path: Path
) -> None:  # X6
    """It has as many slots as its executors have cores, whatever parallelism a user has set. A Python of executors that
    lacks the dependencies is named at once, with the setting.
    """
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    python = str(bare / "bin" / "python")
    pair.put([aliased(number, "orders") for number in range(20)])
    pair.config("config.yaml")
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(tmp_path)}  # executors inherit it
    script = run_script(pair, "session", SESSION, python, **environment)
    code, out = script.end(400)
    assert code == 0, script.said
    (exit_code, state, error, jobs, of_inspect), found = json.loads(out)
    assert found == [20, 20, 0, True, 3]
    assert (exit_code, state, jobs) == (1, "failed", 2), "the second job asks for the name of the interpreter"
    for text in (error, of_inspect):
        assert python in text
        assert "has no module 'azure'" in text or "has no module 'p" in text, text
        assert "Set PYSPARK_PYTHON" in text
