"""Keeps PySpark from loading NumPy, pandas and Arrow into a driver that has no use for them: 40 MB, and half a second.

With each call into the JVM PySpark asks its converters whether an argument comes from NumPy. To answer, they load all
three. Nothing can come from NumPy while NumPy is not loaded, so they are asked only if it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

CONVERTERS = ("NumpyScalarConverter", "NumpyArrayConverter")
"""The converters of PySpark for what comes from NumPy."""


def avoid_loading_numpy() -> None:
    """Lets the converters for NumPy answer without NumPy. It may be called again."""
    import pyspark.sql.types  # noqa: F401  it registers the converters
    from py4j.protocol import INPUT_CONVERTER

    for converter in INPUT_CONVERTER:
        if type(converter).__name__ in CONVERTERS and not isinstance(converter.can_convert, partial):
            converter.can_convert = partial(_can_convert, converter.can_convert)


def _can_convert(ask: Callable[[object], bool], value: object) -> bool:
    return "numpy" in sys.modules and ask(value)
