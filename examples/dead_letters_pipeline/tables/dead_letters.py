"""The dead letters of a queue as a table, and their reasons counted in another."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from syphon.datasource import register_source

spark = SparkSession.active()
register_source(spark, connection_string=os.environ["SERVICEBUS"])


@dp.materialized_view
def dead_letters() -> DataFrame:
    """The dead letters that are there now. They are peeked: none is received."""
    return spark.read.format("servicebus").options(entity="orders/$DeadLetterQueue", bodies=True).load()


@dp.materialized_view
def reasons() -> DataFrame:
    """How many dead letters there are for each reason."""
    return spark.read.table("dead_letters").groupBy("properties.DeadLetterReason").count()
