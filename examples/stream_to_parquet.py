"""Streams the messages of queues into Parquet files, and shows the lag: how many messages each queue has that the
stream has not read.

    SERVICEBUS="Endpoint=sb://…" python examples/stream_to_parquet.py orders,billing/* seen

It reads what is there and ends. Start it again for what has come since; or use trigger(processingTime="10 seconds").
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from syphon.datasource import register_source


def lag(progress: Any) -> dict[str, int]:
    """What is left to read in each queue; empty before the first batch, and for Spark older than 4.2."""
    source = progress["sources"][0]
    read, newest = json.loads(source["endOffset"] or "{}"), json.loads(source["latestOffset"] or "{}")
    return {queue: number - read.get(queue, 0) for queue, number in newest.items() if "#" not in queue}


def start(spark: SparkSession, entity: str, folder: str) -> StreamingQuery:
    messages = spark.readStream.format("servicebus").options(entity=entity, bodies=True, maxRowsPerTrigger=1000).load()
    writer = messages.writeStream.format("parquet").option("path", folder)
    return writer.option("checkpointLocation", f"{folder}/_checkpoint").trigger(availableNow=True).start()


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()
    register_source(spark, connection_string=os.environ["SERVICEBUS"])
    query = start(spark, *sys.argv[1:3])
    shown: set[int] = set()
    is_over = False
    while not is_over:
        is_over = bool(query.awaitTermination(1))
        for progress in query.recentProgress:
            if progress["batchId"] not in shown:
                shown.add(progress["batchId"])
                print(f"batch {progress['batchId']}: {progress['numInputRows']} rows, left to read: {lag(progress)}")
