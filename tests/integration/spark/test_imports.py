"""Spark's Python daemon preloads a slot's modules, and forks its workers afterwards: threads do not survive a fork."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark.sql", "pyarrow", "pandas")


def test_the_module_of_a_task_loads_neither_spark_nor_arrow_nor_pandas() -> None:
    code = f"import sys, syphon.spark.task; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


TASK = ("spark.task", "datasource.backlog_frames")
SOURCE = ("datasource.source", "datasource.read", "datasource.write")


@pytest.mark.parametrize("modules", [TASK, pytest.param(SOURCE, marks=pytest.mark.spark4)])
def test_a_task_needs_only_what_executors_have(modules: tuple[str, ...]) -> None:  # docs/clusters.md lists it
    """The driver's own libraries may be missing on an executor."""
    missing = ("aiohttp", "click", "jinja2", "rich", "opentelemetry", "cryptography", "azure.mgmt")
    imports = ", ".join(f"syphon.{module}" for module in modules)
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); import {imports}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_inspect_shares_with_the_data_source_needs_no_data_source() -> None:
    """Spark 3.5 has none, and `inspect` works there."""
    code = f"import sys, syphon.datasource.backlog_frames; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_on_spark_3_5_the_data_source_is_an_error_that_says_so_and_nothing_else_breaks() -> None:
    code = """
import sys
sys.modules["pyspark.sql.datasource"] = None  # as on Spark 3.5
import syphon.datasource
from syphon.datasource import backlog, backlog_frame, ledger
from syphon.spark import spark_session
for name in ("ServiceBusDataSource", "register_source"):
    try:
        getattr(syphon.datasource, name)
    except Exception as error:
        print(type(error).__mro__[1].__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("SyphonError ")
    assert "needs Spark 4.0 or newer" in first
    assert second == first


def test_the_package_is_imported_at_once_and_has_the_functions() -> None:
    """Executors import it, too: they have neither click nor rich nor the libraries of the control server."""
    code = """
import sys, time
import syphon
heavy = {"pyspark", "pyarrow", "pandas", "azure", "pydantic", "yaml", "aiohttp", "click", "rich"}
assert not heavy & {name.partition(".")[0] for name in sys.modules}, sys.modules
sys.modules.update(dict.fromkeys(("click", "rich", "opentelemetry")))
assert all(callable(getattr(syphon, name)) for name in ("drain", "dry_run", "inspect", "report"))
assert "pyspark" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
