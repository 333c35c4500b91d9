"""Which tests one process runs after the other, when several processes run the tests.

Tests of a file stay together, because they share fixtures. Files with tests on the Spark session that all tests of a
process share are four groups: each session takes ten seconds of the processor to start, and a gigabyte of memory. Tests
on Spark Connect share a server.
"""

from __future__ import annotations

import re
from functools import cache

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.tools import ROOT

USES_SPARK = re.compile(r'\b(spark|source): SparkSession\b|usefixtures\("spark"\)')
"""`source` is the shared session with our data source."""
CONNECT = re.compile(r"tests/integration/(spark|datasource)/test_connect")


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist comes without types
    """Gives each process the next group of tests, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])


@cache
def group_of(file: str) -> str:
    """The group of a test file, by its path from the root of the project."""
    path = ROOT / file
    if CONNECT.match(file):
        return "on Spark Connect"
    if not path.is_file() or not USES_SPARK.search(path.read_text()):
        return file
    if path.name.startswith("test_source_"):
        return "on Spark: data source"
    folder = path.parent.name
    return f"on Spark: {folder if folder in ('spark', 'worker') else 'others'}"
