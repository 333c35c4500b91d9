"""Tasks of a Spark job: on Spark's core, and as a DataFrame where there is nothing else (Spark Connect)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

from syphon.spark.jobs import _reason, on_core, on_frame, run_tasks
from syphon.spark.task import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[["SparkSession", Task, int], list[bytes]]


def files(numbers: Iterable[int]) -> Iterator[bytes]:
    for number in numbers:
        yield bytes([number]) * 100_000
        yield f"{os.getpid()}".encode()


@pytest.fixture(params=["core", "frame"])
def run(request: pytest.FixtureRequest) -> Run:
    return on_frame if request.param == "frame" else lambda spark, task, count: on_core(spark.sparkContext, task, count)


def test_each_number_is_run_once_and_all_files_come_back_as_they_are(spark: SparkSession, run: Run) -> None:
    found = run(spark, files, 2)
    assert sorted(found[::2]) == [bytes(100_000), b"\x01" * 100_000]


def test_a_task_without_a_file_yields_none_and_its_process_is_used_again(spark: SparkSession, run: Run) -> None:
    def nothing(numbers: Iterable[int]) -> Iterator[bytes]:
        for _ in numbers:
            pass
        yield from ()

    first = run(spark, files, 1)[1]
    assert run(spark, nothing, 1) == []
    assert run(spark, files, 1)[1] == first


def test_the_tasks_of_this_session_load_neither_pandas_nor_arrow(spark: SparkSession) -> None:  # X8
    def loaded(numbers: Iterable[int]) -> Iterator[bytes]:
        for _ in numbers:
            pass
        yield " ".join({"pandas", "pyarrow"} & sys.modules.keys()).encode()

    env = {"SYPHON_TEST": "a worker that has run nothing else"}
    spark.sparkContext.environment.update(env)
    try:
        assert run_tasks(spark, loaded, 1) == [b""]
    finally:
        for name in env:
            del spark.sparkContext.environment[name]


def test_what_spark_says_of_a_job_that_failed_is_more_than_the_name_of_a_call(spark: SparkSession) -> None:
    def broken(numbers: Iterable[int]) -> Iterator[bytes]:
        raise RuntimeError("a mistake")

    with pytest.raises(Exception, match="a mistake") as caught:
        run_tasks(spark, broken, 1)
    said = _reason(caught.value)
    assert "a mistake" in said or said.startswith("Job aborted due to stage failure")  # the version of PySpark decides
    assert "An error occurred while calling" not in said
