"""Spark's Python daemon preloads a slot's modules, and forks its workers afterwards: threads do not survive a fork."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyspark.sql", "pyarrow", "pandas")


def test_the_module_of_a_task_loads_neither_spark_nor_arrow_nor_pandas() -> None:
    code = f"import sys, syphon.spark.task; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_task_needs_only_what_executors_have() -> None:  # docs/clusters.md lists it
    """The driver's own libraries may be missing on an executor."""
    missing = ("aiohttp", "click", "rich", "opentelemetry", "cryptography", "azure.mgmt")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({missing})); import syphon.spark.task, syphon.spark.backlog_rows"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
