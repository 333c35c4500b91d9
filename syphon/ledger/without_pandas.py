"""Keeps Arrow from loading pandas in processes of our own: a worker's driver, and the Python workers of a local Spark.

Arrow looks for pandas when it makes its first array. That takes 0.4 s of CPU time and 34 MB, and the ledger does not
need it. Arrow looks once: a process that converts anything to or from pandas must not ask for this.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.abc import MetaPathFinder

_is_wanted = False


def avoid_loading_pandas() -> None:
    """Asks for Arrow without pandas in this process, and in those that it forks. Arrow itself is not loaded yet."""
    global _is_wanted
    _is_wanted = True


def prepare_arrow() -> None:
    """Called before the first array is made."""
    if _is_wanted:
        _hide_pandas_once()


@cache
def _hide_pandas_once() -> None:
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Hidden)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(_Hidden)


class _Hidden(MetaPathFinder):
    """Finds no pandas, wherever it is installed."""

    @classmethod
    def find_spec(cls, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG003
        if fullname == "pandas":
            raise ImportError(fullname)
