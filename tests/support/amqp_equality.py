"""Whether two AMQP values are the same, types included.

`==` will not do: to Python, Int(1), Long(1), True and 1.0 are all the same.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from syphon.amqp import Array, Described, Map
from syphon.amqp.frames import Composite


def assert_same(one: Any, other: Any) -> None:
    found = difference(one, other)
    assert found is None, found


def same(one: Any, other: Any) -> bool:
    return difference(one, other) is None


def difference(one: Any, other: Any, where: str = "value") -> str | None:
    """The first place where two values differ, in words, or None."""
    if type(one) is not type(other):
        return f"{where}: {type(one).__name__} {one!r} is not {type(other).__name__} {other!r}"
    if isinstance(one, float):
        equal = math.isnan(other) if math.isnan(one) else one == other and _negative(one) == _negative(other)
        return None if equal else f"{where}: {one!r} is not {other!r}"
    if isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{where}: {len(one)} items are not {len(other)}"
        pairs = zip(one, other, strict=True)
        return _first(difference(left, right, f"{where}[{place}]") for place, (left, right) in enumerate(pairs))
    if isinstance(one, (Map, Array, Described, Composite)):
        names = [field.name for field in dataclasses.fields(one)]
        return _first(difference(getattr(one, name), getattr(other, name), f"{where}.{name}") for name in names)
    return None if one == other else f"{where}: {one!r} is not {other!r}"


def _negative(number: float) -> bool:
    return math.copysign(1, number) < 0  # zero has a sign too


def _first(differences: Any) -> str | None:
    return next((found for found in differences if found is not None), None)
