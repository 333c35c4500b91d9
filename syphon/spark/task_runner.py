"""Runs a function as the tasks of one Spark job, and returns the files that they yield.

A session of this process runs them on Spark's core, as an RDD. A DataFrame would do the same, but for it the JVM loads
Spark's SQL, and Python loads pandas here and in each task, which none of them needs. Spark Connect has DataFrames only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .session_access import is_connect
from .task import Task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def run_tasks(spark: SparkSession, task: Task, count: int) -> list[bytes]:
    """Runs `count` tasks; each gets its number. Spark evaluates each exactly once: each evaluation is a transfer."""
    return on_frame(spark, task, count) if is_connect(spark) else on_core(spark.sparkContext, task, count)


def on_core(context: SparkContext, task: Task, count: int) -> list[bytes]:
    """Runs the tasks as an RDD, on Spark's core. Each element of it is the number of a task."""
    files: list[bytes] = context.parallelize(range(count), count).mapPartitions(task).collect()
    return files


def on_frame(spark: SparkSession, task: Task, count: int) -> list[bytes]:
    """Runs the tasks as a DataFrame with `mapInArrow`. Each row of it is the number of a task."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        for file in task(numbers):
            yield pa.RecordBatch.from_arrays([pa.array([file], pa.binary())], names=["file"])

    rows = spark.range(0, count, 1, count).mapInArrow(run, "file binary").collect()
    return [bytes(row.file) for row in rows]
