"""Executors whose Python cannot run a slot: it is said at once, with the interpreter and the setting (X6)."""

from __future__ import annotations

import json
import venv
from pathlib import Path

import pytest

from tests.support.processes import aliased, emulated_pair
from tests.support.scripts import run_script

pytestmark = pytest.mark.timeout(600)

SESSION = """
import json
from pyspark.sql import SparkSession
import syphon
from syphon.spark import PythonUnusable

settings = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
spark = SparkSession.builder.master("local[2,4]").config(map=settings).getOrCreate()
context = spark.sparkContext
mine, context.pythonExec = context.pythonExec, "BARE"  # as PYSPARK_PYTHON sets it
jobs = len(context.statusTracker().getJobIdsForGroup(None))
summary = syphon.drain("config.yaml", spark)
found = [summary.exit_code, summary.queues[0].state, summary.queues[0].error]
found.append(len(context.statusTracker().getJobIdsForGroup(None)) - jobs)
try:
    syphon.inspect("config.yaml", spark)
except PythonUnusable as error:
    found.append(str(error))
context.pythonExec = mine
found.append(syphon.drain("config.yaml", spark).account.forwarded)
spark.stop()
print(json.dumps(found))
"""


def test_executors_without_the_dependencies_are_named_at_once_with_the_setting(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    python = str(bare / "bin" / "python")
    with emulated_pair(tmp_path, queues=1) as pair:
        pair.put([aliased(number, "orders") for number in range(20)])
        pair.config("config.yaml")
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(tmp_path)}  # executors inherit it
        script = run_script(pair, "session", SESSION.replace("BARE", python), **environment)
        code, out = script.end(400)
        assert code == 0, script.said
    exit_code, state, error, jobs, of_inspect, forwarded = json.loads(out)
    assert (exit_code, state, forwarded) == (1, "failed", 20)
    assert jobs == 2, "the job, and the one that asks for the interpreter"
    for text in (error, of_inspect):
        assert python in text
        assert "has no module" in text
        assert "Set PYSPARK_PYTHON" in text
