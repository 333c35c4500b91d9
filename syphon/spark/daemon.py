"""The process that Spark forks its Python workers from. It has the modules of a slot loaded already.

A worker that is forked from it starts one second sooner, and shares the memory of these modules. A module that starts a
thread must not be loaded here (pyarrow and pandas do): a fork keeps one thread, and the locks of all the others.
"""

import gc

from pyspark.daemon import manager

import syphon.spark.task  # noqa: F401
from syphon.ledger import avoid_loading_pandas

if __name__ == "__main__":
    avoid_loading_pandas()
    # Collecting garbage writes to every object it visits: workers would get copies of all of them.
    gc.collect()
    gc.freeze()
    manager()
