"""A driver that has no use for NumPy does not load it (X8)."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from py4j.protocol import INPUT_CONVERTER

from syphon.spark.classic import CONVERTERS, avoid_loading_numpy


def test_the_converters_for_numpy_are_asked_only_where_numpy_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    avoid_loading_numpy()
    avoid_loading_numpy()
    found = [converter for converter in INPUT_CONVERTER if type(converter).__name__ in CONVERTERS]
    assert {type(converter).__name__ for converter in found} == set(CONVERTERS)
    assert [any(converter.can_convert(value) for converter in found) for value in (np.int64(1), np.array([1]), 1)] == [
        True,
        True,
        False,
    ]
    monkeypatch.delitem(sys.modules, "numpy")
    monkeypatch.delitem(sys.modules, "pyspark.testing.utils", raising=False)  # Spark 3.5 has not loaded it
    assert not any(converter.can_convert("text") for converter in found)
    assert "pyspark.testing.utils" not in sys.modules
