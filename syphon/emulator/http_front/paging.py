"""Lists a page at a time, by `$skip` and `$top`, as both HTTP APIs have it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiohttp import web

from ..broker.refusals import BadArgument

LARGEST_PAGE = 100

Item = TypeVar("Item", covariant=True)


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """Some items of a list, and where the next page starts if there is one."""

    items: Sequence[Item]
    top: int
    following: int | None


def page_of(request: web.Request, items: Sequence[Item]) -> Page[Item]:
    """The page a request asks for: a hundred items at the most, whatever it says."""
    skip = _number(request, "$skip", 0, lowest=0)
    top = min(_number(request, "$top", LARGEST_PAGE, lowest=1), LARGEST_PAGE)
    end = skip + top
    return Page(items[skip:end], top, end if end < len(items) else None)


def _number(request: web.Request, name: str, default: int, lowest: int) -> int:
    given = request.query.get(name, str(default))
    if not re.fullmatch(r"[0-9]{1,9}", given) or int(given) < lowest:
        raise BadArgument(f"{name} was given as '{given[:50]}': give a whole number from {lowest}.")
    return int(given)
