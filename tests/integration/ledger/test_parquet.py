"""Processes of our own write the ledger without pandas, which Arrow would load (X8)."""

from __future__ import annotations

import subprocess
import sys

import pytest

WRITE = """
import sys
from syphon.ledger import Attempt, avoid_loading_pandas
from syphon.ledger.parquet import attempts_file
from syphon.model import Counters
{first}
attempts_file([Attempt("contoso", "q", "job", 0, 0, 1, 2, Counters(), True)])
print("pandas" in sys.modules)
import pandas
import pyarrow
print(pyarrow.table({{"a": [1]}}).to_pandas().shape)
"""


@pytest.mark.parametrize(
    ("first", "is_loaded"), [("avoid_loading_pandas()", False), ("import pandas; avoid_loading_pandas()", True)]
)
def test_arrow_loads_no_pandas_on_request_and_pandas_still_works(first: str, is_loaded: bool) -> None:
    done = subprocess.run([sys.executable, "-c", WRITE.format(first=first)], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == [str(is_loaded), "(1, 1)"]
