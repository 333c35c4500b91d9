"""The process that Spark forks its Python workers from, with a slot's modules loaded already.

A worker that begins with them is at work a second sooner, and shares their memory. Only what starts no thread may be
loaded here: a fork takes one thread along, and the locks of all others (so not pyarrow, nor pandas).
"""

from pyspark.daemon import manager

import syphon.spark.task  # noqa: F401

if __name__ == "__main__":
    manager()
